"""Turns of the event loop for work that is cut into slices.

An answer over HTTP takes three turns of the loop: its bytes are read, a task is made for it, the task runs. Slices that
follow each other turn after turn would come between every two of them, and slices of several tasks would add up in one
turn. So those who share a `Turns` run one slice at a time, with enough turns in between for an answer: it waits for the
slice that runs when it comes, and seldom for another.

What walks much of the state is cut by `slices`. The state goes on meanwhile: a slice shows the snapshot that the walk
began with, and what is decided from it is looked at again where it is carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

TURNS_BETWEEN: Final = 3
SLICE: Final = 2_000
"""Rows of one slice where little is done with a row: a millisecond or two."""


class Turns:
    """Who works for long in slices asks before each of them; first come, first served."""

    def __init__(self) -> None:
        self._asking = asyncio.Lock()

    async def next(self) -> None:
        """Return when the caller may work for a few milliseconds."""
        async with self._asking:
            for _ in range(TURNS_BETWEEN):
                await asyncio.sleep(0)

    async def slices(self, steps: Iterable[T], count: int = SLICE) -> AsyncIterator[list[T]]:
        """The items in lists of `count`, each in a turn of its own; the first one comes at once.

        An item that costs much to make, or that is seldom found, stands for a step: its maker gives one for each
        bounded piece of its work, None where there is nothing to show for it.
        """
        rest = iter(steps)
        while part := list(islice(rest, count)):
            yield part
            if len(part) < count:
                return
            await self.next()
