"""Watches: who wants to know when a table, a row, or an index entry changes.

A watch key is `(table,)`, `(table, key)` or `(table, column, index key)`. Waking calls each callback once per commit
and forgets nothing: a caller that wants one wake-up cancels its watch.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

from yurt.state.store import INDEXES, Change

WatchKey = tuple[Hashable, ...]
Wake = Callable[[], None]


class Watches:
    """Callbacks by watch key."""

    def __init__(self) -> None:
        self._wakes: dict[WatchKey, dict[int, Wake]] = {}
        self._next = 0

    def add(self, keys: Iterable[WatchKey], wake: Wake) -> Callable[[], None]:
        """Call `wake` whenever one of the keys changes; the answer cancels it."""
        self._next += 1
        number, watched = self._next, tuple(keys)
        for key in watched:
            self._wakes.setdefault(key, {})[number] = wake

        def cancel() -> None:
            for key in watched:
                entries = self._wakes.get(key)
                if entries is not None:
                    entries.pop(number, None)
                    if not entries:
                        del self._wakes[key]

        return cancel

    def wake(self, changes: Iterable[Change]) -> None:
        """Call everyone who watches something that changed, each once."""
        due: dict[int, Wake] = {}
        for change in changes:
            for key in watch_keys(change):
                due.update(self._wakes.get(key, {}))
        for wake in due.values():
            wake()

    def wake_all(self) -> None:
        """Call everyone: a snapshot was restored."""
        for wake in {number: wake for entries in self._wakes.values() for number, wake in entries.items()}.values():
            wake()

    def __len__(self) -> int:
        return len(self._wakes)


def watch_keys(change: Change) -> Iterable[WatchKey]:
    """Every watch key that a change touches."""
    yield (change.table,)
    yield (change.table, change.key)
    for column, extract in INDEXES[change.table].items():
        for row in (change.before, change.after):
            value = extract(row) if row is not None else None
            if value:
                yield (change.table, column, value)
