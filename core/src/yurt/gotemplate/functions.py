"""Built-in functions of templates; `and` and `or` are in the evaluator, because they short-circuit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote_plus

from yurt.gotemplate.errors import EvaluationFailure
from yurt.gotemplate.printf import sprintf
from yurt.gotemplate.values import are_equal, is_less, is_true, kind_of, text_of

_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&#34;", "'": "&#39;", "\0": "\ufffd"}
_JS = {"\\": "\\\\", "'": "\\'", '"': '\\"', "<": "\\u003C", ">": "\\u003E", "&": "\\u0026", "=": "\\u003D"}


class TemplateFunction(NamedTuple):
    """A function of templates: it takes from `least` to `most` arguments (-1: any number).

    A ValueError or TypeError that it raises becomes an error at the place of the call; others pass through.
    """

    call: Callable[..., object]
    least: int = 0
    most: int = -1


def _print(*values: object) -> str:
    """Spaces stand between values of which neither is a text."""
    pieces: list[str] = []
    for at, value in enumerate(values):
        if at and not isinstance(value, str) and not isinstance(values[at - 1], str):
            pieces.append(" ")
        pieces.append(text_of(value))
    return "".join(pieces)


def _println(*values: object) -> str:
    return " ".join(map(text_of, values)) + "\n"


def _printf(form: object, *values: object) -> str:
    if not isinstance(form, str):
        raise EvaluationFailure(f"printf wants a format as its first argument, not {kind_of(form)}")
    return sprintf(form, *values)


def _html(*values: object) -> str:
    return "".join(_HTML.get(character, character) for character in _plain(values))


def _js(*values: object) -> str:
    return "".join(map(_js_character, _plain(values)))


def _js_character(character: str) -> str:
    if character in _JS:
        return _JS[character]
    point = ord(character)
    if point < 0x20 or (point >= 0x80 and not character.isprintable()):
        return f"\\u{point:04X}"
    return character


def _urlquery(*values: object) -> str:
    return quote_plus(_plain(values), safe="-_.~")


def _plain(values: tuple[object, ...]) -> str:
    return values[0] if len(values) == 1 and isinstance(values[0], str) else _print(*values)


def _eq(first: object, *others: object) -> bool:
    return any(are_equal(first, other) for other in others)


def _le(first: object, second: object) -> bool:
    return is_less(first, second) or are_equal(first, second)


def _len(value: object) -> int:
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes | list | tuple | Mapping):
        return len(value)
    raise EvaluationFailure(f"len of type {kind_of(value)}")


def _index(value: Any, *keys: object) -> object:
    for key in keys:
        if value is None:
            raise EvaluationFailure("index of untyped nil")
        if isinstance(value, Mapping):
            try:
                value = value.get(key)
            except TypeError:
                raise EvaluationFailure(f"cannot index a map with a {kind_of(key)}") from None
            continue
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogatepass")
        if not isinstance(value, bytes | list | tuple):
            raise EvaluationFailure(f"can't index item of type {kind_of(value)}")
        value = value[_position(key, len(value) - 1)]
    return value


def _slice(value: Any, *bounds: object) -> object:
    if value is None:
        raise EvaluationFailure("slice of untyped nil")
    if not isinstance(value, str | bytes | list | tuple):
        raise EvaluationFailure(f"can't slice item of type {kind_of(value)}")
    if isinstance(value, str) and len(bounds) == 3:
        raise EvaluationFailure("cannot 3-index slice a string")
    whole = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    start, stop, *capacity = [_position(bound, len(whole)) for bound in bounds] + [0, len(whole)][len(bounds) :][:2]
    if start > stop or (capacity and stop > capacity[0]):
        raise EvaluationFailure(f"invalid slice index: {start} > {stop}")
    part = whole[start:stop]
    return part.decode("utf-8", "replace") if isinstance(value, str) and isinstance(part, bytes) else part


def _position(key: object, most: int) -> int:
    if isinstance(key, bool) or not isinstance(key, int):
        raise EvaluationFailure(f"cannot index slice/array with type {kind_of(key)}")
    if not 0 <= key <= most:
        raise EvaluationFailure(f"index out of range: {key}")
    return key


def _call(function: object, *values: object) -> object:
    if function is None:
        raise EvaluationFailure("call of nil")
    if not callable(function):
        raise EvaluationFailure(f"non-function of type {kind_of(function)}")
    return function(*values)


BUILT_IN: Mapping[str, TemplateFunction] = {
    "call": TemplateFunction(_call, 1),
    "eq": TemplateFunction(_eq, 2),
    "ge": TemplateFunction(lambda first, second: not is_less(first, second), 2, 2),
    "gt": TemplateFunction(lambda first, second: not _le(first, second), 2, 2),
    "html": TemplateFunction(_html),
    "index": TemplateFunction(_index, 1),
    "js": TemplateFunction(_js),
    "le": TemplateFunction(_le, 2, 2),
    "len": TemplateFunction(_len, 1, 1),
    "lt": TemplateFunction(is_less, 2, 2),
    "ne": TemplateFunction(lambda first, second: not are_equal(first, second), 2, 2),
    "not": TemplateFunction(lambda value: not is_true(value), 1, 1),
    "print": TemplateFunction(_print),
    "printf": TemplateFunction(_printf, 1),
    "println": TemplateFunction(_println),
    "slice": TemplateFunction(_slice, 1, 4),
    "urlquery": TemplateFunction(_urlquery),
}
SHORT_CUT = ("and", "or")
"""Functions that stop at the first argument that decides."""
