"""A check that all conformance suites share: a step of a package ends in time and does not block the event loop."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable
from itertools import pairwise
from typing import TypeVar

from yurt.sdk.errors import YurtError

STEP_LIMIT_S = 30.0
BLOCKED_LIMIT_S = 1.0
"""How long a call may keep the loop from everybody else, on a machine that has much else to do."""
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

T = TypeVar("T")


async def kept(work: Awaitable[T]) -> T | None:
    """The step's result, or its YurtError; fails for a step that blocks, hangs or raises another exception."""
    ticks = [time.monotonic()]

    async def tick() -> None:
        while True:
            await asyncio.sleep(0.01)
            ticks.append(time.monotonic())

    ticking = asyncio.ensure_future(tick())
    try:
        async with asyncio.timeout(STEP_LIMIT_S):
            return await work
    except YurtError:
        return None
    finally:
        ticking.cancel()
        ticks.append(time.monotonic())
        pause_s = max(later - earlier for earlier, later in pairwise(ticks))
        assert pause_s < BLOCKED_LIMIT_S, f"the call blocked the event loop for {pause_s:.1f} s"
