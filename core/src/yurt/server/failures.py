"""Failures during a change of leadership, and those of them that a retry may overcome."""

from __future__ import annotations

from typing import Final

from yurt.sdk.errors import Reason, Unavailable, YurtError

NO_LEADER: Final = "No cluster leader"
"""The wording is Nomad's."""
UNKNOWN_OUTCOME: Final = "the change may or may not be stored"
SHUTTING_DOWN: Final = "the server is shutting down"
MAY_REPEAT: Final = frozenset({
    Reason.NO_LEADER, Reason.OUTCOME_UNKNOWN, Reason.SHUTTING_DOWN, Reason.CONNECTION_LOST, Reason.NO_ANSWER,
})  # fmt: skip
"""Reasons for which an idempotent call is repeated."""


class LeaderMoved(Exception):
    """Another server has become the leader since the call."""


def no_leader() -> Unavailable:
    """No server leads; the request was not carried out."""
    return Unavailable(NO_LEADER, reason=Reason.NO_LEADER)


def outcome_unknown(why: object) -> Unavailable:
    """The change may or may not have been stored."""
    return Unavailable(f"{UNKNOWN_OUTCOME}: {why}", reason=Reason.OUTCOME_UNKNOWN)


def shutting_down() -> Unavailable:
    """The server is shutting down."""
    return Unavailable(SHUTTING_DOWN, reason=Reason.SHUTTING_DOWN)


def log_broken(why: str) -> Unavailable:
    """The server's command log failed; it accepts no commands until a restart."""
    return Unavailable(why, reason=Reason.LOG_BROKEN)


def is_passing(error: Exception) -> bool:
    """Whether retrying an idempotent call may soon succeed, at the same leader or another one."""
    return isinstance(error, YurtError) and error.reason in MAY_REPEAT


def is_no_leader(error: Exception) -> bool:
    """Whether a call failed for lack of a leader; it was not carried out."""
    return isinstance(error, YurtError) and error.reason is Reason.NO_LEADER
