"""Checks shared by the commands that change a configuration by flags."""

from __future__ import annotations

from collections.abc import Iterable

from yurt.cli.declaration import Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import Flag


def require_setting(call: Invocation, settings: Iterable[Flag]) -> None:
    """Raise UsageError if none of these flags is given: the command would report an update and change nothing."""
    settings = tuple(settings)
    if not any(call.flags.is_given(flag.name) for flag in settings):
        names = ", ".join(f"-{flag.name}" for flag in settings if flag.has_effect)
        raise UsageError(f"No setting is given, so nothing was changed; one of these is needed: {names}")


def whole_number(name: str, value: str) -> int:
    """The value of a flag as a whole number; raises UsageError for another text."""
    if not value.isdecimal():
        raise UsageError(f'-{name} needs a whole number, not "{value}"')
    return int(value)
