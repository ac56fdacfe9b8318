"""Reads the log: stored pages first, then watched entries; none is skipped or repeated.

Entries are consecutive by their indexes, and each holds the digest of the one before. Whatever a watch brings that does
not continue the entries read so far is ignored: the log is read again from there, which finds the entries, or that they
were trimmed, or that etcd has another history by now than the one that this server has applied.
"""

from __future__ import annotations

import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Final

from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Unavailable
from yurt.storage.etcd.client import REMEDY, RESTORED, Compacted, EtcdClient
from yurt.storage.etcd.interruptible_waits import Interrupt, Interrupted
from yurt.storage.etcd.key_layout import FoundEntry, KeyLayout, LogMark, broken, decode_entry, decode_head
from yurt.storage.etcd.messages import Message
from yurt.storage.log import Entry, LogTrimmed

log = logging.getLogger(__name__)

PAGE_ROWS: Final = 64
NEAR_INDEXES: Final = 64
"""The distance below an index at which its entry is searched first; it grows fourfold with each step."""
RETRY_PAUSE_S: Final = 0.2
MARKS_MAX: Final = 8
PUT: Final = 0


class Cursor:
    """A reader's position: the next index, the digest of the entry that ends before it ("": unknown), and
    the revision of etcd up to which it has seen the log."""

    def __init__(self, after: int, digest: str = "") -> None:
        self.expected = after + 1
        self.digest = digest
        self.revision = 0


class EntryReader:
    """Reads the log for this server and tracks how far its state has advanced."""

    def __init__(
        self,
        client: EtcdClient,
        keys: KeyLayout,
        *,
        env: Env,
        closing: Interrupt,
        on_read: Callable[[int, int], None] = lambda _, __: None,
        on_applied: Callable[[LogMark], None] = lambda _: None,
    ) -> None:
        """`on_read` is called for each entry that was read, with its revision in etcd and its size in bytes.

        `on_applied` is called with the end of each entry that this server has applied.
        """
        self.position = 0
        """The last index that this server has applied: the follower has finished it, or it was appended here."""
        self._on_read = on_read
        self._on_applied = on_applied
        self._marks: deque[LogMark] = deque(maxlen=MARKS_MAX)
        self._client = client
        self._keys = keys
        self._env = env
        self._closing = closing

    def has_reached(self, index: int) -> None:
        """Record that this server has the state at an index."""
        self.position = max(self.position, index)

    def has_applied(self, mark: LogMark) -> None:
        """Record that this server has applied an entry."""
        self._marks.append(mark)
        self.has_reached(mark.index)
        self._on_applied(mark)

    def cursor(self, after: int) -> Cursor:
        """A cursor after an index; its entries must continue the history that this server has applied."""
        return Cursor(after, next((mark.digest for mark in reversed(self._marks) if mark.index == after), ""))

    async def read(self, cursor: Cursor, *, is_applied: bool = False) -> AsyncIterator[Entry]:
        """The stored entries from the cursor on; raises LogTrimmed, Conflict or Unavailable.

        With `is_applied`, a request for the next entry means that the one before is applied.
        """
        head = (await self.head()).index
        if head < self.position:
            raise self._client.mark_history_lost(
                f"{RESTORED}: its log ends at index {head}, this server has read up to {self.position}; {REMEDY}"
            )
        key = await self.entry_key(cursor.expected)
        while True:
            page = await self._range(key, self._keys.log_end, limit=PAGE_ROWS)
            for row in page.kvs:
                found = self._entry(row)
                if found.entry.last_index < cursor.expected:
                    continue
                if found.entry.first_index > cursor.expected:
                    raise await self._missing(cursor.expected)
                self._check(found, cursor)
                yield found.entry
                self._has_read(found, cursor, is_applied=is_applied)
            if not page.more:
                break
            key = page.kvs[-1].key + b"\0"
        if cursor.expected <= head:
            raise await self._missing(cursor.expected)
        cursor.revision = page.header.revision

    async def follow(self, after: int) -> AsyncIterator[Entry]:
        """The entries after an index, then new ones, until the log is closed; raises LogTrimmed or Conflict.

        A request for the next entry means that the one before is applied.
        """
        cursor = self.cursor(after)
        self.has_reached(after)
        while not self._closing.is_raised:
            try:
                async for entry in self.read(cursor, is_applied=True):
                    yield entry
                async for entry in self._watch(cursor):
                    yield entry
            except Interrupted:
                return
            except (Compacted, Unavailable) as error:
                log.debug("the command log is read again from index %d: %s", cursor.expected, error)
                await self._pause()

    async def head(self) -> LogMark:
        """The end of the log, by a linearizable read."""
        found = await self._range(self._keys.head)
        try:
            return decode_head(found.kvs[0].value) if found.kvs else LogMark()
        except ValueError as error:
            raise Conflict(f"the end of the log in etcd can not be read: {error}") from error

    async def mark_at(self, index: int) -> LogMark:
        """The last end of an entry at or below an index, without its digest if that is trimmed or unknown."""
        found = await self._range(await self.entry_key(index))
        if not found.kvs:
            return LogMark()
        entry, mark, before = self._entry(found.kvs[0])
        return mark if mark.index <= index else LogMark(index=entry.first_index - 1, digest=before)

    async def first_index(self) -> int:
        """The first retained index; 0 when the log is empty."""
        found = await self._range(self._keys.log, self._keys.log_end, limit=1, keys_only=True)
        return self._keys.first_index(found.kvs[0].key) if found.kvs else 0

    async def entry_key(self, index: int) -> bytes:
        """The key of the entry that contains an index; if none does, the key at which it would begin.

        etcd finds no last key below another one without reading all of them; entries are short, so it is near.
        """
        end, width = index + 1, NEAR_INDEXES
        while end > 1:
            start = max(1, end - width)
            found = await self._range(self._keys.entry(start), self._keys.entry(end), keys_only=True)
            if found.kvs:
                return bytes(found.kvs[-1].key)
            end, width = start, width * 4
        return self._keys.entry(index)

    async def _watch(self, cursor: Cursor) -> AsyncIterator[Entry]:
        """New entries, until one does not continue its predecessor."""
        watch = self._client.watch(self._keys.log, self._keys.log_end, start_revision=cursor.revision + 1)
        try:
            while True:
                response = await self._closing.guard(anext(watch))
                found = [self._entry(event.kv) for event in response.events if event.type == PUT]
                for entry in self._next_ones(found, cursor):
                    yield entry
                if found and cursor.expected != found[-1].entry.last_index + 1:
                    return
        finally:
            await watch.aclose()

    def _next_ones(self, entries: Sequence[FoundEntry], cursor: Cursor) -> Iterator[Entry]:
        """The entries that continue those read so far, in order."""
        for found in entries:
            if found.entry.first_index <= cursor.expected <= found.entry.last_index:
                self._check(found, cursor)
                yield found.entry
                self._has_read(found, cursor, is_applied=True)

    async def _range(self, key: bytes, range_end: bytes = b"", *, limit: int = 0, keys_only: bool = False) -> Message:
        return await self._closing.guard(self._client.range(key, range_end, limit=limit, keys_only=keys_only))

    def _check(self, found: FoundEntry, cursor: Cursor) -> None:
        """Raises HistoryLost for an entry that does not continue the history before the cursor."""
        if cursor.digest and found.before and found.before != cursor.digest:
            raise self._client.mark_history_lost(
                f"{RESTORED}: what follows index {cursor.expected - 1} of its log continues another history; {REMEDY}"
            )

    def _has_read(self, found: FoundEntry, cursor: Cursor, *, is_applied: bool) -> None:
        cursor.expected, cursor.digest = found.mark.index + 1, found.mark.digest
        if is_applied:
            self.has_applied(found.mark)

    def _entry(self, row: Message) -> FoundEntry:
        self._on_read(row.mod_revision, len(row.value))
        return decode_entry(self._keys.first_index(row.key), row.value)

    async def _missing(self, index: int) -> Conflict:
        first = await self.first_index()
        if first == 0 or first > index:
            begins = f"begins at index {first}" if first else "is empty"
            return LogTrimmed(f"the command log {begins}, what follows index {index - 1} was trimmed")
        return broken(index, "it is missing")

    async def _pause(self) -> None:
        with contextlib.suppress(Interrupted):
            await self._closing.guard(self._env.sleep(RETRY_PAUSE_S * (1 + self._env.random())))
