"""One command log in memory that several servers share, each through its own view, with injected faults.

It keeps what the real shared log promises: an append is fenced by the epoch and by the next index, an entry is there
as a whole or not at all, the winner of a term has a higher epoch than all before. Everything else may go wrong when a
test says so: appends whose outcome nobody learns, notifications that come late, leadership that comes and goes, a
server that reaches nothing, a log that was trimmed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable, Sequence
from enum import Enum

import msgspec

from yurt.sdk.errors import Conflict, Unavailable
from yurt.storage.log import KEPT_ENTRIES, Entry, Leadership, LogState, LogTrimmed, WithoutQuota
from yurt.structs.commands import AnyCommand


class AppendOutcome(Enum):
    """The outcome of an append whose caller gets no answer."""

    STORED = "stored"
    LOST = "lost"


class SharedLog:
    """The entries and the leader, as all servers share them."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.epoch = 0
        self.leader = ""
        self.views: dict[str, LogView] = {}
        self.first_index = 1
        self.moved = asyncio.Event()

    def view(self, name: str) -> LogView:
        """The log as the named server sees it; a restarted server gets a new view with its old disk."""
        before = self.views.get(name)
        made = self.views[name] = LogView(self, name, before.snapshot if before is not None else None)
        return made

    @property
    def last_index(self) -> int:
        """The index of the last command."""
        return self.entries[-1].last_index if self.entries else self.first_index - 1

    def elect(self, name: str) -> None:
        """Make a server the leader of a new term; "" for none."""
        self.epoch += 1
        self.leader = name
        for view in self.views.values():
            view.tell(Leadership(is_leader=view.name == name, epoch=self.epoch, leader=name))
        self.wake()

    def trim(self, below: int) -> None:
        """Delete the commands below an index, whether servers still need them or not."""
        self.entries = [entry for entry in self.entries if entry.last_index >= below]
        self.first_index = self.entries[0].first_index if self.entries else below

    def wake(self) -> None:
        """Wake all waiting readers."""
        moved, self.moved = self.moved, asyncio.Event()
        moved.set()

    def commands(self) -> list[AnyCommand]:
        """All stored commands, in order."""
        return [command for entry in self.entries for command in entry.commands]


class LogView(WithoutQuota):
    """A `CommandLog` of one server."""

    def __init__(self, shared: SharedLog, name: str, snapshot: tuple[int, tuple[bytes, ...]] | None = None) -> None:
        self.name = name
        self.snapshot = snapshot
        self.outcomes: deque[AppendOutcome] = deque()
        """What becomes of the next appends; those after them tell."""
        self.is_cut_off = False
        self.go = asyncio.Event()
        """While it is not set, appends wait."""
        self.go.set()
        self.delivers = asyncio.Event()
        """While it is not set, neither entries of others nor words about leadership arrive."""
        self.delivers.set()
        self._shared = shared
        self._levels: asyncio.Queue[Leadership | None] = asyncio.Queue()
        self._is_closed = False

    def tell(self, level: Leadership) -> None:
        """Deliver a leadership level, unless the server is partitioned."""
        if self.is_cut_off:
            level = Leadership(is_leader=False, epoch=level.epoch)
        self._levels.put_nowait(level)

    def cut_off(self) -> None:
        """Partition the server from the log; a leader stops leading."""
        self.is_cut_off = True
        if self._shared.leader == self.name:
            self._shared.elect("")
        self._shared.wake()

    def reach(self) -> None:
        """Heal the partition."""
        self.is_cut_off = False
        leader = self._shared.leader
        self.tell(Leadership(is_leader=leader == self.name, epoch=self._shared.epoch, leader=leader))
        self._shared.wake()

    async def open(self) -> LogState:
        """The first and last index of the log, once it is reachable."""
        while self.is_cut_off:
            await self._shared.moved.wait()
        return LogState(
            last_index=self._shared.last_index,
            first_index=self._shared.first_index if self._shared.entries else 0,
            snapshot_index=self.snapshot[0] if self.snapshot else 0,
        )

    async def append(
        self, first_index: int, commands: Sequence[AnyCommand], encoded: Sequence[msgspec.Raw] = ()
    ) -> None:
        """Store the commands when this server leads, or act out the next outcome."""
        await self.go.wait()
        await asyncio.sleep(0)
        self._check()
        shared = self._shared
        if shared.leader != self.name:
            raise Conflict(f"server {shared.leader or 'nobody'} leads")
        if first_index != shared.last_index + 1:
            raise Conflict(f"the next index is {shared.last_index + 1}, not {first_index}")
        outcome = self.outcomes.popleft() if self.outcomes else None
        if outcome is not AppendOutcome.LOST and commands:
            shared.entries.append(Entry(first_index=first_index, commands=tuple(commands)))
            shared.wake()
        if outcome is not None:
            shared.elect("")
            raise Unavailable("the log did not answer in time")

    async def entries(self, after: int) -> AsyncIterator[Entry]:
        """The entries after an index; raises LogTrimmed."""
        self._check()
        if after + 1 < self._shared.first_index:
            raise LogTrimmed(f"the log begins at index {self._shared.first_index}")
        for entry in tuple(self._shared.entries):
            if entry.last_index > after:
                yield entry

    async def follow(self, after: int) -> AsyncIterator[Entry]:
        """Yield the entries after an index, without end."""
        while not self._is_closed:
            await self.delivers.wait()
            moved = self._shared.moved
            if not self.is_cut_off:
                async for entry in self.entries(after):
                    yield entry
                    after = entry.last_index
            if moved is self._shared.moved:
                await moved.wait()

    async def campaign(self) -> AsyncIterator[Leadership]:
        """Yield every leadership level, in order."""
        if self._shared.leader and not self.is_cut_off:
            leads = self._shared.leader == self.name
            self._levels.put_nowait(Leadership(is_leader=leads, epoch=self._shared.epoch, leader=self._shared.leader))
        while (level := await self._levels.get()) is not None:
            await self.delivers.wait()
            yield level

    async def resign(self, to: str = "") -> None:
        """Hand leadership to the named server or the next one; does nothing for a follower or a single server."""
        others = [view.name for view in self._shared.views.values() if view is not self and not view.is_cut_off]
        if self._shared.leader == self.name and others:
            self._shared.elect(to or sorted(others)[0])

    @property
    def has_other_servers(self) -> bool:
        """Whether other servers may keep the log too."""
        return True

    async def confirm(self) -> None:
        """Whether this server really leads."""
        await asyncio.sleep(0)
        self._check()
        if self._shared.leader != self.name:
            raise Unavailable("another server leads")

    async def save_snapshot(self, index: int, chunks: Iterable[bytes]) -> None:
        """Keep a snapshot as this server's newest."""
        self.snapshot = (index, tuple(chunks))

    async def load_snapshot(self, up_to: int | None = None) -> tuple[int, Iterable[bytes]] | None:
        """This server's newest snapshot."""
        found = self.snapshot
        return found if found is None or up_to is None or found[0] <= up_to else None

    async def trim(self, below: int, *, keep: int = KEPT_ENTRIES) -> None:
        """Delete entries that a majority has in snapshots; does nothing on a follower."""
        views = self._shared.views.values()
        reached = sorted((view.snapshot[0] if view.snapshot else 0 for view in views), reverse=True)
        bound = min(below - keep, reached[len(reached) // 2])
        if self._shared.leader == self.name and bound > self._shared.first_index:
            self._shared.trim(bound)

    async def scrub(self) -> str:
        """Nothing to check: there is no disk."""
        return ""

    async def close(self) -> None:
        """End all waiting calls; the entries remain."""
        self._is_closed = True
        self._levels.put_nowait(None)
        if self._shared.views.get(self.name) is self and self._shared.leader == self.name:
            self._shared.elect("")
        self._shared.wake()

    def _check(self) -> None:
        if self._is_closed:
            raise Conflict("the command log is closed")
        if self.is_cut_off:
            raise Unavailable("the log cannot be reached")
