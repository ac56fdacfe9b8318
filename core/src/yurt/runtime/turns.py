"""Cuts long work on the event loop into slices, so that HTTP answers need not wait for all of it.

An HTTP answer takes three turns of the loop: its bytes are read, a task is made for it, the task runs. Slices in every
turn would delay each of the three, and slices of several tasks would add up within one turn. So all users of one
`Turns` run one slice at a time, with enough turns in between for an answer: it waits for the slice that runs when it
arrives, and rarely for another.

Walks over large parts of the state use `slices`. The state changes during a walk: a slice shows the snapshot at the
walk's begin, and decisions from it are checked again where they are carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Final, TypeVar

T = TypeVar("T")

TURNS_BETWEEN: Final = 3
SLICE: Final = 2_000
"""The number of rows in a slice where little is done with each row: 1 to 2 ms."""


class Turns:
    """Admits one slice of long work at a time, first come, first served."""

    def __init__(self) -> None:
        self._asking = asyncio.Lock()

    async def next(self) -> None:
        """Wait until the caller may work for a few milliseconds."""
        async with self._asking:
            for _ in range(TURNS_BETWEEN):
                await asyncio.sleep(0)

    async def slices(self, steps: Iterable[T], count: int = SLICE) -> AsyncIterator[list[T]]:
        """The steps in lists of `count`, each list in a turn of its own; the first one comes at once.

        A generator whose items are expensive or rare yields once for each bounded piece of its work, None where the
        piece gives no item.
        """
        rest = iter(steps)
        while part := list(islice(rest, count)):
            yield part
            if len(part) < count:
                return
            await self.next()
