"""A command log in memory, for a dev agent: lost with the process."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final

import msgspec

from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.storage.log import KEPT_ENTRIES, Entry, Leadership, LogState, LogTrimmed, WithoutQuota
from yurt.structs.commands import AnyCommand, decode_command, encode_command

KEPT_BATCHES: Final = 256
KEPT_BYTES: Final = 4 * 1024 * 1024
"""The number of entries kept by default, and their size in bytes: only a replay of an evaluation reads them again."""


class _Stored(msgspec.Struct, frozen=True):
    """An entry: its commands as they were encoded, without a further copy.

    The decoded commands would keep every version of each allocation that they wrote, which takes four times as much.
    """

    first_index: int
    last_index: int
    encoded: tuple[msgspec.Raw, ...]
    size: int

    def entry(self) -> Entry:
        """The entry, decoded."""
        return Entry(first_index=self.first_index, commands=tuple(decode_command(bytes(raw)) for raw in self.encoded))


class MemoryLog(WithoutQuota):
    """Keeps the newest `keep` entries within `KEPT_BYTES` (None: all until they are trimmed).

    The newest entry stays whatever its size. Reading a deleted one raises Conflict.
    """

    def __init__(self, *, keep: int | None = KEPT_BATCHES) -> None:
        self._entries: deque[_Stored] = deque()
        self._keep = keep
        self._bytes = 0
        self._last_index = 0
        self._snapshot: tuple[int, tuple[bytes, ...]] | None = None
        self._closed = asyncio.Event()

    async def open(self) -> LogState:
        """The log's state; a closed log may be opened again."""
        self._closed = asyncio.Event()
        return LogState(
            last_index=self._last_index,
            first_index=self._entries[0].first_index if self._entries else 0,
            snapshot_index=self._snapshot[0] if self._snapshot else 0,
        )

    async def append(
        self, first_index: int, commands: Sequence[AnyCommand], encoded: Sequence[msgspec.Raw] = ()
    ) -> None:
        """Append the commands in memory."""
        if self._closed.is_set():
            raise Conflict("the command log is closed")
        if first_index != self._last_index + 1:
            raise Conflict(f"the next index of the command log is {self._last_index + 1}, not {first_index}")
        if commands:
            kept = tuple(encoded) or tuple([msgspec.Raw(encode_command(command)) for command in commands])
            size = sum([len(memoryview(raw)) for raw in kept])
            self._last_index += len(commands)
            self._entries.append(_Stored(first_index, self._last_index, kept, size))
            self._bytes += size
            self._drop_excess()

    async def entries(self, after: int) -> AsyncIterator[Entry]:
        """The entries with a command above `after`; raises Conflict when they were deleted."""
        first = self._entries[0].first_index if self._entries else self._last_index + 1
        if after + 1 < first:
            raise LogTrimmed(f"the command log begins at index {first}, what follows index {after} was forgotten")
        for stored in tuple(self._entries):
            if stored.last_index > after:
                yield stored.entry()

    async def follow(self, after: int) -> AsyncIterator[Entry]:
        """The stored entries; no other process writes to this log."""
        closed = self._closed
        async for entry in self.entries(after):
            yield entry
        await closed.wait()

    async def campaign(self) -> AsyncIterator[Leadership]:
        """Lead from the start, until the log is closed."""
        closed = self._closed
        yield Leadership(is_leader=True)
        await closed.wait()

    async def resign(self, to: str = "") -> None:
        """No effect without a name, since other servers do not exist; raises Invalid for a named one."""
        if to:
            raise Invalid(f'server "{to}" cannot lead: this server is the only one')

    @property
    def has_other_servers(self) -> bool:
        """False: no other server uses this log."""
        return False

    async def confirm(self) -> None:
        """Succeeds until the log is closed, then raises Unavailable."""
        if self._closed.is_set():
            raise Unavailable("the command log is closed")

    async def save_snapshot(self, index: int, chunks: Iterable[bytes]) -> None:
        """Store the newest snapshot."""
        self._snapshot = (index, tuple(chunks))

    async def load_snapshot(self, up_to: int | None = None) -> tuple[int, Iterable[bytes]] | None:
        """The newest snapshot."""
        found = self._snapshot
        return found if found is None or up_to is None or found[0] <= up_to else None

    async def trim(self, below: int, *, keep: int = KEPT_ENTRIES) -> None:
        """Delete entries more than `keep` below an index."""
        while self._entries and self._entries[0].last_index < below - keep:
            self._drop_oldest()

    def _drop_excess(self) -> None:
        if self._keep is not None:
            while len(self._entries) > self._keep or (self._bytes > KEPT_BYTES and len(self._entries) > 1):
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        self._bytes -= self._entries.popleft().size

    async def scrub(self) -> str:
        """No effect: the log is not on a disk."""
        return ""

    async def close(self) -> None:
        """End the campaign; the entries remain for another `open` of the same object."""
        self._closed.set()
