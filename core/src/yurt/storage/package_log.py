"""The command log on a package's log engine (`yurt.sdk.log_engines`): encodes and decodes commands.

One server keeps the log, so it leads from the start until the engine fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Invalid, Unavailable, YurtError
from yurt.sdk.log_engines import LogBatch, LogEngine
from yurt.storage.log import KEPT_ENTRIES, Entry, Leadership, LogBroken, LogState, WithoutQuota
from yurt.structs.commands import AnyCommand, decode_command

_encoder = msgspec.msgpack.Encoder()


class PackageLog(WithoutQuota):
    """The log of a single server in `folder`, stored by a package's engine."""

    def __init__(self, engine: LogEngine, folder: Path, *, env: Env) -> None:
        self._engine = engine
        self._env = env
        self._folder = folder
        self._last_index = 0
        self._ended = asyncio.Event()
        self._ended.set()

    async def open(self) -> LogState:
        """Open the engine; raises Conflict when its folder is in use, damaged or inconsistent."""
        await self._env.in_thread(partial(self._folder.mkdir, parents=True, exist_ok=True, mode=0o700))
        content = await self._engine.open(str(self._folder))
        if content.last_index < content.snapshot_index or content.first_index > content.last_index + 1:
            raise Conflict(f'the log engine "{self._engine.name}" answers indexes that cannot be: {content}')
        self._last_index = content.last_index
        self._ended = asyncio.Event()
        return LogState(
            last_index=content.last_index, first_index=content.first_index, snapshot_index=content.snapshot_index
        )

    async def append(
        self, first_index: int, commands: Sequence[AnyCommand], encoded: Sequence[msgspec.Raw] = ()
    ) -> None:
        """Make the commands durable, all or none; raises as `CommandLog.append` does."""
        if not commands:
            return
        if self._ended.is_set():
            raise Conflict("the command log is closed")
        if first_index != self._last_index + 1:
            raise Conflict(f"the next index of the command log is {self._last_index + 1}, not {first_index}")
        packed = [bytes(each) for each in encoded] or [_encoder.encode(each) for each in commands]
        try:
            await self._engine.append(LogBatch(first_index, packed))
        except Conflict:
            raise
        except asyncio.CancelledError:
            # The engine may have stored it, or be about to: another append could get the same index.
            self._ended.set()
            raise
        except Exception as error:
            # After any error of a foreign engine its stored content is unknown: the log accepts no further appends.
            self._ended.set()
            raise LogBroken(f'the log engine "{self._engine.name}" failed: {error or type(error).__name__}') from error
        self._last_index += len(commands)

    async def entries(self, after: int) -> AsyncIterator[Entry]:
        """The entries with a command above `after`; raises Conflict at a damaged or missing one."""
        expected, last = after + 1, self._last_index
        is_first = True
        async for batch in self._engine.read(after):
            # The first batch may begin before the requested index: batches are stored and read as a whole.
            if batch.first_index > expected or (batch.first_index < expected and not is_first):
                raise Conflict(f"command {expected} is missing in {self._folder}, or stands out of order")
            is_first = False
            expected = batch.first_index + len(batch.commands)
            try:
                commands = tuple(decode_command(each) for each in batch.commands)
            except msgspec.DecodeError as error:
                raise Conflict(f"the log {self._folder} is damaged at index {batch.first_index}: {error}") from error
            yield Entry(first_index=batch.first_index, commands=commands)
        if expected <= last:
            raise Conflict(f"commands {expected} to {last} are missing in {self._folder}")

    async def follow(self, after: int) -> AsyncIterator[Entry]:
        """The stored entries; no other process writes to this log."""
        ended = self._ended
        async for entry in self.entries(after):
            yield entry
        await ended.wait()

    async def campaign(self) -> AsyncIterator[Leadership]:
        """Lead from the start, until the engine fails or the log is closed."""
        ended = self._ended
        yield Leadership(is_leader=True)
        await ended.wait()
        yield Leadership(is_leader=False)

    async def resign(self, to: str = "") -> None:
        """No effect without a name, since other servers do not exist; raises Invalid for a named one."""
        if to:
            raise Invalid(f'server "{to}" cannot lead: this server is the only one')

    @property
    def has_other_servers(self) -> bool:
        """False: no other server uses this log."""
        return False

    async def confirm(self) -> None:
        """Succeeds until the engine fails or the log is closed, then raises Unavailable."""
        if self._ended.is_set():
            raise Unavailable("the command log is closed or its engine failed")

    async def save_snapshot(self, index: int, chunks: Iterable[bytes]) -> None:
        """Store the state at `index`."""
        await self._engine.save_snapshot(index, chunks)

    async def load_snapshot(self, up_to: int | None = None) -> tuple[int, Iterable[bytes]] | None:
        """The newest intact snapshot."""
        return await self._engine.load_snapshot(up_to)

    async def trim(self, below: int, *, keep: int = KEPT_ENTRIES) -> None:
        """Let the engine delete commands more than `keep` below an index."""
        await self._engine.trim(below - keep)

    async def scrub(self) -> str:
        """Verify the stored entries and snapshots; a failure of the engine's own check is reported as damage."""
        try:
            return await self._engine.scrub()
        except YurtError as error:
            return str(error)

    async def close(self) -> None:
        """Close the engine; may be called again."""
        self._ended.set()
        await self._engine.close()
