"""Functions on text; positions and lengths count user-perceived characters."""

from __future__ import annotations

import re
from typing import Any

from yurt_jobspec.diagnostics import characters
from yurt_jobspec.values import Value

from .formatting import format_text
from .patterns import check_text, compile_pattern, expand
from .registry import Arguments, FunctionError

_SPACE = "".join(
    map(chr, (*range(9, 14), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000))
)
_MAX_TEXT = 16 * 1024 * 1024


def chomp(args: Arguments) -> str:
    return re.sub(r"(?:\r\n?|\n)+\Z", "", args[0])


def format(args: Arguments) -> str:
    return format_text(args[0], args[1:])


def formatlist(args: Arguments) -> Value:
    """`format` for each element: lists advance together, single values repeat."""
    from yurt_jobspec.values import ListValue, items_of

    lists = [items_of(arg) for arg in args[1:]]
    first: tuple[int, int] | None = None
    for index, items in enumerate(lists, 1):
        if items is None:
            continue
        if first is not None and len(items) != first[1]:
            lengths = f"argument {index} has length {len(items)}, argument {first[0]} has length {first[1]}"
            raise FunctionError(f"the lists have different lengths: {lengths}", index)
        first = first or (index, len(items))
    count = first[1] if first else 1
    rows = [
        [arg if items is None else items[row] for arg, items in zip(args[1:], lists, strict=True)]
        for row in range(count)
    ]
    return ListValue("string", tuple(_format_row(args[0], number, row) for number, row in enumerate(rows)))


def _format_row(template: str, number: int, row: list[Any]) -> str:
    try:
        return format_text(template, row)
    except FunctionError as error:
        raise FunctionError(f"row {number}: {error.detail}" if row else error.detail) from None


def indent(args: Arguments) -> str:
    spaces = _whole(args[0], 0)
    if not 0 <= spaces <= 10_000:
        raise FunctionError("the number of spaces must be between 0 and 10000", 0)
    return _replaced(args[1], "\n", "\n" + " " * spaces)


def join(args: Arguments) -> str:
    if len(args) < 2:
        raise FunctionError("at least one list is required")
    parts: list[str] = []
    for index, items in enumerate(args[1:], 1):
        for item in items.items:
            if not isinstance(item, str):
                raise FunctionError("a null element cannot be joined", index)
            parts.append(item)
    return _bounded(str(args[0]).join(parts))


def lower(args: Arguments) -> str:
    return str(args[0]).lower()


def upper(args: Arguments) -> str:
    return "".join(char.upper() if len(char.upper()) == 1 else char for char in args[0])


def title(args: Arguments) -> str:
    """The text with each word's first letter in upper case; words consist of letters, digits and underscores."""
    return re.sub(r"(?<!\w)\w", lambda found: found[0].upper(), args[0])


def regex_replace(args: Arguments) -> str:
    pattern = compile_pattern(args[1], 1)
    check_text(args[1], args[0])
    length = 0

    def fill(found: re.Match[str]) -> str:
        nonlocal length
        text = expand(args[2], found)
        length += len(text)
        if length > _MAX_TEXT:
            raise FunctionError("the result is too long")
        return text

    return pattern.sub(fill, args[0])


def replace(args: Arguments) -> str:
    """Replace a text; one between slashes is a regular expression."""
    text, old, new = args
    if len(old) > 1 and old.startswith("/") and old.endswith("/"):
        return regex_replace([text, old[1:-1], new])
    return _replaced(text, old, new)


def _replaced(text: str, old: str, new: str) -> str:
    if len(text) + text.count(old) * len(new) > _MAX_TEXT:
        raise FunctionError("the result is too long")
    return text.replace(old, new)


def strrev(args: Arguments) -> str:
    return "".join(reversed(characters(args[0])))


reverse = strrev


def split(args: Arguments) -> Value:
    from yurt_jobspec.values import ListValue

    separator, text = args
    return ListValue("string", tuple(text.split(separator) if separator else characters(text)))


def strlen(args: Arguments) -> int:
    return len(characters(args[0]))


def substr(args: Arguments) -> str:
    """A part of a text: a negative offset counts from the end, a negative length means up to the end."""
    text = characters(args[0])
    offset, length = _whole(args[1], 1), _whole(args[2], 2)
    if offset < 0:
        offset = max(offset + len(text), 0)
        length = length or -1
    return "".join(text[offset:] if length < 0 else text[offset : offset + length])


def trim(args: Arguments) -> str:
    return str(args[0]).strip(args[1]) if args[1] else str(args[0])


def trimprefix(args: Arguments) -> str:
    return str(args[0]).removeprefix(args[1])


def trimsuffix(args: Arguments) -> str:
    return str(args[0]).removesuffix(args[1])


def trimspace(args: Arguments) -> str:
    return str(args[0]).strip(_SPACE)


def _whole(value: Any, argument: int) -> int:
    if not isinstance(value, int):
        raise FunctionError("a whole number is required", argument)
    return value


def _bounded(text: str) -> str:
    if len(text) > _MAX_TEXT:
        raise FunctionError("the result is too long")
    return text
