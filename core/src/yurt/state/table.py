"""A persistent table: rows by key, and secondary indexes that hold keys only.

A table is immutable; editing one gives another that shares all that did not change, so a snapshot is free and stays
true for ever (invariant A8). An index entry is an insertion-ordered-by-nothing set of keys, kept as a map to None;
empty entries are dropped. `index` is the log index of the last write to the table, deletions included.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import immutables

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

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

    __slots__ = ("_buckets", "_by", "_extract", "_rows", "_table", "is_changed")

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
        self._buckets: dict[tuple[str, Hashable], Any] = {}
        self.is_changed = False

    def get(self, key: K) -> V | None:
        """The row as changed so far."""
        return self._rows.get(key)

    def keys_where(self, column: str, value: Hashable) -> tuple[K, ...]:
        """Keys of the rows with that index key as changed so far, sorted."""
        found = self._entries(column, value)
        return () if found is None else tuple(sorted(found.keys()))

    def count_where(self, column: str, value: Hashable) -> int:
        """How many rows have that index key as changed so far."""
        bucket = self._buckets.get((column, value))
        found = self._by[column].get(value) if bucket is None else bucket
        return 0 if found is None else len(found)

    def present(self, keys: Iterable[K]) -> list[K]:
        """Those of the keys that have a row."""
        return list(filter(self._rows.__contains__, keys))

    def put(self, key: K, row: V) -> V | None:
        """Insert or replace; the row that was there before."""
        before = self._rows.get(key)
        self._rows[key] = row
        self.is_changed = True
        if before is None:
            for column, extract in self._extract.items():
                new = extract(row)
                if new:
                    self._bucket(column, new)[key] = None
            return None
        for column, extract in self._extract.items():
            new, old = extract(row), extract(before)
            if new == old:
                continue
            if old:
                self._bucket(column, old).pop(key, None)
            if new:
                self._bucket(column, new)[key] = None
        return before

    def put_new(self, rows: Mapping[K, V]) -> None:
        """Insert rows of which none is there yet: index entries are written once for all rows that share them."""
        known = len(self._rows)
        self._rows.update(rows)
        assert len(self._rows) == known + len(rows), "rows that are there already"
        self.is_changed = True
        for column, extract in self._extract.items():
            for value, keys in _sharing(rows, extract).items():
                self._bucket(column, value).update(keys)

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
                self._bucket(column, old).pop(key, None)
        return before

    def finish(self, index: int) -> Table[K, V]:
        """The changed table, written at `index`."""
        if not self.is_changed:
            return self._table
        changed: dict[str, Any] = {}
        for (column, value), bucket in self._buckets.items():
            by = changed.get(column)
            if by is None:
                by = changed[column] = self._by[column].mutate()
            entries = bucket.finish()
            if len(entries):
                by[value] = entries
            else:
                by.pop(value, None)
        return Table(
            self._table.name,
            self._extract,
            index=index,
            rows=self._rows.finish(),
            by={**self._by, **{column: by.finish() for column, by in changed.items()}} if changed else self._by,
        )

    def _entries(self, column: str, value: Hashable) -> Any:
        bucket = self._buckets.get((column, value))
        if bucket is None:
            return self._by[column].get(value)
        entries = bucket.finish()
        self._buckets[(column, value)] = entries.mutate()
        return entries

    def _bucket(self, column: str, value: Hashable) -> Any:
        bucket = self._buckets.get((column, value))
        if bucket is None:
            entries = self._by[column].get(value)
            bucket = self._buckets[(column, value)] = (immutables.Map() if entries is None else entries).mutate()
        return bucket


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
