"""Decisions that depend on the state and are too large for `apply`.

A decision reads a snapshot and answers with a command that names the rows it is based on. When `apply` finds one of
them changed, the decision is made again on the newer state, so that a caller never undoes what another was promised.

A decision may refuse as well. Who asked hears of that only from a server that is known to lead: see `http.at_leader`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from yurt.sdk.errors import Unavailable
from yurt.server.log_writer import Committed, Stale
from yurt.state import Snapshot
from yurt.structs.commands import AnyCommand

if TYPE_CHECKING:
    from yurt.server.server import Server

Decision = Callable[[Snapshot], Awaitable[AnyCommand]]
Propose = Callable[[AnyCommand], Awaitable[Committed]]

ATTEMPTS_MAX: Final = 64
"""How often a decision is made again before its caller is told to come back."""


async def decide(server: Server, decision: Decision, *, propose: Propose | None = None) -> Committed:
    """Propose what the decision answers until nothing that it is based on has changed meanwhile.

    `propose` stands in for the server's own where a rejection is told with more than its text.

    Raises what the decision raises, what `apply` rejects, and Unavailable after `ATTEMPTS_MAX` attempts.
    """
    for _ in range(ATTEMPTS_MAX):
        command = await decision(server.state)
        try:
            return await (propose or server.propose)(command)
        except Stale:
            continue
    raise Unavailable("what the request is about keeps changing; try again in a moment")
