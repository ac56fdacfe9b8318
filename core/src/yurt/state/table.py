"""A persistent table: rows by key, and secondary indexes that hold keys only.

A table is immutable; editing one gives another that shares all that did not change, so a snapshot is free and stays
true for ever (invariant A8). An index entry is an insertion-ordered-by-nothing set of keys, kept as a map to None;
empty entries are dropped. `index` is the log index of the last write to the table, deletions included.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Final, Generic, TypeVar

import immutables

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

NO_KEYS: Final[immutables.Map[Any, None]] = immutables.Map()

Extract = Callable[[Any], Hashable]
"""Gives the index key of a row; an empty string or None means the row is not in that index."""


class Table(Generic[K, V]):
    """Rows by key with named secondary indexes."""

    __slots__ = ("_by", "_extract", "_rows", "index", "name")

    def __init__(
        self,
        name: str,
        extract: Mapping[str, Extract],
        *,
        index: int = 0,
        rows: immutables.Map[K, V] | None = None,
        by: Mapping[str, immutables.Map[Hashable, immutables.Map[K, None]]] | None = None,
    ) -> None:
        self.name = name
        self.index = index
        self._extract = extract
        self._rows: immutables.Map[K, V] = immutables.Map() if rows is None else rows
        self._by = {column: immutables.Map() for column in extract} if by is None else by

    @classmethod
    def restored(
        cls, name: str, extract: Mapping[str, Extract], *, index: int, rows: Iterable[tuple[K, V]]
    ) -> Table[K, V]:
        """A table with these rows, last written at `index`."""
        editor = cls(name, extract).edit()
        for key, row in rows:
            editor.put(key, row)
        editor.is_changed = True
        return editor.finish(index)

    def get(self, key: K) -> V | None:
        """The row, or None."""
        return self._rows.get(key)

    def __getitem__(self, key: K) -> V:
        return self._rows[key]

    def __contains__(self, key: K) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def present(self, keys: Iterable[K]) -> list[K]:
        """Those of the keys that have a row."""
        return list(filter(self._rows.__contains__, keys))

    def rows(self, keys: Iterable[K]) -> list[V]:
        """The rows of keys that are all there."""
        return list(map(self._rows.__getitem__, keys))

    def keys(self) -> Iterator[K]:
        """All keys, in no particular order."""
        return iter(self._rows.keys())

    def values(self) -> Iterator[V]:
        """All rows, in no particular order."""
        return iter(self._rows.values())

    def items(self) -> Iterator[tuple[K, V]]:
        """All rows with their keys, in no particular order."""
        return iter(self._rows.items())

    def grouped(self, column: str) -> Iterator[tuple[K, V]]:
        """The rows of an index with their keys, those of one index key together; in no particular order otherwise."""
        rows = self._rows
        for keys in self._by[column].values():
            for key in keys:
                yield key, rows[key]

    def keys_where(self, column: str, value: Hashable) -> tuple[K, ...]:
        """Keys of the rows with that index key, sorted so that every replica sees one order."""
        found = self._by[column].get(value)
        return () if found is None else tuple(sorted(found.keys()))  # type: ignore[type-var]

    def where(self, column: str, value: Hashable) -> tuple[V, ...]:
        """Rows with that index key, in key order."""
        return tuple(self._rows[key] for key in self.keys_where(column, value))

    def count_where(self, column: str, value: Hashable) -> int:
        """How many rows have that index key."""
        found = self._by[column].get(value)
        return 0 if found is None else len(found)

    def index_keys(self, row: V) -> Iterator[tuple[str, Hashable]]:
        """(column, index key) of a row, for every index it is in."""
        for column, extract in self._extract.items():
            value = extract(row)
            if value:
                yield column, value

    def edit(self) -> TableEditor[K, V]:
        """Start changing a copy."""
        return TableEditor(self, self._rows, self._by, self._extract)


class TableEditor(Generic[K, V]):
    """Changes to one table, gathered and finished at one log index."""

    __slots__ = ("_by", "_entries", "_extract", "_rows", "_table", "is_changed")

    def __init__(
        self,
        table: Table[K, V],
        rows: immutables.Map[K, V],
        by: Mapping[str, immutables.Map[Hashable, immutables.Map[K, None]]],
        extract: Mapping[str, Extract],
    ) -> None:
        self._table = table
        self._rows = rows.mutate()
        self._by = by
        self._extract = extract
        self._entries: dict[str, dict[Hashable, immutables.Map[K, None]]] = {}
        """Index entries that changed, empty ones too, of the indexes that changed."""
        self.is_changed = False

    def get(self, key: K) -> V | None:
        """The row as changed so far."""
        return self._rows.get(key)

    def keys_where(self, column: str, value: Hashable) -> tuple[K, ...]:
        """Keys of the rows with that index key as changed so far, sorted."""
        return tuple(sorted(self._keys(column, value).keys()))  # type: ignore[type-var]

    def count_where(self, column: str, value: Hashable) -> int:
        """How many rows have that index key as changed so far."""
        return len(self._keys(column, value))

    def present(self, keys: Iterable[K]) -> list[K]:
        """Those of the keys that have a row."""
        return list(filter(self._rows.__contains__, keys))

    def put(self, key: K, row: V) -> V | None:
        """Insert or replace; the row that was there before."""
        before = self._rows.get(key)
        self._rows[key] = row
        self.is_changed = True
        for column, extract in self._extract.items():
            new, old = extract(row), None if before is None else extract(before)
            if new == old:
                continue
            if old:
                self._drop(column, old, key)
            if new:
                self._changed(column)[new] = self._keys(column, new).set(key, None)
        return before

    def put_new(self, rows: Mapping[K, V]) -> None:
        """Insert rows of which none is there yet: index entries are written once for all rows that share them.

        Entries that begin with all of these rows, as those of a new job do, are one and the same.
        """
        known = len(self._rows)
        self._rows.update(rows)
        assert len(self._rows) == known + len(rows), "rows that are there already"
        self.is_changed = True
        every_key = NO_KEYS.update(dict.fromkeys(rows))
        for column, extract in self._extract.items():
            changed = self._changed(column)
            for value, keys in _sharing(rows, extract).items():
                entry = self._keys(column, value)
                changed[value] = entry.update(keys) if entry or len(keys) < len(rows) else every_key

    def delete(self, key: K) -> V | None:
        """Remove; the row that was there, or None."""
        before = self._rows.get(key)
        if before is None:
            return None
        del self._rows[key]
        self.is_changed = True
        for column, extract in self._extract.items():
            old = extract(before)
            if old:
                self._drop(column, old, key)
        return before

    def finish(self, index: int) -> Table[K, V]:
        """The changed table, written at `index`."""
        if not self.is_changed:
            return self._table
        by = self._by
        if self._entries:
            by = {**by, **{column: _with_entries(by[column], changed) for column, changed in self._entries.items()}}
        return Table(self._table.name, self._extract, index=index, rows=self._rows.finish(), by=by)

    def _changed(self, column: str) -> dict[Hashable, immutables.Map[K, None]]:
        """The entries of an index that changed."""
        return self._entries.setdefault(column, {})

    def _keys(self, column: str, value: Hashable) -> immutables.Map[K, None]:
        """An index entry as changed so far."""
        changed = self._entries.get(column)
        found = None if changed is None else changed.get(value)
        return self._by[column].get(value, NO_KEYS) if found is None else found

    def _drop(self, column: str, value: Hashable, key: K) -> None:
        self._changed(column)[value] = self._keys(column, value).delete(key)


def _with_entries(
    by: immutables.Map[Hashable, immutables.Map[K, None]], changed: Mapping[Hashable, immutables.Map[K, None]]
) -> immutables.Map[Hashable, immutables.Map[K, None]]:
    """An index with its changed entries; empty ones are dropped."""
    empty = [value for value, keys in changed.items() if not keys]
    if changed:
        by = by.update(changed)
    for value in empty:
        by = by.delete(value)
    return by


def _sharing(rows: Mapping[K, V], extract: Extract) -> dict[Hashable, dict[K, None]]:
    """The keys of the rows by their index key."""
    values = list(map(extract, rows.values()))
    if values and values.count(values[0]) == len(values):
        return {values[0]: dict.fromkeys(rows)} if values[0] else {}
    shared: dict[Hashable, dict[K, None]] = {}
    for key, value in zip(rows, values, strict=True):
        if not value:
            continue
        keys = shared.get(value)
        if keys is None:
            keys = shared[value] = {}
        keys[key] = None
    return shared
