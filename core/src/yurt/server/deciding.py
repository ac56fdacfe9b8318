"""Decisions that depend on the state and are too large for `apply`.

A decision reads a snapshot and answers with a command that names the rows it is based on. When `apply` finds one of
them changed, the decision is made again on the newer state, so that a caller never undoes what another was promised.

A refusal depends on the state as much as a write does, and a server that leads no more may hold an old one. So before a
decision may refuse, this server has the log confirm that it leads, and decides once more on the state that it has then.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied, Unavailable
from yurt.server.log_writer import Committed, Stale
from yurt.state import Snapshot
from yurt.structs.commands import AnyCommand

if TYPE_CHECKING:
    from yurt.server.server import Server

T = TypeVar("T")
Decision = Callable[[Snapshot], Awaitable[AnyCommand]]

ATTEMPTS_MAX: Final = 64
"""How often a decision is made again before its caller is told to come back."""
REFUSALS: Final = (NotFound, Conflict, Invalid, PermissionDenied)


async def decide(server: Server, decision: Decision) -> Committed:
    """Propose what the decision answers until nothing that it is based on has changed meanwhile.

    Raises what the decision raises, what `apply` rejects, and Unavailable after `ATTEMPTS_MAX` attempts.
    """
    for _ in range(ATTEMPTS_MAX):
        command = await confirmed(server, decision)
        try:
            return await server.propose(command)
        except Stale:
            continue
    raise Unavailable("what the request is about keeps changing; try again in a moment")


async def confirmed(server: Server, read: Callable[[Snapshot], Awaitable[T]]) -> T:
    """The outcome of a read of the state; a refusal is made by a server that is known to lead."""
    try:
        return await read(server.state)
    except REFUSALS:
        await server.confirm()
        return await read(server.state)
