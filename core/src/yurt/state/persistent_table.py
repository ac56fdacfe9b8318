"""A persistent table: rows by key, and secondary indexes that hold keys only.

A table is immutable; editing one gives another that shares all that did not change, so a snapshot is free and stays
true for ever (invariant A8). An index entry is a set of keys (`state.keys`); empty ones are dropped. `index` is the log
index of the last write to the table, deletions included.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import immutables

from yurt.state.keys import NO_KEYS, Keys, with_key, with_keys, without_key

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Extract = Callable[[V], Hashable]
"""A function from a row to its index key; "" or None means that the row is not in the index."""
Indexes = Mapping[str, Extract[V]]
"""The secondary indexes of a table by name."""

CHECKED_KEYS: Final = 8
"""The number of keys of a changed index entry that `check` examines: an entry may have a hundred thousand."""


class Table(Generic[K, V]):
    """Rows by key with named secondary indexes."""

    __slots__ = ("__weakref__", "_by", "_extract", "_key_set", "_rows", "get", "index", "name")

    get: Callable[[K], V | None]
    """The row of a key, or None; a reference to the map's own method, because it is called most often."""

    def __init__(
        self,
        name: str,
        extract: Indexes[V],
        *,
        index: int = 0,
        rows: immutables.Map[K, V] | None = None,
        by: Mapping[str, immutables.Map[Hashable, Keys[K]]] | None = None,
    ) -> None:
        self.name = name
        self.index = index
        self._extract = extract
        self._rows: immutables.Map[K, V] = immutables.Map() if rows is None else rows
        self.get = self._rows.get
        self._by = {column: immutables.Map() for column in extract} if by is None else by
        self._key_set: frozenset[K] | None = None

    @classmethod
    def restored(cls, name: str, extract: Indexes[V], *, index: int, rows: Iterable[tuple[K, V]]) -> Table[K, V]:
        """A table with these rows, last written at `index`."""
        editor = cls(name, extract).edit()
        for key, row in rows:
            editor.put(key, row)
        editor.is_changed = True
        return editor.finish(index)

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
        """The rows of existing keys."""
        return list(map(self._rows.__getitem__, keys))

    def keys(self) -> Iterator[K]:
        """All keys, unordered."""
        return iter(self._rows.keys())

    def key_set(self, most: int) -> frozenset[K] | None:
        """All keys, the same object each time; None if there are more than `most`, one constant for each table."""
        keys = self._key_set
        if keys is None and len(self._rows) <= most:
            keys = self._key_set = frozenset(self._rows.keys())
        return keys

    def values(self) -> Iterator[V]:
        """All rows, unordered."""
        return iter(self._rows.values())

    def items(self) -> Iterator[tuple[K, V]]:
        """All rows with their keys, unordered."""
        return iter(self._rows.items())

    def grouped(self, column: str) -> Iterator[tuple[K, V]]:
        """The rows of an index with their keys, grouped by index key; otherwise unordered."""
        rows = self._rows
        for keys in self._by[column].values():
            for key in keys:
                yield key, rows[key]

    def keys_where(self, column: str, value: Hashable) -> tuple[K, ...]:
        """The keys of the rows with this index key, sorted, since every replica must see the same order."""
        keys = self._by[column].get(value)
        return () if keys is None else tuple(sorted(keys))  # type: ignore[type-var]

    def where(self, column: str, value: Hashable) -> tuple[V, ...]:
        """The rows with this index key, in key order."""
        return tuple(self._rows[key] for key in self.keys_where(column, value))

    def each_where(self, column: str, value: Hashable) -> Iterator[V]:
        """The rows with this index key, unordered and lazily read."""
        return map(self._rows.__getitem__, iter(self._by[column].get(value, NO_KEYS)))

    def count_where(self, column: str, value: Hashable) -> int:
        """The number of rows with this index key."""
        keys = self._by[column].get(value)
        return 0 if keys is None else len(keys)

    def index_values(self, column: str) -> Iterator[Any]:
        """The index keys of all rows, each once, unordered."""
        return iter(self._by[column].keys())

    def has_key(self, column: str, value: Hashable, key: K) -> bool:
        """Whether the row of a key has that index key."""
        return key in self._by[column].get(value, NO_KEYS)

    def index_keys(self, row: V) -> Iterator[tuple[str, Hashable]]:
        """(column, index key) of a row, for every index that contains it."""
        for column, extract in self._extract.items():
            value = extract(row)
            if value:
                yield column, value

    def edit(self) -> TableEditor[K, V]:
        """Start changing a copy."""
        return TableEditor(self)


class TableEditor(Generic[K, V]):
    """Changes to one table, collected and finished at one log index."""

    __slots__ = ("_by", "_entries", "_extract", "_rows", "_table", "is_changed")

    def __init__(self, table: Table[K, V]) -> None:
        self._table = table
        self._rows = table._rows.mutate()
        self._by = table._by
        self._extract = table._extract
        self._entries: dict[str, dict[Hashable, Keys[K]]] = {}
        """The changed entries of each changed index, empty ones included."""
        self.is_changed = False

    def get(self, key: K) -> V | None:
        """The row including the changes so far."""
        return self._rows.get(key)

    def __getitem__(self, key: K) -> V:
        return self._rows[key]

    def rows(self, keys: Iterable[K]) -> list[V]:
        """The rows of existing keys, including the changes so far."""
        return list(map(self._rows.__getitem__, keys))

    def keys_where(self, column: str, value: Hashable) -> tuple[K, ...]:
        """The keys of the rows with this index key, including the changes so far, sorted."""
        return tuple(sorted(self._keys(column, value)))  # type: ignore[type-var]

    def count_where(self, column: str, value: Hashable) -> int:
        """The number of rows with this index key, including the changes so far."""
        return len(self._keys(column, value))

    def present(self, keys: Iterable[K]) -> list[K]:
        """Those of the keys that have a row, including the changes so far."""
        return list(filter(self._rows.__contains__, keys))

    def put(self, key: K, row: V) -> V | None:
        """Insert or replace; returns the previous row."""
        rows = self._rows
        before = rows.get(key)
        rows[key] = row
        self.is_changed = True
        for column, extract in self._extract.items():
            new, old = extract(row), None if before is None else extract(before)
            # Most writes change a row's status and keep its job and node: then the index is not touched.
            if new == old:
                continue
            if old:
                self._drop(column, old, key)
            if new:
                # As `_drop` does it, without the calls: most of what commands write are rows that enter an index.
                changed = self._entries.setdefault(column, {})
                entry = changed.get(new)
                changed[new] = with_key(self._by[column].get(new, NO_KEYS) if entry is None else entry, key)
        return before

    def put_alike(self, key: K, row: V) -> V | None:
        """Replace a row by one with the same index keys; returns the previous one. Without one it is as `put`."""
        before = self._rows.get(key)
        if before is None:
            return self.put(key, row)
        self._rows[key] = row
        self.is_changed = True
        return before

    def put_new(self, rows: Mapping[K, V]) -> None:
        """Insert new rows; each index entry is written once for all rows that share it.

        Entries that are one and the same and get all of these rows, as those of a new job do, stay one and the same.
        """
        count_before = len(self._rows)
        self._rows.update(rows)
        assert len(self._rows) == count_before + len(rows), "keys that have a row already"
        self.is_changed = True
        if len(rows) == 1:
            for key, row in rows.items():
                self._index_new(key, row)
            return
        whole: dict[int, tuple[Keys[K], Keys[K]]] = {}
        for column, extract in self._extract.items():
            changed, entry_of = self._changed(column), self._keys
            for value, keys in _sharing(rows, extract).items():
                entry = entry_of(column, value)
                assert value, (column, "a row without an index key is in no entry")
                if len(keys) < len(rows):
                    changed[value] = with_keys(entry, keys)
                    continue
                if id(entry) not in whole:
                    whole[id(entry)] = (entry, with_keys(entry, keys))
                changed[value] = whole[id(entry)][1]

    def _index_new(self, key: K, row: V) -> None:
        """As `put_new` indexes one row, which is the usual number of a plan."""
        whole: dict[int, tuple[Keys[K], Keys[K]]] = {id(NO_KEYS): (NO_KEYS, (key,))}
        entries, by = self._entries, self._by
        for column, extract in self._extract.items():
            value = extract(row)
            if value:
                changed = entries.get(column)
                entry = None if changed is None else changed.get(value)
                if changed is None:
                    changed = entries[column] = {}
                if entry is None:
                    entry = by[column].get(value, NO_KEYS)
                known = whole.get(id(entry))
                if known is None:
                    known = whole[id(entry)] = (entry, with_key(entry, key))
                changed[value] = known[1]

    def delete(self, key: K) -> V | None:
        """Delete; returns the row, or None."""
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
            by = {**by}
            for column, changed in self._entries.items():
                by[column] = _with_entries(by[column], changed)
        return Table(self._table.name, self._extract, index=index, rows=self._rows.finish(), by=by)

    def check(self, after: Table[K, V]) -> None:
        """Assert that the changed index entries agree with the rows, for some keys of each entry."""
        for column, changed in self._entries.items():
            extract = self._extract[column]
            for value, keys in changed.items():
                assert after.count_where(column, value) == len(keys), (after.name, column, value)
                assert not isinstance(keys, tuple) or len(set(keys)) == len(keys), (after.name, column, value)
                for key in islice(keys, CHECKED_KEYS):
                    assert extract(after[key]) == value, (after.name, column, key)

    def _changed(self, column: str) -> dict[Hashable, Keys[K]]:
        """The changed entries of an index."""
        return self._entries.setdefault(column, {})

    def _keys(self, column: str, value: Hashable) -> Keys[K]:
        """An index entry including the changes so far."""
        changed = self._entries.get(column)
        keys = None if changed is None else changed.get(value)
        return self._by[column].get(value, NO_KEYS) if keys is None else keys

    def _drop(self, column: str, value: Hashable, key: K) -> None:
        self._changed(column)[value] = without_key(self._keys(column, value), key)


def _with_entries(
    by: immutables.Map[Hashable, Keys[K]], changed: Mapping[Hashable, Keys[K]]
) -> immutables.Map[Hashable, Keys[K]]:
    """An index with changed entries; empty ones are removed."""
    if len(changed) == 1:
        for value, keys in changed.items():
            if keys:
                return by.set(value, keys)
    by = by.update(changed) if changed else by
    for value in [value for value, keys in changed.items() if not keys]:
        by = by.delete(value)
    return by


def _sharing(rows: Mapping[K, V], extract: Extract[V]) -> Mapping[Hashable, Sequence[K]]:
    """The keys of new rows by index key."""
    values = list(map(extract, rows.values()))
    if values and (len(values) == 1 or values.count(values[0]) == len(values)):
        return {values[0]: tuple(rows)} if values[0] else {}
    shared: dict[Hashable, list[K]] = {}
    for key, value in zip(rows, values, strict=True):
        if value:
            shared.setdefault(value, []).append(key)
    return shared
