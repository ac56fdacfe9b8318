"""A cache with a fixed number of entries that drops the least recently used one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """The `limit` most recently used entries."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The entry, which counts as used now; None without one."""
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> V:
        """Store an entry and return it; beyond the limit the least recently used one is dropped."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._limit:
            self._entries.popitem(last=False)
        assert len(self._entries) <= self._limit, (len(self._entries), self._limit)
        return value

    def discard(self, key: K) -> None:
        """Forget an entry, if there is one."""
        self._entries.pop(key, None)

    def __len__(self) -> int:
        return len(self._entries)
