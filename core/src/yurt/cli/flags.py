"""Flags as Go's flag package reads them: one or two dashes, `-x=v`, `-x v`, and switches that take a value only after
`=`.

Two things are kinder than Go: flags are also taken after positional arguments, and an unknown flag gets a near miss.
`--` ends the flags. A command that passes its tail on (`alloc exec`) asks for Go's stop at the first positional
argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from yurt.cli.errors import UsageError
from yurt.cli.suggest import did_you_mean

BOOL, TEXT, INT, FLOAT, LIST, MAYBE_BOOL = "bool", "text", "int", "float", "list", "maybe bool"

_UNSET = {BOOL: False, TEXT: "", INT: 0, FLOAT: 0.0, LIST: (), MAYBE_BOOL: None}

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class Flag(NamedTuple):
    """One flag: its name without dashes, its kind, its effect, and its default."""

    name: str
    kind: str
    help: str
    default: Any = None
    has_effect: bool = True


class Flags:
    """The flags of one call; asking for a name that the command does not declare is a bug and raises KeyError."""

    __slots__ = ("_present", "_values")

    def __init__(self, values: dict[str, Any], present: frozenset[str]) -> None:
        self._values = values
        self._present = present

    def is_given(self, name: str) -> bool:
        """The flag stood on the command line."""
        return name in self._present

    def is_on(self, name: str) -> bool:
        """A switch."""
        return bool(self._values[name])

    def text(self, name: str) -> str:
        """A text."""
        return str(self._values[name])

    def number(self, name: str) -> int:
        """A whole number."""
        return int(self._values[name])

    def decimal(self, name: str) -> float:
        """A number."""
        return float(self._values[name])

    def texts(self, name: str) -> list[str]:
        """The values of a flag that may be repeated."""
        return list(self._values[name])

    def choice(self, name: str) -> bool | None:
        """A switch that may be unset."""
        value = self._values[name]
        return None if value is None else bool(value)


def switch(name: str, help_text: str, *, default: bool = False) -> Flag:
    """A flag without a value."""
    return Flag(name, BOOL, help_text, default)


def text(name: str, help_text: str, *, default: str = "") -> Flag:
    """A flag with a text."""
    return Flag(name, TEXT, help_text, default)


def number(name: str, help_text: str, *, default: int = 0) -> Flag:
    """A flag with a whole number."""
    return Flag(name, INT, help_text, default)


def texts(name: str, help_text: str) -> Flag:
    """A flag that may be repeated."""
    return Flag(name, LIST, help_text, ())


def choice(name: str, help_text: str) -> Flag:
    """A switch that is unset by default; takes its value after `=` or, as a bare switch, means true."""
    return Flag(name, MAYBE_BOOL, help_text, None)


def without_effect(name: str, *, kind: str = BOOL) -> Flag:
    """A flag of Nomad's that Yurt accepts and ignores, so that scripts keep working; no help shows it."""
    return Flag(name, kind, "", _UNSET[kind], has_effect=False)


def parse(argv: Sequence[str], flags: Sequence[Flag], *, stop_at_argument: bool = False) -> tuple[Flags, list[str]]:
    """Split a command line into flags and arguments; raises UsageError with one sentence."""
    by_name = {flag.name: flag for flag in flags}
    values: dict[str, Any] = {flag.name: list(flag.default) if flag.kind == LIST else flag.default for flag in flags}
    present: set[str] = set()
    arguments: list[str] = []
    rest = list(argv)
    while rest:
        word = rest.pop(0)
        if word == "--":
            arguments += rest
            break
        if len(word) < 2 or not word.startswith("-"):
            arguments.append(word)
            if stop_at_argument:
                arguments += rest
                break
            continue
        name, value = _split(word)
        flag = by_name.get(name)
        if flag is None:
            shown = [flag.name for flag in flags if flag.has_effect]
            if name.isdigit():
                raise UsageError(f'flag provided but not defined: {word}; a negative number stands behind "--"')
            raise UsageError(f"flag provided but not defined: -{name}{did_you_mean(name, shown, prefix='-')}")
        present.add(name)
        _store(values, flag, _value_of(flag, value, rest))
    return Flags(values, frozenset(present)), arguments


def _split(word: str) -> tuple[str, str | None]:
    bare = word[2:] if word.startswith("--") else word[1:]
    if not bare or bare[0] in "-=":
        raise UsageError(f"bad flag syntax: {word}")
    name, equals, value = bare.partition("=")
    return name, value if equals else None


def _value_of(flag: Flag, value: str | None, rest: list[str]) -> Any:
    if flag.kind in (BOOL, MAYBE_BOOL):
        return True if value is None else _boolean(flag.name, value)
    if value is None:
        if not rest:
            raise UsageError(f"flag needs an argument: -{flag.name}")
        value = rest.pop(0)
    if flag.kind == INT:
        return _whole(flag.name, value)
    if flag.kind == FLOAT:
        return _decimal(flag.name, value)
    return value


def _store(values: dict[str, Any], flag: Flag, value: Any) -> None:
    if flag.kind == LIST:
        values[flag.name].append(value)
    else:
        values[flag.name] = value


def _boolean(name: str, value: str) -> bool:
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise UsageError(
        f'invalid boolean value "{value}" for -{name}: parse error (use -{name}, -{name}=true or -{name}=false)'
    )


def _whole(name: str, value: str) -> int:
    try:
        return int(value, 0) if value.lstrip("+-").lower().startswith(("0x", "0b", "0o")) else int(value)
    except ValueError:
        raise UsageError(f'invalid value "{value}" for flag -{name}: a whole number is needed') from None


def _decimal(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f'invalid value "{value}" for flag -{name}: a number is needed') from None
