"""Watches: callbacks for changes of a table, a row, or an index entry.

A watch key is `(table,)`, `(table, key)` or `(table, column, index key)`. Waking calls each callback once per commit
and forgets nothing: a caller that wants one wake-up cancels its watch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

from yurt.state.store import Change
from yurt.state.tables import TABLES

WatchKey = tuple[Hashable, ...]
Wake = Callable[[], None]
Wakes = dict[int, Wake]


class Watches:
    """Callbacks by watch key, kept by table, so that changes of unwatched tables cost nothing."""

    def __init__(self) -> None:
        self._tables: dict[Hashable, _WatchSet] = {}
        self._next = 0

    def add(self, keys: Iterable[WatchKey], wake: Wake) -> Callable[[], None]:
        """Register `wake` to be called when one of the keys changes; returns a function that cancels the watch."""
        self._next += 1
        number, watched = self._next, tuple(keys)
        for key in watched:
            assert 1 <= len(key) <= 3 and key[0] in TABLES, (key, "a watch names a table")
            assert len(key) < 3 or key[1] in TABLES[str(key[0])].indexes, (key, "it would never wake: no such index")
            self._tables.setdefault(key[0], _WatchSet()).place(key).setdefault(key[-1], {})[number] = wake

        def cancel() -> None:
            for key in watched:
                place = self._tables[key[0]].place(key)
                entries = place.get(key[-1])
                if entries is not None:
                    entries.pop(number, None)
                    if not entries:
                        del place[key[-1]]

        return cancel

    def wake(self, changes: Iterable[Change]) -> None:
        """Call each watcher of a change once."""
        due: dict[int, Wake] = {}
        for change in changes:
            watched = self._tables.get(change.table)
            if watched is not None:
                watched.gather(change, due)
        for wake in due.values():
            wake()

    def wake_all(self) -> None:
        """Call every watcher, after a snapshot was restored."""
        for wake in {number: wake for entries in self._entries() for number, wake in entries.items()}.values():
            wake()

    def __len__(self) -> int:
        return sum(1 for _ in self._entries())

    def _entries(self) -> Iterator[Wakes]:
        for watched in self._tables.values():
            for place in (watched.whole, watched.rows, *watched.columns.values()):
                yield from place.values()


class _WatchSet:
    """The watches of one table: of all rows, of rows by key, of index entries by column."""

    __slots__ = ("columns", "rows", "whole")

    def __init__(self) -> None:
        self.whole: dict[Hashable, Wakes] = {}
        self.rows: dict[Hashable, Wakes] = {}
        self.columns: dict[Hashable, dict[Hashable, Wakes]] = {}

    def place(self, key: WatchKey) -> dict[Hashable, Wakes]:
        """The callbacks registered for a watch key."""
        if len(key) < 3:
            return self.rows if len(key) == 2 else self.whole
        return self.columns.setdefault(key[1], {})

    def gather(self, change: Change, due: dict[int, Wake]) -> None:
        """Collect the watchers of a change."""
        for wakes in self.whole.values():
            due.update(wakes)
        if self.rows and change.key in self.rows:
            due.update(self.rows[change.key])
        for column, entries in self.columns.items():
            extract = TABLES[change.table].indexes.get(str(column)) if entries else None
            if extract is None:
                continue
            for row in (change.before, change.after):
                value = extract(row) if row is not None else None
                if value and value in entries:
                    due.update(entries[value])
