"""Checks before a SQLite log is opened: all acknowledged entries must be present.

Nothing is changed before the check has passed: a damaged write-ahead log is evidence, and the next writer would cut it.
The commit index (`commit_index`) is the last acknowledged position:

    the log ends at it          all is there; a batch that was torn by a crash was never acknowledged, and is gone
    the log ends above it       the crash came between commit and answer: the batch is kept
    the log ends below it       lost, unless a whole snapshot reaches up to it
    another entry ends there    the log is not the one that was acknowledged

A folder of the format before has no commit index: it gets one for what its log holds.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from yurt.sdk.errors import Conflict
from yurt.storage import commit_index, snapshot_files
from yurt.storage.commit_index import Mark
from yurt.storage.data_dir import FORMAT, DataDir
from yurt.storage.log_rows import Extent, extent

log = logging.getLogger(__name__)

FORMATS: Final = (FORMAT, "yurt data 2")
SNAPSHOTS: Final = "snapshots"


class Opened(NamedTuple):
    """The content of the folder: the log's rows, the newest intact snapshot, and the acknowledged position."""

    rows: Extent
    snapshot: int
    acknowledged: Mark


def advice(path: Path) -> str:
    """The advice to an operator whose log has lost entries."""
    data_dir = path.parent.parent if path.parent.name == "server" else path.parent
    return (
        f"Restore {path.parent} from a copy; or start with an empty data_dir and "
        "`yurt operator snapshot restore FILE`; "
        f"or give up the lost entries: `yurt operator raft recover {data_dir}` reports them"
    )


def lost(path: Path, first: int, last: int, why: str) -> Conflict:
    """The error for missing acknowledged commands."""
    which = f"command {last} is" if first == last else f"commands {first} to {last} are"
    return Conflict(f"the log {path} has lost acknowledged entries: {which} missing ({why}). {advice(path)}")


def check(folder: DataDir, path: Path) -> Opened:
    """Check the folder of a log, and initialise a new or upgrade an old one; blocks. Raises Conflict for lost
    entries."""
    snapshot = snapshot_files.newest_index(path.parent / SNAPSHOTS)
    mark = _acknowledged(folder, path)
    if mark is None:
        return _begin(folder, path, snapshot)
    folder.has_format()
    try:
        rows = extent(path, mark.index)
    except sqlite3.DatabaseError as error:
        raise _unreadable(path, error, snapshot=snapshot, acknowledged=mark.index) from error
    if rows.last < mark.index and snapshot < mark.index:
        raise lost(path, max(rows.last, snapshot) + 1, mark.index, _why_short(path, rows))
    if rows.last >= mark.index > 0 and rows.at_mark != mark.chain:
        raise Conflict(
            f"the log {path} is not the one that was acknowledged: its entry at index {mark.index} is another one. "
            f"Somebody has put an older or a foreign copy of a file in place. {advice(path)}"
        )
    if rows.last > mark.index:
        log.info("a crash came before the last commands were answered, they are kept: log=%s above=%d last=%d",
                 path, mark.index, rows.last)  # fmt: skip
    if rows.last < mark.index:
        rows = _without_rows(path, rows, snapshot)
    _check_begin(path, rows, snapshot)
    return Opened(rows, snapshot, mark)


def _acknowledged(folder: DataDir, path: Path) -> Mark | None:
    """The commit index; None for a folder without one. Raises Conflict if it is missing and must exist."""
    problem = f"the commit index {path.parent / commit_index.NAME} is gone"
    try:
        mark = commit_index.load(path.parent)
    except Conflict as error:
        mark, problem = None, str(error)
    else:
        is_old = folder.found_format == FORMATS[0]
        if mark is not None or is_old or (not folder.found_format and not _has_log(path)):
            return mark
    raise Conflict(
        f"{problem}: the log {path} may lack acknowledged commands. Restore {path.parent} "
        f"from a copy; or, when only this file is damaged, accept what the log holds: `yurt operator raft recover` on "
        f"the data_dir"
    )


def _has_log(path: Path) -> bool:
    return path.exists() or path.with_name(f"{path.name}-wal").exists() or (path.parent / SNAPSHOTS).exists()


def _begin(folder: DataDir, path: Path, snapshot: int) -> Opened:
    """Create the commit index of a new or old folder, and only then record the format that requires it."""
    try:
        rows = extent(path, 0)
    except sqlite3.DatabaseError as error:
        raise _unreadable(path, error, snapshot=snapshot, acknowledged=0) from error
    _check_begin(path, rows, snapshot)
    mark = Mark(index=max(rows.last, snapshot), chain=rows.chain if rows.last >= snapshot else b"")
    if mark.index:
        log.info("the log has no commit index yet, it gets one for what it holds: log=%s index=%d", path, mark.index)
    commit_index.create(path.parent, mark)
    folder.has_format()
    return Opened(rows, snapshot, mark)


def _check_begin(path: Path, rows: Extent, snapshot: int) -> None:
    if rows.first > snapshot + 1:
        raise Conflict(
            f"the log {path} begins at index {rows.first} and no whole snapshot reaches up to it: commands "
            f"{snapshot + 1} to {rows.first - 1} are lost. {advice(path)}"
        )


def _unreadable(path: Path, error: Exception, *, snapshot: int, acknowledged: int) -> Conflict:
    if 0 < acknowledged <= snapshot:
        consequence = f"the newest snapshot holds all that was acknowledged, up to index {snapshot}"
    else:
        last = f"up to {acknowledged}" if acknowledged else "that were acknowledged"
        consequence = f"commands from {snapshot + 1} on, {last}, may be lost"
    return Conflict(f"the database {path} can not be read ({error}): {consequence}. {advice(path)}")


def _why_short(path: Path, rows: Extent) -> str:
    if not path.exists():
        return "the file is gone"
    return f"the log ends at index {rows.last}" if rows.last else "the log is empty"


def _without_rows(path: Path, rows: Extent, snapshot: int) -> Extent:
    """Discard the rows of a log that ends before its newest snapshot."""
    if rows.last or not path.exists():
        log.warning("the log has lost its end and starts again from a snapshot that covers it: "
                    "log=%s last=%d snapshot=%d", path, rows.last, snapshot)  # fmt: skip
    if rows.last:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("DELETE FROM entries")
    return Extent()
