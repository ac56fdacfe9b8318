"""Two redundant copies of the client's database.

Every change goes into `client.db`, durably, and then into `client-copy.db`, which is not synced: it is there for
damage, not for a loss of power, after which no task runs. Each copy has a stamp: the number of its last change, and the
sum of the digests of all its cells. A copy whose cells do not add up is damaged; of two sound ones the newer counts,
since SQLite takes a damaged frame of its write-ahead log for the log's end.

A third file has the number of the last change alone (`commit_index`, not synced): both copies may have lost their ends.
Only where both are damaged something is lost. Then whatever is still readable counts, and the caller learns that it
is incomplete: it looks for what runs before it starts anything.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from yurt.sdk.errors import Conflict
from yurt.sdk.value import Value
from yurt.storage import commit_index
from yurt.storage.data_dir import sync_folder

log = logging.getLogger(__name__)

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS allocs (id TEXT PRIMARY KEY, alloc BLOB NOT NULL, progress BLOB);
CREATE TABLE IF NOT EXISTS stamp (only INTEGER PRIMARY KEY, data BLOB NOT NULL);
"""
COPY_NAME: Final = "client-copy.db"
ABSENT, UNSTAMPED, SOUND, DAMAGED = "absent", "of an earlier version", "sound", "damaged"
DIGEST_BYTES: Final = 16
MODULUS: Final = 1 << (8 * DIGEST_BYTES)
PUT_STAMP: Final = "INSERT OR REPLACE INTO stamp (only, data) VALUES (0, ?)"
Cells = dict[str, bytes | None]
Change = tuple[str, tuple[bytes | str, ...]]


class Stamp(Value):
    """The number of the last change, and the sum of the digests of all cells."""

    number: int = 0
    total: bytes = bytes(DIGEST_BYTES)


class CopyWorth(msgspec.Struct, frozen=True):
    """The condition of a copy, by which the better one is chosen."""

    kind: str
    number: int = 0
    problem: str = ""


class CopyChoice(NamedTuple):
    """The condition of the database at the start: damage to report ("": none), and whether records may be missing."""

    damage: str = ""
    is_incomplete: bool = False


def cell_digest(name: str, data: bytes) -> int:
    """A cell's contribution to the sum."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=DIGEST_BYTES, key=_key(name)).digest(), "big")


def _key(name: str) -> bytes:
    return hashlib.blake2b(name.encode(), digest_size=32).digest()


class CellDigests:
    """The digests of all cells and the resulting stamp."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._cells = dict(_digests(connection))
        self._total = sum(self._cells.values()) % MODULUS
        self._number = _stamp(connection).number

    @property
    def number(self) -> int:
        """The number of the last change."""
        return self._number

    def stamp(self) -> bytes:
        """The stamp of the present cells."""
        return _encoded(Stamp(number=self._number, total=self._total.to_bytes(DIGEST_BYTES, "big")))

    def change(self, cells: Cells) -> bytes:
        """Record changed cells (None removes one) and return the new stamp."""
        for name, data in cells.items():
            digest = 0 if data is None else cell_digest(name, data)
            self._total = (self._total + digest - self._cells.pop(name, 0)) % MODULUS
            if data is not None:
                self._cells[name] = digest
        self._number += 1
        return self.stamp()


class Copy:
    """The open second copy; a failing copy is abandoned and created again at the next start."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = _writable(path, synchronous="OFF")

    def apply(self, changes: Iterable[Change], stamp: bytes) -> None:
        """Apply the changes of the first copy."""
        if self._connection is None:
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for statement, values in changes:
                self._connection.execute(statement, values)
            self._connection.execute(PUT_STAMP, (stamp,))
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            log.error("the copy of the client's database failed and is created again at the next start: path=%s: %s",
                      self._path, error)  # fmt: skip
            self.close()

    def close(self) -> None:
        """Close the file; may be called again."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def settle(path: Path, *, is_begun: bool) -> CopyChoice:
    """Bring both copies to the newest intact content; blocks.

    `is_begun`: the client has run before, so that a database that is not there was lost.
    """
    copy = path.with_name(COPY_NAME)
    first, second = look(path), look(copy)
    choice = CopyChoice()
    if second.kind == SOUND and (first.kind != SOUND or first.number < second.number):
        choice = _restored(path, copy, first)
    elif first.kind in (DAMAGED, ABSENT):
        choice = _lost(path, first, second, is_begun=is_begun)
    elif second.kind == DAMAGED:
        choice = CopyChoice(
            f"the copy {copy} of the client's database was damaged ({second.problem}) and is created again"
        )
    newest = max(found.number if found.kind == SOUND else 0 for found in (first, second))
    if _recorded_number(path) > newest and not choice.is_incomplete:
        message = f"both copies of the client's database {path} lack its newest changes"
        choice = CopyChoice(f"{message}: the node looks for the tasks that run here", is_incomplete=True)
    _remade(path, copy)
    if choice.damage:
        log.log(
            logging.ERROR if choice.is_incomplete else logging.WARNING, "client database damaged: %s", choice.damage
        )
    return choice


def _recorded_number(path: Path) -> int:
    """The number of the last change from the commit index in the same folder; 0 if that is missing or damaged."""
    try:
        mark = commit_index.load(path.parent)
    except Conflict as error:
        log.warning("client state copy is recreated: error=%s", error)
        return 0
    return 0 if mark is None else mark.index


def look(path: Path) -> CopyWorth:
    """Examine a copy without changing it."""
    if not path.exists():
        return CopyWorth(ABSENT, problem="it is gone")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            if not {"facts", "allocs"} <= tables:
                return CopyWorth(DAMAGED if tables else ABSENT, problem="its tables are missing")
            if "stamp" not in tables:
                return CopyWorth(UNSTAMPED)
            stamp = _stamp(connection)
            total = sum(digest for _, digest in _digests(connection)) % MODULUS
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:
        return CopyWorth(DAMAGED, problem=str(error))
    if total.to_bytes(DIGEST_BYTES, "big") != stamp.total:
        return CopyWorth(DAMAGED, problem="its records do not add up")
    return CopyWorth(SOUND, stamp.number)


def _restored(path: Path, copy: Path, first: CopyWorth) -> CopyChoice:
    """Replace the first copy with the second."""
    problem = first.problem or "its newest changes are missing"
    aside = _set_aside(path)
    _backup(copy, path)
    backup_text = f"; the old files are in {aside}" if aside else ""
    return CopyChoice(
        f"the client's database {path} was damaged ({problem}): all of it was restored from its copy{backup_text}"
    )


def _lost(path: Path, first: CopyWorth, second: CopyWorth, *, is_begun: bool) -> CopyChoice:
    """Keep the readable records of the first copy when both copies are damaged."""
    if first.kind == ABSENT and second.kind == ABSENT and not is_begun:
        return CopyChoice()
    message = (
        f"the client's database {path} was damaged ({first.problem}), and its copy is damaged too ({second.problem})"
    )
    if first.kind == DAMAGED and not _is_readable(path):
        aside = _set_aside(path)
        message = f"{message}; the old files are in {aside}"
    return CopyChoice(
        f"{message}: the node looks for the tasks that run here, and asks its servers for the rest", is_incomplete=True
    )


def _is_readable(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            sum(1 for _ in _digests(connection))
            return connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    except (sqlite3.DatabaseError, TypeError):
        return False


def _remade(path: Path, copy: Path) -> None:
    """Stamp the first copy and create the second one from it."""
    with closing(_writable(path, synchronous="FULL")) as connection:
        try:
            number = _stamp(connection).number
        except ValueError:
            number = 0
        total = sum(digest for _, digest in _digests(connection)) % MODULUS
        stamp = Stamp(number=number, total=total.to_bytes(DIGEST_BYTES, "big"))
        connection.execute(PUT_STAMP, (_encoded(stamp),))
    for name in _names(copy):
        copy.with_name(name).unlink(missing_ok=True)
    _backup(path, copy)


def _backup(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as reader, closing(sqlite3.connect(target)) as writer:
        reader.backup(writer)
    target.chmod(0o600)
    sync_folder(target.parent)


def _set_aside(path: Path) -> Path | None:
    """Keep damaged files for analysis, replacing those of an earlier incident."""
    found = [name for name in _names(path) if path.with_name(name).exists()]
    if not found:
        return None
    aside = path.with_name("damaged")
    aside.mkdir(exist_ok=True, mode=0o700)
    for name in found:
        path.with_name(name).replace(aside / name)
    return aside


def _names(path: Path) -> tuple[str, ...]:
    return path.name, f"{path.name}-wal", f"{path.name}-shm"


def _writable(path: Path, *, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    connection.executescript(SCHEMA)
    return connection


def _digests(connection: sqlite3.Connection) -> Iterable[tuple[str, int]]:
    for name, data in connection.execute("SELECT name, data FROM facts"):
        yield f"fact/{name}", cell_digest(f"fact/{name}", data)
    for alloc_id, alloc, progress in connection.execute("SELECT id, alloc, progress FROM allocs"):
        yield f"alloc/{alloc_id}", cell_digest(f"alloc/{alloc_id}", alloc)
        if progress is not None:
            yield f"progress/{alloc_id}", cell_digest(f"progress/{alloc_id}", progress)


def _encoded(stamp: Stamp) -> bytes:
    data = msgspec.msgpack.encode(stamp)
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest() + data


def _stamp(connection: sqlite3.Connection) -> Stamp:
    """The stamp, an initial one if missing; raises ValueError when it is damaged."""
    row = connection.execute("SELECT data FROM stamp WHERE only = 0").fetchone()
    if row is None:
        return Stamp()
    digest, data = row[0][:DIGEST_BYTES], row[0][DIGEST_BYTES:]
    if digest != hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest():
        raise ValueError("its stamp is damaged")
    try:
        return msgspec.msgpack.decode(data, type=Stamp)
    except msgspec.DecodeError as error:
        raise ValueError(f"its stamp cannot be read: {error}") from error
