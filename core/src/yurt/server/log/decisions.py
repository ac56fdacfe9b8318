"""Decisions based on the state that are too large for `apply`.

A decision reads a snapshot and answers with a command that names the rows it is based on. When `apply` finds one of
them changed, the decision is made again on the newer state, so that a caller never undoes what another was promised.

A decision may refuse as well. Who asked hears of that only from a server that is known to lead: see `http.at_leader`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Final
from weakref import WeakValueDictionary

from yurt.sdk.errors import Unavailable
from yurt.sdk.value import replace
from yurt.server.log.log_writer import Committed, LogWriter, Stale
from yurt.state import Snapshot
from yurt.structs.commands import AnyCommand, Expectation

Decision = Callable[[Snapshot], Awaitable[AnyCommand]]
Propose = Callable[[AnyCommand], Awaitable[Committed]]

ATTEMPTS_MAX: Final = 64
"""The number of attempts at a decision before its caller gets an error."""


class Contention:
    """Serialises decisions on the same rows after a stale attempt.

    Without it, each of many callers at once would write a rejected command for each caller that succeeds. `based_on` is
    which separates their decisions; turns only save work.
    """

    def __init__(self) -> None:
        self._turns: WeakValueDictionary[tuple[Expectation, ...], asyncio.Lock] = WeakValueDictionary()

    def turn(self, based_on: Iterable[Expectation]) -> asyncio.Lock:
        """A lock on the first of the rows."""
        key = tuple(replace(each, index=0) for each in based_on)[:1]
        return self._turns.setdefault(key, asyncio.Lock())


async def decide(
    decision: Decision, writer: LogWriter, contention: Contention, *, propose: Propose | None = None
) -> Committed:
    """Propose the result of the decision, repeating it until its basis is unchanged at `apply`.

    `propose` replaces the writer's own, so that a caller can raise a rejection with details.

    Raises what the decision raises, what `apply` rejects, and Unavailable after `ATTEMPTS_MAX` attempts.
    """
    store = propose or writer.propose
    command = await decision(writer.state)
    with suppress(Stale):
        return await store(command)
    async with contention.turn(command.based_on):
        for _ in range(ATTEMPTS_MAX):
            with suppress(Stale):
                return await store(await decision(writer.state))
    raise Unavailable("what the request is about keeps changing; try again in a moment")
