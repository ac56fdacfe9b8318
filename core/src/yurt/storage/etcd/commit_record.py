"""This server's record of the shared log, which detects an etcd that has lost acknowledged entries.

etcd finds damage in its own write-ahead log, but a member whose log was truncated can still win an election among
lagging members. Each server therefore records the newest entry that it has applied (`commit_index`). The file is not
synced: it outlives the process, and after a power failure it may name an older entry, never one that etcd lacks. A
server whose record is ahead of etcd refuses to start.
"""

from __future__ import annotations

import logging
from pathlib import Path

from yurt.sdk.errors import Conflict
from yurt.storage import commit_index
from yurt.storage.commit_index import CommitIndex
from yurt.storage.etcd.key_layout import REPLACE_MEMBER, LogMark
from yurt.storage.etcd.reading import EntryReader

log = logging.getLogger(__name__)


class CommitRecord:
    """The commit index in a server's folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: CommitIndex | None = None
        self._index = 0

    def open(self) -> LogMark:
        """The recorded position; index 0 in a new folder or when the file is damaged. Blocks."""
        try:
            found = commit_index.load(self._folder)
        except Conflict as error:
            log.warning("commit index is damaged, lost etcd entries cannot be detected: error=%s", error)
            found = None
        if found is None:
            found = commit_index.Mark()
            commit_index.create(self._folder, found)
        self._file = CommitIndex(self._folder, is_synced=False)
        self._index = found.index
        return LogMark(index=found.index, digest=found.chain.hex())

    def record(self, mark: LogMark) -> None:
        """Record that this server has applied an entry; the mark is the entry's end."""
        if self._file is not None and mark.index > self._index:
            self._index = mark.index
            try:
                self._file.write(commit_index.Mark(index=mark.index, chain=bytes.fromhex(mark.digest)))
            except OSError as error:
                log.error("recording the commit index failed: folder=%s: error=%s", self._folder, error)
                self.close()

    def close(self) -> None:
        """Close the file; may be called again."""
        if self._file is not None:
            self._file.close()
            self._file = None


async def check(recorded: LogMark, reader: EntryReader, *, last: int, folder: Path) -> None:
    """Raises Conflict when etcd lacks entries that this server has recorded, or holds another history."""
    advice = (
        f"{REPLACE_MEMBER}. Otherwise restore the data of etcd, or restore a snapshot into a new cluster (`yurt "
        "operator snapshot restore`). To go on without them, remove "
        f"{folder / commit_index.NAME} on each server"
    )
    if recorded.index > last:
        raise Conflict(
            f"etcd has lost acknowledged commands: this server has recorded commands up to {recorded.index}, the log "
            f"in etcd ends at {last}: commands {last + 1} to {recorded.index} are lost. {advice}"
        )
    found = await reader.mark_at(recorded.index) if recorded.index else LogMark()
    if found.digest and recorded.digest and found.index == recorded.index and found.digest != recorded.digest:
        raise Conflict(
            f"the log in etcd differs from the record of this server at index {recorded.index}: etcd was probably "
            f"restored from an older backup. {advice}"
        )
