"""Cached list answers, valid as long as the tables that they show are unchanged.

A list that is requested again while its tables have not changed is sent as it was encoded. The key contains the other
inputs of the answer: the path and the query, and the rows that the caller sees (`Access.visibility`). Callers
share an answer only where the authority gives the same rights to them, or where the namespace of a row alone decides
who sees it, and they see the same namespaces. What a caller may do is decided before an answer is looked up, for each
request again.

An answer refers weakly to its tables, so it keeps no old state alive.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from typing import Final

import msgspec

ANSWERS_BYTES_MAX: Final = 32 * 1024 * 1024
ANSWER_BYTES_MAX: Final = 8 * 1024 * 1024
"""Longer answers are not cached."""
OUTDATED_AT_ONCE: Final = 8
"""Outdated answers that are dropped with each new one."""
ENTRY_BYTES: Final = 1_000
"""The memory of an entry in addition to its text and the text of its key, bytes."""

Tables = tuple[object, ...]
"""Identifies the content of each table (`Rows.content`): a new object after each change."""


class AnswerKey(msgspec.Struct, frozen=True):
    """The inputs of an answer in addition to its tables."""

    target: str
    """Path and query without the parameters of waiting, as one text; the cache counts its length."""
    visibility: Hashable
    """The rows that the caller sees."""


class CachedAnswer(msgspec.Struct, frozen=True):
    """A list as it was encoded."""

    tables: tuple[weakref.ref[object], ...]
    pieces: Sequence[bytes]
    at_index: int
    next_token: str
    size: int


class DerivedIndexes:
    """The index of each list whose rows are computed from other tables: 0 until the list had a row.

    Nomad stores such rows, and the index of a table without writes is 0. Here nothing is stored: this process remembers
    which list it has seen with a row. Once it has, the index never falls, so that watchers learn of the last row's end.
    After a restart, and on a new leader, a watcher's index tells the same: only a list that had a row gave it one.
    """

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self._empty_at: dict[str, int] = {}

    def index_of(self, name: str, index: int, has_rows: Callable[[], bool], *, client_index: int) -> int:
        """`index`, the newest of the list's tables, or 0.

        `client_index` is the index that the caller has of the list, 0 without one; `has_rows` is asked once for each
        index.
        """
        # 1 is what watchers of an empty list send: they must wait. An index above the newest is from another state.
        if name in self._seen or 1 < client_index <= index:
            self._seen.add(name)
            return index
        if self._empty_at.get(name) == index:
            return 0
        if has_rows():
            self._seen.add(name)
            return index
        self._empty_at[name] = index
        return 0


class AnswerCache:
    """Answers by key; the least recently used ones are dropped beyond a number of bytes."""

    def __init__(self, bytes_max: int = ANSWERS_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._entries: OrderedDict[AnswerKey, CachedAnswer] = OrderedDict()
        self.bytes = 0

    def find(self, key: AnswerKey, tables: Tables) -> CachedAnswer | None:
        """The answer of a key for these tables; one for others is dropped."""
        cached = self._entries.get(key)
        if cached is None:
            return None
        for ref, table in zip(cached.tables, tables, strict=True):
            if ref() is not table:
                self._drop(key)
                return None
        self._entries.move_to_end(key)
        return cached

    def keep(
        self, key: AnswerKey, tables: Tables, pieces: Sequence[bytes], index: int, next_token: str
    ) -> Sequence[bytes]:
        """Cache an answer that shows these tables; returns its pieces as cached, or unchanged."""
        size = sum(map(len, pieces)) + len(key.target) + ENTRY_BYTES
        if size > ANSWER_BYTES_MAX:
            return pieces
        self._drop(key)
        self._drop_outdated()
        refs = tuple(map(weakref.ref, tables))
        stored = tuple(pieces)
        self._entries[key] = CachedAnswer(refs, stored, index, next_token, size)
        self.bytes += size
        while self.bytes > self._bytes_max:
            self._drop(next(iter(self._entries)))
        return stored

    def __len__(self) -> int:
        return len(self._entries)

    def _drop_outdated(self) -> None:
        """Drop the least recently used answers as far as their tables are gone: nobody finds them again."""
        for _ in range(OUTDATED_AT_ONCE):
            oldest = next(iter(self._entries.items()), None)
            if oldest is None or all(ref() is not None for ref in oldest[1].tables):
                return
            self._drop(oldest[0])

    def _drop(self, key: AnswerKey) -> None:
        dropped = self._entries.pop(key, None)
        if dropped is not None:
            self.bytes -= dropped.size


class AnswerSlot(msgspec.Struct, frozen=True):
    """The place of one request's answer in the cache."""

    cache: AnswerCache
    key: AnswerKey
    tables: Tables
    is_still: Callable[[Hashable], bool]
    """Whether the caller saw the rows of this visibility only."""

    def find(self) -> CachedAnswer | None:
        """The answer, if there is one that shows the newest rows."""
        return self.cache.find(self.key, self.tables)

    def keep(self, pieces: Sequence[bytes], index: int, next_token: str) -> Sequence[bytes]:
        """Cache the answer for the next request; returns its pieces as cached, or unchanged.

        Where the rights of its caller have changed meanwhile, it is not an answer for others with the former ones.
        """
        if not self.is_still(self.key.visibility):
            return pieces
        return self.cache.keep(self.key, self.tables, pieces, index, next_token)
