"""Runs a query: filters, counts and sorts rows in slices, so that a long list does not block the event loop.

A slice is worked through field by field rather than row by row: its rows shrink with each word of a search, and a
field's values are read and counted in one go. That costs a third of a loop over rows with a test for each part of the
query, which is what a reader waits for who types into a search of 10,000 jobs.

Only as many rows are kept as a page can show: the order is restored among them whenever several times as many have
gathered, and from then on a row that sorts behind the page by its first field is dropped as soon as it comes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, compress
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


VERDICTS_MAX: Final = 10_000


class Verdicts(dict[Any, bool]):
    """Whether a value of a field is among the texts of `where`, found once for each value."""

    def __init__(self, of: Of, texts: frozenset[str]) -> None:
        super().__init__()
        self.of = of
        self._texts = texts

    def __missing__(self, value: Any) -> bool:
        if len(self) >= VERDICTS_MAX:
            self.clear()  # a view that stays open sees ever new values of a field that changes, such as an index
        texts = value if isinstance(value, tuple) else (value,)
        found = self[value] = any(text_of(each) in self._texts for each in texts)
        return found

    def of_rows(self, rows: Iterable[Any]) -> list[bool]:
        """The verdict on each row."""
        return list(map(self.__getitem__, map(self.of, rows)))


class Matcher(Generic[R]):
    """Tests whether rows match a query."""

    __slots__ = ("_fields", "_keep", "_searched", "_where", "_words")

    def __init__(self, kind: RowKind[R], query: Query) -> None:
        """Raises Invalid for a filter that cannot be read."""
        self._words = query.words
        self._searched = kind.searched
        self._fields: Mapping[str, Of] = {**kind.fields, **kind.maps}
        self._keep = compile_filter(query.filter, fields=self._fields.keys()) if query.filter else None
        self._where = {name: Verdicts(kind.field(name), values) for name, values in query.where.items()}

    def __call__(self, row: R) -> bool:
        """Whether the row matches; raises Invalid where the filter compares what cannot be compared."""
        return bool(self.candidates((row,))) and all(where[where.of(row)] for where in self._where.values())

    def candidates(self, rows: Iterable[R]) -> list[R]:
        """The rows that match all parts of the query but `where`."""
        found, searched = list(rows), self._searched
        for word in self._words:
            found = [row for row in found if word in searched(row)]
        if self._keep is None:
            return found
        keep, fields = self._keep, self._fields
        return [row for row in found if keep(LazyRow(fields, row))]

    def selected(self, candidates: Sequence[R]) -> tuple[Sequence[R], dict[str, list[R]]]:
        """The candidates that match `where`, and by each of its fields those that match but for this field."""
        if not self._where:
            return candidates, {}
        verdicts = {name: where.of_rows(candidates) for name, where in self._where.items()}
        if len(verdicts) == 1:
            ((name, only),) = verdicts.items()
            return list(compress(candidates, only)), {name: list(candidates)}
        but_for = {
            name: _where_all(candidates, [found for each, found in verdicts.items() if each != name])
            for name in verdicts
        }
        return _where_all(candidates, list(verdicts.values())), but_for


def _where_all(rows: Sequence[R], verdicts: Sequence[list[bool]]) -> list[R]:
    """The rows on which all verdicts are true."""
    return list(compress(rows, map(all, zip(*verdicts, strict=True))))


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
    """A query in progress: rows are added, then the page is taken."""

    def __init__(self, kind: RowKind[R], query: Query) -> None:
        self._kind = kind
        self._query = query
        self._matcher = Matcher(kind, query)
        self._sort = tuple((kind.field(each.field), each.is_reversed) for each in query.sort)
        self._key = tuple(kind.fields[name] for name in kind.key)
        self._first = self._sort[0] if self._sort else (self._key[0], False)
        """The field that decides the order first, and whether it is reversed."""
        self._facets = tuple((name, kind.field(name), Counter[Any]()) for name in query.facets)
        self._kept: list[R] = []
        self._kept_max = max(KEPT_MIN, 2 * query.per_page)
        self._is_cut = False
        self._is_after = None if query.after is None else self._after(query.after)
        self._total = 0

    def add(self, rows: Iterable[R]) -> None:
        """Examine rows; raises Invalid where the filter or the token does not fit them."""
        candidates = self._matcher.candidates(rows)
        selected, but_for = self._matcher.selected(candidates)
        for name, of, counter in self._facets:
            _count(counter, of, but_for.get(name, selected))
        self._total += len(selected)
        if self._is_after is not None:
            selected = list(filter(self._is_after, selected))
        self._kept += self._not_behind(selected) if self._is_cut else selected
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
        kept = self._kept
        for of in reversed(self._key):
            kept.sort(key=of)
        for of, is_reversed in reversed(self._sort):
            kept.sort(key=_ordered(of) if None in map(of, kept) else of, reverse=is_reversed)
        if len(kept) > self._query.per_page:
            del kept[self._query.per_page :]
            self._is_cut = True

    def _not_behind(self, rows: Sequence[R]) -> list[R]:
        """The rows that the first field of the order does not put behind a whole page.

        After a cut, the kept rows begin with a page in order, so its last row bounds what can still enter it.
        """
        of, is_reversed = self._first
        bound = order_of(of(self._kept[self._query.per_page - 1]))
        values = list(map(of, rows))
        if None in values:
            values = [order_of(value) for value in values]
        if is_reversed:
            return [row for row, value in zip(rows, values, strict=True) if value >= bound]
        return [row for row, value in zip(rows, values, strict=True) if value <= bound]

    def _values(self, row: R) -> tuple[Any, ...]:
        return (*(of(row) for of, _ in self._sort), *self._kind.key_of(row))

    def _after(self, values: tuple[Any, ...]) -> Callable[[R], bool]:
        """Whether a row sorts after the one with these values."""
        sort, key = tuple((_ordered(of), is_reversed) for of, is_reversed in self._sort), values[len(self._sort) :]
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


def _count(counter: Counter[Any], of: Of, rows: Sequence[Any]) -> None:
    """Count the values of a field, each entry of a tuple for itself; a field has tuples in all rows or in none."""
    is_tuple = bool(rows) and isinstance(of(rows[0]), tuple)
    values = map(of, rows)
    counter.update(chain.from_iterable(values) if is_tuple else values)


def _facet(counter: Counter[Any]) -> Facet:
    ordered = sorted(counter.items(), key=lambda item: (-item[1], text_of(item[0])))
    return Facet(tuple(ordered[:FACET_VALUES_MAX]), max(0, len(ordered) - FACET_VALUES_MAX))


def columns_of(kind: RowKind[R], fields: Iterable[str], rows: Iterable[R]) -> dict[str, list[Any]]:
    """The rows as columns."""
    listed = list(rows)
    return {name: list(map(kind.field(name), listed)) for name in fields}
