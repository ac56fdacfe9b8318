"""Pages of a sorted list: start at a token, keep what the filter keeps, stop after a page, name the next token.

Rows are sorted by a key, either (create index, id) or (namespace, id). The token is the key of the page's first row, written as
`<first>.<id>`, so that rows inserted or deleted meanwhile move no other row to another page (invariant A6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from yurt.api.filter import compile_filter
from yurt.sdk.errors import Invalid

R = TypeVar("R")
Key = tuple[Any, str]


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


def make_page(
    rows: Iterable[R],
    render: Callable[[R], dict[str, Any]],
    *,
    key: Callable[[R], Key],
    options: Any,
    is_reversed: bool | None = None,
) -> Page:
    """One page of `rows`; `options` has filter, reverse, per_page and next_token."""
    reverse = options.reverse if is_reversed is None else is_reversed
    keep = compile_filter(options.filter) if options.filter else None
    ordered = sorted(rows, key=key, reverse=reverse)
    if options.next_token and ordered:
        start = _parse_token(options.next_token, key(ordered[0]))
        ordered = [row for row in ordered if (key(row) <= start if reverse else key(row) >= start)]
    found: list[dict[str, Any]] = []
    for row in ordered:
        wire = render(row)
        if keep is not None and not keep(wire):
            continue
        if options.per_page and len(found) == options.per_page:
            first, last = key(row)
            return Page(found, f"{first}.{last}")
        found.append(wire)
    return Page(found, "")


def _parse_token(token: str, like: Key) -> Key:
    first, dot, last = token.partition(".")
    if not isinstance(like[0], int):
        return (first, last)
    if not dot or not (first.isascii() and first.isdigit()) or len(first) > 19:
        raise Invalid(f'Invalid next_token "{token[:64]}"')
    return (int(first), last)
