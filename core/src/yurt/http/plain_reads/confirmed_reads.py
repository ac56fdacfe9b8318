"""Plain consistent reads of a server with others: one confirmation that this server leads answers many of them.

A consistent read may be answered once it is certain that this server led at some time after the read came. One round
of the log's `confirm` proves that for every read that came before the round began, whichever connection it came over.
So reads wait in a list; one round at a time takes the whole list, and what comes during a round waits for the next one.
Nothing rests on a clock: no lease saves a round, so a frozen or slow leader answers no read from an old state.

Where a round fails, every read that waits takes the usual way, which waits for a leader or passes it on to it: a second
round would mostly fail as well, after as long a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, Protocol

from yurt.sdk.errors import YurtError
from yurt.server.log.current_leader import CurrentLeader

SLICE_S: Final = 0.005
"""How long the answers of one round may take until other work on the event loop gets a turn."""


class WaitingRead(Protocol):
    """A read that waits for a confirmation."""

    def go_on(self, *, is_confirmed: bool) -> None:
        """Answer it, or let it take the usual way; raises nothing."""
        ...


class ConfirmedReads:
    """The reads of a server that wait for the next round."""

    def __init__(self, leader: CurrentLeader) -> None:
        self._leader = leader
        self._waiting: list[WaitingRead] = []
        self._rounds: asyncio.Task[None] | None = None

    def add(self, read: WaitingRead) -> None:
        """Have a read go on after a round that begins from now on."""
        self._waiting.append(read)
        if self._rounds is None:
            self._rounds = asyncio.get_running_loop().create_task(self._run())

    def __len__(self) -> int:
        """Those that wait for a round that has not begun."""
        return len(self._waiting)

    async def _run(self) -> None:
        """Rounds as long as reads wait and none fails."""
        try:
            while self._waiting:
                reads, self._waiting = self._waiting[::-1], []  # popped from the end: first come, first served
                await self._round(reads)
        except YurtError:
            pass  # the usual way meets it too, and answers it
        finally:
            self._rounds = None
            left, self._waiting = self._waiting, []
            _go_usual_way(left)

    async def _round(self, reads: list[WaitingRead]) -> None:
        now = self._leader.monotonic
        try:
            await self._leader.confirm()
            began = now()
            while reads:
                reads.pop().go_on(is_confirmed=True)
                if now() - began > SLICE_S:
                    await asyncio.sleep(0)
                    began = now()
        finally:
            _go_usual_way(reversed(reads))  # those of a round that failed or was cancelled


def _go_usual_way(reads: Iterable[WaitingRead]) -> None:
    for read in reads:
        read.go_on(is_confirmed=False)
