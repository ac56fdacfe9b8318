"""Turns of the event loop for work that is cut into slices.

An answer over HTTP takes three turns of the loop: its bytes are read, a task is made for it, the task runs. Slices that
follow each other turn after turn would come between every two of them, and slices of several tasks would add up in one
turn. So those who share a `Turns` run one slice at a time, with enough turns in between for an answer: it waits for the
slice that runs when it comes, and seldom for another.
"""

from __future__ import annotations

import asyncio
from typing import Final

TURNS_BETWEEN: Final = 3


class Turns:
    """Who works for long in slices asks before each of them; first come, first served."""

    def __init__(self) -> None:
        self._asking = asyncio.Lock()

    async def next(self) -> None:
        """Return when the caller may work for a few milliseconds."""
        async with self._asking:
            for _ in range(TURNS_BETWEEN):
                await asyncio.sleep(0)
