"""The contract of log engines: storage for the command log of a server whose state lies on its own disk.

All state of a cluster follows from one sequence of commands. A server appends each command, numbered from 1 without a
gap, before it answers the request; after a restart it loads the newest snapshot of its state and applies the commands
after it. An engine stores commands and snapshots as bytes and understands neither.

What an engine promises:
- When `append` returns, its commands survive a crash of the process and of the machine: all of them or none.
- Acknowledged commands are never lost silently: `open`, `read` and `load_snapshot` raise Conflict for damage.
- After one failed write it acknowledges no other write (raise Unavailable), because a later success proves nothing
  about the pages that the system has dropped.
- Only one process has a folder open at a time.

All calls run on one event loop, so none may block it. Servers that keep a log together use etcd, not an engine of a
package.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, NamedTuple, Protocol, runtime_checkable

from yurt.sdk.value import Value

OWN_ENGINES: Final = ("boltdb", "wal", "sqlite", "etcd", "memory")
"""Names that no package can take: those of Yurt's engines and of Nomad's `raft_logstore`."""


class LogContent(Value):
    """The extent of a log: its last index, its first retained index (0: none), its newest snapshot's index (0: none).

    `last_index` is at least `snapshot_index`.
    """

    last_index: int = 0
    first_index: int = 0
    snapshot_index: int = 0


class LogBatch(NamedTuple):
    """Commands that became durable together; the first one has `first_index`."""

    first_index: int
    commands: Sequence[bytes]


@runtime_checkable
class LogEngine(Protocol):
    """Stores one server's command log in a folder that belongs to it."""

    name: str

    async def open(self, folder: str) -> LogContent:
        """Lock the existing folder and read its content; raises Conflict when it is in use or damaged."""
        ...

    async def append(self, batch: LogBatch) -> None:
        """Make the commands durable, all or none, as one batch.

        Raises Conflict when the batch does not begin at the next index, Unavailable when its outcome is unknown.
        """
        ...

    def read(self, after: int) -> AsyncIterator[LogBatch]:
        """The batches with a command above an index, oldest first; raises Conflict when one of them is missing."""
        ...

    async def save_snapshot(self, index: int, chunks: Iterable[bytes]) -> None:
        """Store the state at an index, durable on return; the chunks are encoded while they are read: use a thread."""
        ...

    async def load_snapshot(self, up_to: int | None) -> tuple[int, Iterable[bytes]] | None:
        """The newest intact snapshot that is not above an index, and its index; None when there is none."""
        ...

    async def trim(self, below: int) -> None:
        """Delete batches that lie wholly below an index and that the two newest snapshots do not need.

        More may be kept.
        """
        ...

    async def scrub(self) -> str:
        """Verify all stored data, slowly; returns a description of the damage, "" for none."""
        ...

    async def close(self) -> None:
        """Unlock the folder; may be called again, and on an engine that was not opened."""
        ...
