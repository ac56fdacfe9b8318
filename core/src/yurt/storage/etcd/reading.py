"""Reading the log: pages of what there is, then what is watched; nothing is skipped, nothing comes twice.

Entries are consecutive by their indexes. Whatever a watch brings that does not follow on what was read is not believed:
the log is read again from there, which finds the entries, or that they were trimmed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Unavailable
from yurt.storage.etcd.client import Compacted, EtcdClient
from yurt.storage.etcd.keys import Keys, broken, decode_entry
from yurt.storage.etcd.messages import Message
from yurt.storage.etcd.waits import Interrupt, Interrupted
from yurt.storage.log import Entry, LogTrimmed

log = logging.getLogger(__name__)

PAGE_ROWS: Final = 64
NEAR_INDEXES: Final = 64
"""How far below an index its entry is looked for first; four times as far each time after."""
RETRY_PAUSE_S: Final = 0.2
PUT: Final = 0


class Cursor:
    """Where a reader stands: the index that comes next, and the revision of etcd up to which it has seen the log."""

    def __init__(self, after: int) -> None:
        self.expected = after + 1
        self.revision = 0


class LogReader:
    """Reads the log for this server, and knows how far its reader has come."""

    def __init__(self, client: EtcdClient, keys: Keys, *, env: Env, closing: Interrupt) -> None:
        self.position = 0
        """The last index of which a reader, or an append, is done."""
        self._client = client
        self._keys = keys
        self._env = env
        self._closing = closing

    def has_reached(self, index: int) -> None:
        """This server has the state at an index."""
        self.position = max(self.position, index)

    async def read(self, cursor: Cursor) -> AsyncIterator[Entry]:
        """The entries from the cursor on that there are; raises LogTrimmed, Conflict or Unavailable."""
        head = await self.head()
        if head < self.position:
            raise Conflict(
                f"etcd has lost data: its log ends at index {head}, this server has read up to {self.position}; "
                "restore what etcd had, or restart all servers, which then go on from what etcd has"
            )
        self.has_reached(min(cursor.expected - 1, head))
        key = await self.entry_key(cursor.expected)
        while True:
            page = await self._range(key, self._keys.log_end, limit=PAGE_ROWS)
            for row in page.kvs:
                entry = self._entry(row)
                if entry.last_index < cursor.expected:
                    continue
                if entry.first_index > cursor.expected:
                    raise await self._missing(cursor.expected)
                yield entry
                self._has_read(entry, cursor)
            if not page.more:
                break
            key = page.kvs[-1].key + b"\0"
        if cursor.expected <= head:
            raise await self._missing(cursor.expected)
        cursor.revision = page.header.revision

    async def follow(self, after: int) -> AsyncIterator[Entry]:
        """The entries behind an index, then those that come, until the log is closed; raises LogTrimmed or Conflict."""
        cursor = Cursor(after)
        while not self._closing.is_raised:
            try:
                async for entry in self.read(cursor):
                    yield entry
                async for entry in self._watch(cursor):
                    yield entry
            except Interrupted:
                return
            except (Compacted, Unavailable) as error:
                log.debug("the command log is read again from index %d: %s", cursor.expected, error)
                await self._pause()

    async def head(self) -> int:
        """The last index of the log, by a linearizable read."""
        found = await self._range(self._keys.head)
        return int(found.kvs[0].value) if found.kvs else 0

    async def first_index(self) -> int:
        """The first index that is kept; 0 when the log is empty."""
        found = await self._range(self._keys.log, self._keys.log_end, limit=1, keys_only=True)
        return self._keys.first_index(found.kvs[0].key) if found.kvs else 0

    async def entry_key(self, index: int) -> bytes:
        """The key of the entry that holds an index; when there is none, where it would begin.

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
        """New entries, until one comes that does not follow on the ones before."""
        watch = self._client.watch(self._keys.log, self._keys.log_end, start_revision=cursor.revision + 1)
        try:
            while True:
                response = await self._closing.guard(anext(watch))
                entries = [self._entry(event.kv) for event in response.events if event.type == PUT]
                for entry in self._next_ones(entries, cursor):
                    yield entry
                if entries and cursor.expected <= entries[-1].last_index:
                    return
        finally:
            await watch.aclose()

    def _next_ones(self, entries: Sequence[Entry], cursor: Cursor) -> Iterator[Entry]:
        """Those that follow on what was read, one after another."""
        for entry in entries:
            if entry.first_index <= cursor.expected <= entry.last_index:
                yield entry
                self._has_read(entry, cursor)

    async def _range(self, key: bytes, range_end: bytes = b"", *, limit: int = 0, keys_only: bool = False) -> Message:
        return await self._closing.guard(self._client.range(key, range_end, limit=limit, keys_only=keys_only))

    def _has_read(self, entry: Entry, cursor: Cursor) -> None:
        cursor.expected = entry.last_index + 1
        self.has_reached(entry.last_index)

    def _entry(self, row: Message) -> Entry:
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
