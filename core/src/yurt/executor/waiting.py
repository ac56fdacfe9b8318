"""Waiting for what no event tells: a file that appears, a process of others that ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], limit_s: float) -> bool:
    """Wait until a condition holds, looking often at first; False when it does not hold in time."""
    wait_s, waited_s = 0.001, 0.0
    while not condition():
        if waited_s > limit_s:
            return False
        await asyncio.sleep(wait_s)
        waited_s += wait_s
        wait_s = min(wait_s * 2, 0.05)
    return True
