"""A server reduced to its command log: it campaigns, follows, appends numbers and keeps the applied ones.

It does with the log what the real server does: what others append it applies while it follows; when a term begins it
first reads up to the log's end; when the term is over it follows again from where it stands.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from yurt.sdk.errors import Conflict, Unavailable
from yurt.sdk.value import UnixNano
from yurt.storage.log import CommandLog, Entry, Leadership
from yurt.structs.commands import AnyCommand, RecordPeriodicLaunch

READY_LIMIT_S = 60.0
POLL_S = 0.01


def command(number: int, *, size: int = 0) -> AnyCommand:
    """A command that carries a number and padding."""
    return RecordPeriodicLaunch(namespace="default", job_id="j" * size or "job", launched_at=UnixNano(number))


def number_of(stored: AnyCommand) -> int:
    """The number that a command carries."""
    assert isinstance(stored, RecordPeriodicLaunch)
    return stored.launched_at


class LogServer:
    """One server. `applied[i]` is the number at index i + 1; `levels` lists every leadership level it received."""

    def __init__(self, name: str, log: CommandLog) -> None:
        self.name = name
        self.log = log
        self.applied: list[int] = []
        self.acknowledged: list[int] = []
        self.levels: list[Leadership] = []
        self.is_ready = False
        """It leads and has applied all."""
        self._changed = asyncio.Event()
        self._writing = asyncio.Lock()

    @property
    def level(self) -> Leadership:
        """The latest leadership level."""
        return self.levels[-1] if self.levels else Leadership(is_leader=False, epoch=0)

    async def run(self) -> None:
        """Campaign, follow and lead until the log is closed or this is cancelled."""
        async with asyncio.TaskGroup() as group:
            duty = group.create_task(self._duty())
            async for level in self.log.campaign():
                self.levels.append(level)
                self.is_ready = self.is_ready and level.is_leader
                self._changed.set()
            duty.cancel()

    async def append(self, numbers: Sequence[int], *, size: int = 0) -> None:
        """Append a batch; it is applied and acknowledged when this returns. Raises what the log raises."""
        async with self._writing:
            if not self.is_ready:
                raise Unavailable("this server does not lead")
            try:
                await self.log.append(len(self.applied) + 1, [command(number, size=size) for number in numbers])
            except BaseException:
                self.is_ready = False
                raise
            self.applied.extend(numbers)
            self.acknowledged.extend(numbers)

    async def _duty(self) -> None:
        while True:
            self._changed.clear()
            async with asyncio.TaskGroup() as group:
                task = group.create_task(self._lead() if self.level.is_leader else self._follow())
                await self._changed.wait()
                task.cancel()

    async def _lead(self) -> None:
        level = self.level
        while self.level == level and not self.is_ready:
            with contextlib.suppress(Unavailable):
                await self._catch_up()
                self.is_ready = self.level == level
            await asyncio.sleep(POLL_S)

    async def _catch_up(self) -> None:
        async with self._writing:
            async for entry in self.log.entries(len(self.applied)):
                self.apply(entry)

    async def _follow(self) -> None:
        async with self._writing:
            with contextlib.suppress(Conflict):  # The log was closed between two levels of leadership.
                async for entry in self.log.follow(len(self.applied)):
                    self.apply(entry)

    def apply(self, entry: Entry) -> None:
        """Append the numbers of an entry to `applied`, except those that it already has."""
        for offset, stored in enumerate(entry.commands):
            if entry.first_index + offset > len(self.applied):
                self.applied.append(number_of(stored))


@asynccontextmanager
async def running(server: LogServer) -> AsyncIterator[LogServer]:
    """Run the server during the block; its log is closed afterwards."""
    await server.log.open()
    async with asyncio.TaskGroup() as group:
        task = group.create_task(server.run())
        try:
            yield server
        finally:
            await server.log.close()
            task.cancel()


async def wait_leader(servers: Sequence[LogServer], *, besides: LogServer | None = None) -> LogServer:
    """Wait for a server that leads and is ready, other than the excluded one; returns it."""
    async with asyncio.timeout(READY_LIMIT_S):
        while True:
            found = next((server for server in servers if server.is_ready and server is not besides), None)
            if found is not None:
                return found
            await asyncio.sleep(POLL_S)


async def wait_equal(servers: Sequence[LogServer]) -> None:
    """Wait until all servers have applied the same numbers."""
    async with asyncio.timeout(READY_LIMIT_S):
        while True:
            if len({tuple(server.applied) for server in servers}) == 1:
                return
            await asyncio.sleep(POLL_S)
