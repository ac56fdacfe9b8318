"""Rejections of commands that do not fit the state, by kind."""

from __future__ import annotations

from yurt.sdk.errors import Reason
from yurt.structs.commands import Rejected


def not_found(message: str) -> Rejected:
    """The command names a missing object."""
    return Rejected(kind="not_found", message=message)


def conflict(message: str, reason: Reason | None = None) -> Rejected:
    """The state has changed since the decision of the command."""
    return Rejected(kind="conflict", message=message, reason=reason)


def invalid(message: str) -> Rejected:
    """The command is inconsistent or violates a rule."""
    return Rejected(kind="invalid", message=message)


def denied(message: str, reason: Reason | None = None) -> Rejected:
    """The cluster's configuration forbids the command."""
    return Rejected(kind="denied", message=message, reason=reason)


def stale(message: str) -> Rejected:
    """A row that the command is based on has changed: its proposer must decide again."""
    return Rejected(kind="stale", message=message)
