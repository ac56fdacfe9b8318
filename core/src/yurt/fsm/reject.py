"""Refusals of commands that do not fit the state, by kind."""

from __future__ import annotations

from yurt.structs.commands import Rejected


def not_found(message: str) -> Rejected:
    """The command names something that is not there."""
    return Rejected(kind="not_found", message=message)


def conflict(message: str) -> Rejected:
    """The command was made for a state that has moved on."""
    return Rejected(kind="conflict", message=message)


def invalid(message: str) -> Rejected:
    """The command contradicts itself or a rule."""
    return Rejected(kind="invalid", message=message)
