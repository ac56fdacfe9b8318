"""Which failures of a call to the leader pass: those that a change of leaders brings, and those of a connection."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from yurt.rpc.peer import ConnectionLost
from yurt.rpc.proxy import NoAnswer
from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable
from yurt.server.log_writer import NO_LEADER, SHUTTING_DOWN, UNKNOWN_OUTCOME

T = TypeVar("T")

MAY_REPEAT: Final = (NO_LEADER, UNKNOWN_OUTCOME, SHUTTING_DOWN)
"""How texts begin of what a call meets where leadership changes; clients' calls bear being made twice."""
RETRY_FIRST_S, RETRY_MAX_S = 0.5, 10.0
"""Pauses between tries of a worker's call (semantics, section 3)."""
RETRY_LIMIT_S: Final = 60.0
"""How long a worker tries: then its delivery is no longer its own."""


class LeaderMoved(Exception):
    """Another server leads than the one that was asked."""


def is_passing(error: Exception) -> bool:
    """Whether a call that bears being made twice may go better in a moment, at the same leader or another one."""
    return isinstance(error, ConnectionLost | NoAnswer) or (
        isinstance(error, Unavailable) and str(error).startswith(MAY_REPEAT)
    )


def is_no_leader(error: Exception) -> bool:
    """Whether a call failed because nobody led where it was made; it was not carried out."""
    return isinstance(error, Unavailable) and str(error) == NO_LEADER


async def repeated(call: Callable[[], Awaitable[T]], env: Env, *, while_: Callable[[Exception], bool]) -> T:
    """Make a worker's call again while it fails in a way that passes, with growing pauses and for a bounded time."""
    pause_s, end_s = RETRY_FIRST_S, env.monotonic() + RETRY_LIMIT_S
    while True:
        try:
            return await call()
        except Unavailable as error:
            if not while_(error) or env.monotonic() + pause_s > end_s:
                raise
        await env.sleep(pause_s)
        pause_s = min(pause_s * 2, RETRY_MAX_S)
