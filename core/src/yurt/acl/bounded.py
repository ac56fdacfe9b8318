"""A cache with a fixed number of entries."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """A cache of the entries that were used last."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The entry, which is the newest now."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> V:
        """Keep an entry; the one that was used longest ago goes for it."""
        self._entries[key] = value
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)
        assert len(self._entries) <= self._limit, (len(self._entries), self._limit)
        return value

    def discard(self, key: K) -> None:
        """Forget an entry, if there is one."""
        self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)
