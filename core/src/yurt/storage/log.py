"""The command log: one totally ordered sequence of commands, stored by interchangeable engines.

Every command has its own index; an entry is a batch that became durable as a whole. An append names the index of
its first command and is refused when that is not the next one, so two writers can never interleave unseen. What
`append` has acknowledged is never lost. After a write to stable storage failed once, an engine acknowledges nothing
more: a second fsync may report a success that the first one made impossible (invariant A10).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Protocol

import msgspec

from yurt.sdk.errors import Conflict, Unavailable
from yurt.sdk.value import Value
from yurt.structs.commands import AnyCommand

KEPT_ENTRIES = 10_240
"""The number of commands below the given index that trimming keeps by default, for lagging peers."""
COMMAND_BYTES_MAX = 1024 * 1024
"""The largest encoded command that a log accepts (invariant A9)."""


class Entry(Value):
    """A batch of commands; the first one has `first_index`, the others follow."""

    first_index: int
    commands: tuple[AnyCommand, ...]

    @property
    def last_index(self) -> int:
        """The index of the last command."""
        return self.first_index + len(self.commands) - 1


class LogState(Value):
    """The extent of a log: its last index, its first retained index (0: none), and the index of its newest snapshot (0:
    none)."""

    last_index: int = 0
    first_index: int = 0
    snapshot_index: int = 0


class LogTrimmed(Conflict):
    """The requested entries were deleted; a snapshot of some server covers them."""


class LogBroken(Unavailable):
    """Stable storage failed: the outcome is unknown, and the log refuses all calls until a restart."""


class LogFull(Unavailable):
    """The log is out of space; nothing was stored, the term continues, and space is being freed."""


class DatabaseSize(Value):
    """The database behind the log at one server: its size and used size in bytes, and the log revision measured.

    Revisions are the engine's own: they grow with each entry, and are the same for all servers.
    """

    size: int = 0
    size_in_use: int = 0
    revision: int = 0


class Leadership(Value):
    """The server that may append: this one, or the one named `leader` ("": unknown).

    `epoch` counts the terms.
    """

    is_leader: bool
    epoch: int = 1
    leader: str = ""


class CommandLog(Protocol):
    """A log engine. All calls run on one event loop."""

    async def open(self) -> LogState:
        """Lock the log; raises Conflict when it is in use, damaged or has another format version."""
        ...

    async def append(
        self, first_index: int, commands: Sequence[AnyCommand], encoded: Sequence[msgspec.Raw] = ()
    ) -> None:
        """Make the commands durable, all or none.

        `encoded` holds the MessagePack of each command where the caller has it: then an engine does not encode again.

        Raises Conflict when `first_index` is not the next one or another server leads by now, Invalid for what no entry
        can hold, LogFull while space is exhausted: nothing was stored, and after Invalid and LogFull the term goes on.
        Raises Unavailable when the outcome is unknown: what became of it is known once `entries` was read again, and
        this server appends nothing more before it has won a new term. Raises LogBroken when reading tells nothing.
        """
        ...

    def entries(self, after: int) -> AsyncIterator[Entry]:
        """The entries with a command above `after`, oldest first; ends after the last stored one."""
        ...

    def follow(self, after: int) -> AsyncIterator[Entry]:
        """The entries with a command above `after`, then new ones, until the log is closed.

        Raises LogTrimmed when the entries after `after` are gone, now or later.
        """
        ...

    def campaign(self) -> AsyncIterator[Leadership]:
        """Leadership gained and lost, and the terms of other servers as they become known, until the log is closed."""
        ...

    async def resign(self, to: str = "") -> None:
        """Resign in favour of the named server, or of any other; no effect without another server.

        Raises Invalid when no server has that name, Unavailable when it cannot be given up.
        """
        ...

    @property
    def has_other_servers(self) -> bool:
        """Whether other servers may use the log as well; without them `confirm` returns at once."""
        ...

    async def confirm(self) -> None:
        """Return once it is certain that this server still leads; raises Unavailable otherwise.

        What it has applied is then no older than what any server acknowledged before the call.
        """
        ...

    async def save_snapshot(self, index: int, chunks: Iterable[bytes]) -> None:
        """Store the state at `index`; durable on return."""
        ...

    async def load_snapshot(self, up_to: int | None = None) -> tuple[int, Iterable[bytes]] | None:
        """The newest intact snapshot, or the newest one that is not above an index."""
        ...

    async def trim(self, below: int, *, keep: int = KEPT_ENTRIES) -> None:
        """Delete commands more than `keep` below an index that a snapshot covers."""
        ...

    async def scrub(self) -> str:
        """Verify this server's files slowly; returns a description of the damage, "" for none."""
        ...

    async def wait_crowded(self) -> None:
        """Return when space runs short and a snapshot would permit trimming; never without a quota."""
        ...

    @property
    def database_size(self) -> DatabaseSize | None:
        """The size of the database at this server, which may stop all servers when full; None without a quota."""
        ...

    async def wait_sizes_due(self) -> None:
        """Return when it is time to query the other servers' `database_size`; never without a quota."""
        ...

    def record_size(self, server: str, size: DatabaseSize) -> None:
        """Record another server's answer. A missing answer blocks nothing."""
        ...

    async def close(self) -> None:
        """Close the log; acknowledged entries remain."""
        ...


class WithoutQuota:
    """The quota methods of logs without a quota: space is never short."""

    async def wait_crowded(self) -> None:
        """Wait until cancelled."""
        await asyncio.Event().wait()

    @property
    def database_size(self) -> DatabaseSize | None:
        """None, because the log has no quota."""
        return None

    async def wait_sizes_due(self) -> None:
        """Wait until cancelled."""
        await asyncio.Event().wait()

    def record_size(self, server: str, size: DatabaseSize) -> None:
        """Ignore the report."""
