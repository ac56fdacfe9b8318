"""Evaluates the selectors and operators of a filter on a row.

A value is compared as the type of the field that it meets. A selector's first name must be a field of the row;
a missing key further down matches nothing. Regular expressions run on an engine of linear time, and what they and
loops may do to one row and to all rows is bounded, so that no expression holds up a server.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from yurt.regexps import BadPattern, Regexp, SearchBudget
from yurt.sdk.errors import Invalid

MATCHED_TEXT_MAX = 4096
Row = Mapping[str, Any]
Predicate = Callable[[Row], bool]
MISSING = object()


class Each(tuple[Any, ...]):
    """The values that a selector finds in the objects of a list; a comparison holds where it does for one of them."""

    __slots__ = ()


def find(row: Row, steps: tuple[str, ...]) -> Any:
    """The value that a selector leads to, or MISSING; raises Invalid when its first step is not a field of the row."""
    if steps[0] not in row:
        where = "/".join(steps)
        raise Invalid(
            f"error finding value in datum: /{where} at part 0: couldn't find key: "
            f'struct field with name "{steps[0][:64]}"'
        )
    value: Any = row
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(step, MISSING)
        elif isinstance(value, list | tuple) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, list | tuple):
            value = Each(_within(value, step))
        else:
            return MISSING
    return value


def _within(items: list[Any] | tuple[Any, ...], step: str) -> Iterator[Any]:
    for item in items:
        if isinstance(item, Mapping) and step in item:
            yield item[step]
        elif isinstance(items, Each) and isinstance(item, list | tuple):
            yield from _within(item, step)


def is_nil(value: Any) -> bool:
    """Whether it is missing or null."""
    return value is MISSING or value is None or (isinstance(value, Each) and all(map(is_nil, value)))


def is_empty(value: Any) -> bool:
    """Whether it is missing, null, or an empty text, list or map."""
    if isinstance(value, Each):
        return all(map(is_empty, value))
    return value is MISSING or value is None or (isinstance(value, str | list | tuple | Mapping) and not value)


def equals(found: Any, value: str) -> bool:
    """Whether a field has a value, which is read as the type of the field."""
    match found:
        case Each():
            return any(equals(each, value) for each in found)
        case bool():
            return value in ("true", "True", "TRUE", "1", "t", "T") if found else value in _FALSE_TEXTS
        case int() | float():
            return _as_number(value) == found
        case str():
            return found == value
        case _:
            return False


_FALSE_TEXTS = ("false", "False", "FALSE", "0", "f", "F")


def _as_number(value: str) -> float:
    try:
        return int(value) if value.lstrip("-").isdigit() and len(value) < 32 else float(value)
    except ValueError:
        raise Invalid(f'error evaluating filter: "{value[:64]}" is not a number') from None


def contains(steps: tuple[str, ...], value: str, budget: SearchBudget | None) -> Predicate:
    """Whether a list has an item, a map a key or a text a part; with a budget, long lists take of it."""

    def holds(row: Row) -> bool:
        found = find(row, steps)
        if isinstance(found, str | Mapping):
            return value in found
        if isinstance(found, Each):
            return any(_has(each, value) for each in found)
        if budget is not None and isinstance(found, list | tuple):
            budget.spend(len(found))
        return isinstance(found, list | tuple) and any(equals(item, value) for item in found)

    return holds


def _has(found: Any, value: str) -> bool:
    """Whether a text or a map holds the value, a list has it, or another value is it."""
    if isinstance(found, str | Mapping):
        return value in found
    return any(equals(each, value) for each in found) if isinstance(found, list | tuple) else equals(found, value)


def matches(steps: tuple[str, ...], pattern: str, budget: SearchBudget) -> Predicate:
    """Whether a pattern matches a text; raises Invalid for a pattern that cannot be used."""
    try:
        regexp = Regexp(pattern, budget=budget)
    except BadPattern as error:
        raise Invalid(f"failed to compile regular expression {pattern[:64]!r}: {error}") from None

    def holds(row: Row) -> bool:
        found = find(row, steps)
        if isinstance(found, Each):
            return any(isinstance(each, str) and regexp.search(each[:MATCHED_TEXT_MAX]) for each in found)
        return isinstance(found, str) and regexp.search(found[:MATCHED_TEXT_MAX])

    return holds


class Loop:
    """Whether a condition holds for any, or for all, items of a list or a map. A missing collection never holds."""

    __slots__ = ("_budget", "_cost", "_inner", "_is_all", "_names", "_steps")

    def __init__(
        self, steps: tuple[str, ...], names: tuple[str, ...], inner: Predicate, *,
        is_all: bool, cost: int, budget: SearchBudget,
    ) -> None:  # fmt: skip
        self._steps, self._names, self._inner = steps, names, inner
        self._is_all, self._cost, self._budget = is_all, cost, budget

    def __call__(self, row: Row) -> bool:
        """Ask it about a row."""
        found = find(row, self._steps)
        if found is MISSING or found is None:
            return False
        holds = (self._holds(ChainMap(names, cast("dict[str, Any]", row))) for names in self._bound(found))
        return all(holds) if self._is_all else any(holds)

    def _holds(self, row: Row) -> bool:
        # Loops inside loops multiply: each turn is paid for.
        self._budget.spend(self._cost)
        return self._inner(row)

    def _bound(self, found: Any) -> Iterable[dict[str, Any]]:
        """What the names stand for in each turn."""
        pairs: Iterable[tuple[Any, Any]]
        match found:
            case Mapping():
                pairs = found.items()
            case list() | tuple():
                pairs = enumerate(found)
            case _:
                raise Invalid(f"error evaluating filter: {'/'.join(self._steps)} is not a list or a map")
        if len(self._names) == 2:
            first, second = self._names
            return ({first: key, second: value} for key, value in pairs)
        (name,) = self._names
        return ({name: key if isinstance(found, Mapping) else value} for key, value in pairs)
