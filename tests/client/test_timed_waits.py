"""Work that is given up for an event: nobody's cancellation is lost over it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
from yurt.client.timed_waits import finish_unless, value_unless

Wait = Callable[[asyncio.Event, Coroutine[Any, Any, None]], Awaitable[object]]


async def forever() -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize("wait", [value_unless, finish_unless])
async def test_a_cancellation_while_work_is_given_up_is_heard(wait: Wait) -> None:
    event, leaving, may_leave = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        try:
            await forever()
        finally:
            leaving.set()
            await may_leave.wait()

    waiting = asyncio.ensure_future(wait(event, work()))
    await asyncio.sleep(0)
    event.set()
    await leaving.wait()
    waiting.cancel()
    may_leave.set()
    done, _ = await asyncio.wait({waiting}, timeout=60)
    assert done and waiting.cancelled()


@pytest.mark.parametrize(("wait", "outcome"), [(value_unless, None), (finish_unless, False)])
async def test_the_event_ends_the_work(wait: Wait, outcome: object) -> None:
    event = asyncio.Event()
    event.set()
    assert await wait(event, forever()) is outcome


async def test_work_that_ends_first_tells_its_value() -> None:
    async def work() -> int:
        return 7

    assert await value_unless(asyncio.Event(), work()) == 7


@pytest.mark.parametrize("wait", [value_unless, finish_unless])
async def test_work_that_fails_says_why(wait: Wait) -> None:
    async def work() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await wait(asyncio.Event(), work())
