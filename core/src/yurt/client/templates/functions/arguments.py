"""Validates the arguments of functions, with errors that say what they must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from yurt.gotemplate import EvaluationFailure
from yurt.gotemplate.values import kind_of, text_of

MADE_MAX = 1_000_000
"""Elements or characters that one call may make."""


def text(value: object) -> str:
    """A text; other basic values as they print."""
    if value is None:
        return ""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return str.__str__(value) if isinstance(value, str) else text_of(value)


def raw(value: object) -> bytes:
    """The bytes of a text."""
    return value if isinstance(value, bytes) else text(value).encode("utf-8", "surrogateescape")


def whole(value: object) -> int:
    """A whole number, also from a text or a float."""
    match value:
        case None:
            return 0
        case bool():
            return int(value)
        case int():
            return value
        case float():
            return int(value)
        case str():
            try:
                return int(value.strip() or "0", 0)
            except ValueError:
                raise EvaluationFailure(f"{value!r} is not a whole number") from None
    raise EvaluationFailure(f"a whole number is needed, not {kind_of(value)}")


def real(value: object) -> float:
    """A floating-point number, also from a text."""
    match value:
        case None:
            return 0.0
        case bool() | int() | float():
            return float(value)
        case str():
            try:
                return float(value.strip() or "0")
            except ValueError:
                raise EvaluationFailure(f"{value!r} is not a number") from None
    raise EvaluationFailure(f"a number is needed, not {kind_of(value)}")


def numeric(value: object) -> int | float:
    """A number of either kind."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvaluationFailure(f"a number is needed, not {kind_of(value)}")
    return value


def items(value: object) -> Sequence[Any]:
    """A list."""
    if value is None:
        return ()
    if isinstance(value, list | tuple):
        return value
    raise EvaluationFailure(f"a list is needed, not {kind_of(value)}")


def mapping(value: object) -> Mapping[Any, Any]:
    """A map."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        return value
    raise EvaluationFailure(f"a map is needed, not {kind_of(value)}")


def bounded(count: int) -> int:
    """A size that one call may make."""
    if count > MADE_MAX:
        raise EvaluationFailure(f"it would make more than {MADE_MAX} elements or characters")
    return count


def plain(value: object, depth: int = 0) -> Any:
    """A value that JSON can represent."""
    if depth > 60:
        raise EvaluationFailure("the value is nested deeper than 60")
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return str.__str__(value)
        case bytes():
            return text(value)
        case Mapping():
            return {text(key): plain(each, depth + 1) for key, each in value.items()}
        case list() | tuple():
            return [plain(each, depth + 1) for each in value]
    raise EvaluationFailure(f"a {kind_of(value)} cannot be written")
