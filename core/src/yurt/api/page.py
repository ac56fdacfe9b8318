"""Pages of a sorted list: start at a token, keep what the filter keeps, stop after a page, name the next token.

Rows are sorted by a key, either (create index, id) or (namespace, id). The token is the key of the page's first
row, written as `<first>.<id>`, so that rows inserted or deleted meanwhile move no other row to another page
(invariant A6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from yurt.api.filter import compile_filter
from yurt.sdk.errors import Invalid

R = TypeVar("R")
Key = tuple[Any, str]

STEP = 200
"""Rows that are rendered in one go, a few milliseconds at most."""


class PageOptions(Protocol):
    """What a page is asked for."""

    @property
    def filter(self) -> str: ...

    @property
    def reverse(self) -> bool: ...

    @property
    def per_page(self) -> int: ...

    @property
    def next_token(self) -> str: ...


class Page(NamedTuple):
    """Rows in the shape of the API, and the token of the next page ("" for none)."""

    rows: list[dict[str, Any]]
    next_token: str


def by_index(row: Any) -> Key:
    """Oldest first."""
    return (row.create_index, row.id)


def by_modify_index(row: Any) -> Key:
    """Longest unchanged first."""
    return (row.modify_index, row.id)


def by_name(row: Any) -> Key:
    """By namespace, then id."""
    return (row.namespace, row.id)


class Pager(Generic[R]):
    """A page in the making: `step` renders some rows, so that a caller can do other things between."""

    def __init__(
        self,
        rows: Iterable[R],
        render: Callable[[R], dict[str, Any]],
        *,
        key: Callable[[R], Key],
        options: PageOptions,
        is_reversed: bool | None = None,
    ) -> None:
        reverse = options.reverse if is_reversed is None else is_reversed
        ordered = sorted(rows, key=key, reverse=reverse)
        if options.next_token and ordered:
            start = _parse_token(options.next_token, key(ordered[0]))
            ordered = [row for row in ordered if (key(row) <= start if reverse else key(row) >= start)]
        self._ordered = iter(ordered)
        self._render = render
        self._key = key
        self._keep = compile_filter(options.filter) if options.filter else None
        self._per_page = options.per_page
        self.found: list[dict[str, Any]] = []
        self.next_token = ""

    def step(self, count: int) -> bool:
        """Look at `count` more rows; True when the page is full or the rows are over."""
        for _ in range(count):
            row = next(self._ordered, None)
            if row is None:
                return True
            wire = self._render(row)
            if self._keep is not None and not self._keep(wire):
                continue
            if self._per_page and len(self.found) == self._per_page:
                first, last = self._key(row)
                self.next_token = f"{first}.{last}"
                return True
            self.found.append(wire)
        return False


def make_page(
    rows: Iterable[R],
    render: Callable[[R], dict[str, Any]],
    *,
    key: Callable[[R], Key],
    options: PageOptions,
    is_reversed: bool | None = None,
) -> Page:
    """One page of `rows`, all at once."""
    pager = Pager(rows, render, key=key, options=options, is_reversed=is_reversed)
    while not pager.step(STEP):
        pass
    return Page(pager.found, pager.next_token)


def _parse_token(token: str, like: Key) -> Key:
    first, dot, last = token.partition(".")
    if not isinstance(like[0], int):
        return (first, last)
    if not dot or not (first.isascii() and first.isdigit()) or len(first) > 19:
        raise Invalid(f'Invalid next_token "{token[:64]}"')
    return (int(first), last)
