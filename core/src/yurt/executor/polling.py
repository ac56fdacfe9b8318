"""Polls for conditions without an event: a new file, the end of a process that is not a child."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Poll until a condition holds, after pauses from 1 ms to 50 ms; returns False at the time limit."""
    wait_s, waited_s = 0.001, 0.0
    while not condition():
        if waited_s > limit_s:
            return False
        await asyncio.sleep(wait_s)
        waited_s += wait_s
        wait_s = min(wait_s * 2, 0.05)
    return True
