"""The thread of the driver's calls: what nobody waits for any more does not run later."""

from __future__ import annotations

import asyncio
import threading

import pytest
from yurt_device_nvidia.caller import Hanging, NvmlThread


async def test_a_call_that_was_cancelled_before_its_turn_never_runs() -> None:
    caller, may_end, ran = NvmlThread("test", limit_s=10), threading.Event(), list[str]()
    first = asyncio.ensure_future(caller.call(may_end.wait))
    second = asyncio.ensure_future(caller.call(lambda: ran.append("second")))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait({second})
    may_end.set()
    await first
    await caller.call(lambda: ran.append("third"))
    caller.close()

    assert ran == ["third"]


async def test_a_call_that_hangs_refuses_others_until_it_returns() -> None:
    caller, may_end = NvmlThread("test", limit_s=0.05), threading.Event()
    with pytest.raises(Hanging):
        await caller.call(may_end.wait)
    with pytest.raises(Hanging):
        await caller.call(lambda: None)
    may_end.set()
    caller.close()
