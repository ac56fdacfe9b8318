"""Runs a query: filters, counts and sorts rows in slices, so that a long list does not block the event loop.

Only as many rows are kept as a page can show: the order is restored among them whenever twice as many have gathered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from yurt.filters import compile_filter
from yurt.readmodels.kinds import Of, RowKind
from yurt.readmodels.query import BAD_TOKEN, Query, token_of
from yurt.sdk.errors import Invalid

R = TypeVar("R")

FACET_VALUES_MAX: Final = 200
KEPT_MIN: Final = 1_000
"""Rows that are gathered before the surplus is dropped for the first time."""


class Facet(NamedTuple):
    """Values of a field with their numbers of rows, the most frequent first."""

    values: tuple[tuple[Any, int], ...]
    omitted: int


class SelectedRows(NamedTuple):
    """The answer to a query."""

    total: int
    columns: dict[str, list[Any]]
    facets: dict[str, Facet]
    next_token: str
    """"" on the last page."""


class LazyRow(Mapping[str, Any]):
    """A row as the filter language reads it: a field is computed when the expression names it."""

    __slots__ = ("_fields", "_row")

    def __init__(self, fields: Mapping[str, Of], row: Any) -> None:
        self._fields = fields
        self._row = row

    def __getitem__(self, name: str) -> Any:
        return self._fields[name](self._row)

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


class Matcher(Generic[R]):
    """Tests whether rows match a query."""

    __slots__ = ("_fields", "_keep", "_searched", "_where", "_words")

    def __init__(self, kind: RowKind[R], query: Query) -> None:
        """Raises Invalid for a filter that cannot be read."""
        self._words = query.words
        self._searched = kind.searched
        self._fields: Mapping[str, Of] = {**kind.fields, **kind.maps}
        self._keep = compile_filter(query.filter, fields=self._fields.keys()) if query.filter else None
        self._where = tuple((name, kind.field(name), values) for name, values in query.where.items())

    def __call__(self, row: R) -> bool:
        """Whether the row matches; raises Invalid where the filter compares what cannot be compared."""
        return self.is_candidate(row) and not any(True for _ in self.misses(row))

    def is_candidate(self, row: R) -> bool:
        """Whether the row matches but for `where`."""
        if self._words:
            text = self._searched(row)
            if not all(word in text for word in self._words):
                return False
        return self._keep is None or self._keep(LazyRow(self._fields, row))

    def misses(self, row: R) -> Iterator[str]:
        """The fields of `where` that the row has other values of."""
        for name, of, values in self._where:
            found = of(row)
            texts = found if isinstance(found, tuple) else (found,)
            if not any(text_of(each) in values for each in texts):
                yield name


def text_of(value: Any) -> str:
    """A value as `where` writes it."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case _:
            return str(value)


class Selection(Generic[R]):
    """The page of a query in the making."""

    def __init__(self, kind: RowKind[R], query: Query) -> None:
        self._kind = kind
        self._query = query
        self._matcher = Matcher(kind, query)
        self._sort = tuple((kind.field(each.field), each.is_reversed) for each in query.sort)
        self._ordered_by = tuple((_ordered(of), is_reversed) for of, is_reversed in self._sort)
        self._facets = tuple((name, kind.field(name), Counter[Any]()) for name in query.facets)
        self._kept: list[R] = []
        self._kept_max = max(KEPT_MIN, 2 * query.per_page)
        self._is_cut = False
        self._is_after = None if query.after is None else self._after(query.after)
        self._total = 0

    def add(self, rows: Iterable[R]) -> None:
        """Look at rows; raises Invalid where the filter or the token does not fit them."""
        matcher, facets = self._matcher, self._facets
        for row in rows:
            if not matcher.is_candidate(row):
                continue
            missed = tuple(matcher.misses(row))
            if len(missed) > 1:
                continue
            for name, of, counter in facets:
                if not missed or missed[0] == name:
                    _count(counter, of(row))
            if missed:
                continue
            self._total += 1
            if self._is_after is None or self._is_after(row):
                self._kept.append(row)
        if len(self._kept) > self._kept_max:
            self._cut()

    def page(self) -> SelectedRows:
        """The page, after all rows were examined."""
        self._cut()
        rows = self._kept[: self._query.per_page]
        has_more = self._is_cut or len(self._kept) > len(rows)
        facets = {name: _facet(counter) for name, _, counter in self._facets}
        token = token_of(self._values(rows[-1])) if has_more and rows else ""
        return SelectedRows(self._total, columns_of(self._kind, self._query.fields, rows), facets, token)

    def _cut(self) -> None:
        """Sort the gathered rows, and drop those beyond the page."""
        self._kept.sort(key=self._kind.key_of)
        for ordered, is_reversed in reversed(self._ordered_by):
            self._kept.sort(key=ordered, reverse=is_reversed)
        if len(self._kept) > self._query.per_page:
            del self._kept[self._query.per_page :]
            self._is_cut = True

    def _values(self, row: R) -> tuple[Any, ...]:
        return (*(of(row) for of, _ in self._sort), *self._kind.key_of(row))

    def _after(self, values: tuple[Any, ...]) -> Callable[[R], bool]:
        """Whether a row sorts after the one with these values."""
        sort, key = self._ordered_by, values[len(self._sort) :]
        bounds = tuple(order_of(each) for each in values[: len(sort)])

        def is_after(row: R) -> bool:
            try:
                for (ordered, is_reversed), bound in zip(sort, bounds, strict=True):
                    found = ordered(row)
                    if found != bound:
                        return bool(found < bound) is is_reversed
                return self._kind.key_of(row) > key
            except TypeError:
                raise Invalid(BAD_TOKEN) from None

        return is_after


def _ordered(of: Of) -> Of:
    return lambda row: order_of(of(row))


def order_of(value: Any) -> Any:
    """The sort key of a value: None sorts before all flags."""
    return -1 if value is None else value


def _count(counter: Counter[Any], value: Any) -> None:
    for each in value if isinstance(value, tuple) else (value,):
        counter[each] += 1


def _facet(counter: Counter[Any]) -> Facet:
    ordered = sorted(counter.items(), key=lambda item: (-item[1], text_of(item[0])))
    return Facet(tuple(ordered[:FACET_VALUES_MAX]), max(0, len(ordered) - FACET_VALUES_MAX))


def columns_of(kind: RowKind[R], fields: Iterable[str], rows: Iterable[R]) -> dict[str, list[Any]]:
    """The rows as columns."""
    listed = list(rows)
    return {name: list(map(kind.field(name), listed)) for name in fields}
