"""What the commands that change a configuration by flags have in common."""

from __future__ import annotations

from collections.abc import Sequence

from yurt.cli.declaration import Invocation
from yurt.cli.errors import UsageError


def require_setting(call: Invocation, names: Sequence[str]) -> None:
    """Raise UsageError if none of these flags is given: the command would claim an update and change nothing."""
    if not any(map(call.flags.is_given, names)):
        raise UsageError(f"No setting is given, so nothing was changed; one of these is needed: -{', -'.join(names)}")


def whole_number(name: str, value: str) -> int:
    """The number that a flag has as text."""
    if not value.isdigit():
        raise UsageError(f'-{name} needs a whole number, not "{value}"')
    return int(value)
