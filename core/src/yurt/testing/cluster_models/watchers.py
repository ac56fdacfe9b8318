"""Blocking queries without loops: after every command, each watcher checks whether it would have missed a change.

A watcher holds what it was answered last. As soon as what it asks about is something else, the rules of blocking
queries (invariant A6) say that it has been woken, and that the index of what it asks about is past the one it was
given; otherwise the loop would go on waiting, or would ask again and wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yurt.state import Changes, Snapshot
from yurt.state.watch import Watches, WatchKey

Content = dict[Any, Any]


class Watcher:
    """One caller; it repeats its query at every `pace`-th command that woke it, so that changes accumulate."""

    def __init__(
        self,
        name: str,
        keys: tuple[WatchKey, ...],
        index_of: Callable[[Snapshot], int],
        content_of: Callable[[Snapshot], Content],
        *,
        pace: int = 1,
    ) -> None:
        self.name = name
        self.keys = keys
        self.answers = 0
        self._index_of = index_of
        self._content_of = content_of
        self._pace = pace
        self._index = 0
        self._seen: Content = {}
        self._is_woken = False
        self._count = 0

    def wake(self) -> None:
        """Record that the watched rows may have changed."""
        self._is_woken = True

    def look(self, state: Snapshot) -> None:
        """Check the rules; read the answer when it is this watcher's turn."""
        content, index = self._content_of(state), self._index_of(state)
        assert index <= state.index, f"{self.name}: index {index} at state {state.index}"
        if not _are_same(content, self._seen):
            assert self._is_woken, f"{self.name} changed at {state.index}, and nobody was woken"
            assert index > self._index, f"{self.name} changed at {state.index}; its index stays {index}"
        if not self._is_woken:
            return
        self._count += 1
        if index > self._index and self._count % self._pace == 0:
            self._index, self._seen, self._is_woken = index, content, False
            self.answers += 1


class Watchers:
    """All watchers of one server."""

    def __init__(self) -> None:
        self._watches = Watches()
        self.all: list[Watcher] = []

    def add(self, watcher: Watcher) -> None:
        """Add a watcher."""
        self._watches.add(watcher.keys, watcher.wake)
        self.all.append(watcher)

    def observe(self, changes: Changes, state: Snapshot) -> None:
        """Check all watchers after a command was applied."""
        self._watches.wake(changes)
        for watcher in self.all:
            watcher.look(state)


def table_watcher(table: str, *, pace: int) -> Watcher:
    """A watcher of a list, as `/v1/<table>` is followed."""
    return Watcher(
        f"{table} (each {pace})",
        ((table,),),
        lambda state: state.table(table).index,
        lambda state: dict(state.table(table).items()),
        pace=pace,
    )


def row_watcher(table: str, key: Any, *, pace: int) -> Watcher:
    """A watcher of one object, as `/v1/node/<id>` is followed."""

    def index_of(state: Snapshot) -> int:
        row = state.table(table).get(key)
        return state.table(table).index if row is None else int(row.modify_index)

    def content_of(state: Snapshot) -> Content:
        row = state.table(table).get(key)
        return {} if row is None else {key: row}

    return Watcher(f"{table} {key}", ((table, key),), index_of, content_of, pace=pace)


def _are_same(new: Content, old: Content) -> bool:
    return len(new) == len(old) and all(old.get(key) is value or old.get(key) == value for key, value in new.items())
