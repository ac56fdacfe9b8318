"""The client's database on disk, from which a restarted agent recovers its tasks.

Every call is durable when it returns. There are two copies, either of which suffices (`client_copies`); who the node is
lies in a file of its own as well. Where both copies are damaged, records that can be read count still: each carries a
digest, and one that can not be read says so in `AllocRecord.error` (invariant E6).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TypeVar

import msgspec

from yurt.lifecycle.device_health import DeviceRecord
from yurt.lifecycle.restarts import RestartWindow
from yurt.sdk.driver import TaskHandle
from yurt.sdk.errors import Conflict
from yurt.sdk.value import Value, no_entries, replace
from yurt.storage import commit_index
from yurt.storage.checksummed_file import read_checked, write_checked
from yurt.storage.client_copies import COPY_NAME, PUT_STAMP, SCHEMA, CellDigests, Cells, Change, Copy, settle
from yurt.storage.commit_index import CommitIndex, Mark
from yurt.storage.data_dir import FORMAT, DataDir
from yurt.storage.sqlite_memory import SqliteMemory
from yurt.storage.sqlite_worker import SqliteWorker, SqlWorker
from yurt.structs.accounting.devices import DeviceAccounting
from yurt.structs.alloc import Allocation, AllocDeploymentStatus, TaskState
from yurt.structs.volumes.host import HostVolume

log = logging.getLogger(__name__)

FORMATS = (FORMAT, "yurt data 2")
IDENTITY_FILE = "identity.json"
DIGEST_BYTES = 8
IDENTITY, SEEN_INDEX, NODE_META, VOLUMES = "identity", "seen_index", "node_meta", "host_volumes"
CSI_USES, NODE_TOKEN, DEVICE_HEALTH, NEW_LOG_INDEX = "csi_uses", "node_token", "device_health", "new_log_index"
CLUSTER_ID = "cluster_id"

T = TypeVar("T")
OpenWorker = Callable[[str], SqlWorker]
"""A function that opens a database with a schema."""


class NodeIdentity(Value):
    """The identity of this client towards the servers."""

    node_id: str
    secret_id: str


class DynamicMeta(Value):
    """Runtime changes of the node's metadata by operators; None hides a configured value."""

    values: Mapping[str, str | None] = no_entries()


class HostVolumeRecord(Value):
    """A dynamic host volume of the node; a registered one existed before and is not removed."""

    volume: HostVolume
    is_registered: bool = False


class CsiUse(Value):
    """A CSI volume that is mounted, or about to be mounted, for an allocation; `volume` is its name in the group."""

    alloc_id: str
    volume: str
    id: str
    namespace: str
    external_id: str
    plugin_id: str


class TaskRecord(Value):
    """The last recorded state of a task; the handle identifies its run, `fetched` has the digests of its artifacts.

    `dynamic_uid` is the id from the pool of users as which the task runs; 0 for none.
    """

    state: TaskState = TaskState()
    run: int = 0
    window: RestartWindow = RestartWindow()
    handle: TaskHandle | None = None
    fetched: tuple[str, ...] = ()
    dynamic_uid: int = 0


class AllocRecord(Value):
    """The last recorded state of an allocation; `error` is set when its record could not be read."""

    id: str
    alloc: Allocation | None = None
    tasks: Mapping[str, TaskRecord] = no_entries()
    deployment_status: AllocDeploymentStatus | None = None
    accounting: DeviceAccounting | None = None
    """The measured use of its devices so far."""
    error: str = ""


class Progress(Value):
    """The states of an allocation's tasks."""

    tasks: Mapping[str, TaskRecord] = no_entries()
    deployment_status: AllocDeploymentStatus | None = None
    accounting: DeviceAccounting | None = None


_encoder = msgspec.msgpack.Encoder()
Row = tuple[str, bytes, bytes | None]


class ClientDatabase:
    """The client's records, in a database file, or in memory if `path` is None."""

    def __init__(self, path: Path | None, *, open_worker: OpenWorker | None = None) -> None:
        """Open the database; raises Conflict when its folder is in use or has another format version.

        `open_worker` opens the database where the calls are carried out otherwise, as on a simulated disk.
        """
        self._path = path
        self._folder = None if path is None else DataDir(path.parent, formats=FORMATS)
        self.damage = ""
        """A report of the damage that was found; "" if there was none."""
        self.is_incomplete = False
        """Whether records may be missing, so that running tasks must be searched for."""
        self._pending: list[Change] = []
        self._commit_index: CommitIndex | None = None
        with ExitStack() as undo:
            if self._folder is not None:
                undo.callback(self._folder.close)
            self._copy = None if path is None or self._folder is None else self._settled(path, self._folder)
            if self._copy is not None:
                undo.callback(self._copy.close)
            self._worker: SqlWorker
            if open_worker is not None:
                self._worker = open_worker(SCHEMA)
            elif path is None:
                self._worker = SqliteMemory(SCHEMA)
            else:
                self._worker = SqliteWorker(path, schema=SCHEMA, name="client-database", on_commit=self._follow)
            undo.pop_all()

    def _settled(self, path: Path, folder: DataDir) -> Copy:
        """The open second copy, after both copies were made intact and equal."""
        is_begun = folder.found_format == FORMATS[-1] or (path.parent / IDENTITY_FILE).exists()
        try:
            self.damage, self.is_incomplete = settle(path, is_begun=is_begun)
            with closing(sqlite3.connect(path)) as connection:
                self._ledger = CellDigests(connection)
            copy = Copy(path.with_name(COPY_NAME))
            commit_index.create(path.parent, Mark(index=self._ledger.number))
            self._commit_index = CommitIndex(path.parent, is_synced=False)
        except sqlite3.Error as error:
            raise Conflict(f"the client's database {path} can not be opened: {error}; check the disk") from error
        folder.has_format()
        return copy

    async def identity(self) -> NodeIdentity | None:
        """The client's identity; None at the first start; raises Conflict when its record is damaged.

        The database and its copy in the same folder repair each other.
        """
        found = await self._fact(IDENTITY, NodeIdentity)
        if self._path is None:
            return found
        path = self._path.parent / IDENTITY_FILE
        recorded = await asyncio.to_thread(_recorded_identity, path)
        if found is None and recorded is not None:
            log.warning("the node's identity is taken from its file: path=%s node=%s", path, recorded.node_id)
            await self._put_fact(IDENTITY, _sealed(recorded))
        elif found is not None and recorded != found:
            await asyncio.to_thread(write_checked, path, msgspec.json.encode(found))
        return found or recorded

    async def put_identity(self, identity: NodeIdentity) -> None:
        """Store the client's identity."""
        if self._path is not None:
            path = self._path.parent / IDENTITY_FILE
            await asyncio.to_thread(write_checked, path, msgspec.json.encode(identity))
        await self._put_fact(IDENTITY, _sealed(identity))

    async def text(self, name: str) -> str:
        """The node identity token signed by the servers (`NODE_TOKEN`), or the ID of the cluster of the newest adopted
        list of allocations (`CLUSTER_ID`); "" without one."""
        return await self._fact(name, str) or ""

    async def put_text(self, name: str, text: str) -> None:
        """Store what `text` reads."""
        await self._put_fact(name, _sealed(text))

    async def node_meta(self) -> DynamicMeta:
        """The changes of the node's metadata."""
        return await self._fact(NODE_META, DynamicMeta) or DynamicMeta()

    async def put_node_meta(self, meta: DynamicMeta) -> None:
        """Store the changes of the node's metadata."""
        await self._put_fact(NODE_META, _sealed(meta))

    async def host_volumes(self) -> tuple[HostVolumeRecord, ...]:
        """The dynamic host volumes of the node."""
        return await self._fact(VOLUMES, tuple[HostVolumeRecord, ...]) or ()

    async def put_host_volumes(self, records: tuple[HostVolumeRecord, ...]) -> None:
        """Store the dynamic host volumes of the node."""
        await self._put_fact(VOLUMES, _sealed(records))

    async def csi_uses(self) -> tuple[CsiUse, ...]:
        """The CSI volumes mounted for allocations."""
        return await self._fact(CSI_USES, tuple[CsiUse, ...]) or ()

    async def put_csi_uses(self, uses: tuple[CsiUse, ...]) -> None:
        """Store the CSI volumes mounted for allocations."""
        await self._put_fact(CSI_USES, _sealed(uses))

    async def device_health(self) -> Mapping[str, DeviceRecord]:
        """The health of the node's devices, by key."""
        return await self._fact(DEVICE_HEALTH, dict[str, DeviceRecord]) or {}

    async def put_device_health(self, records: Mapping[str, DeviceRecord]) -> None:
        """Store the health of the node's devices."""
        await self._put_fact(DEVICE_HEALTH, _sealed(records))

    async def seen_index(self, name: str = SEEN_INDEX) -> int:
        """The index of the newest adopted list of allocations; or with `NEW_LOG_INDEX` that of a registration in a new
        log of which no list is adopted yet, 0 without one."""
        return await self._fact(name, int) or 0

    async def put_seen_index(self, index: int, name: str = SEEN_INDEX) -> None:
        """Store an index as `seen_index` reads it."""
        await self._put_fact(name, _sealed(index))

    async def allocs(self) -> tuple[AllocRecord, ...]:
        """All stored allocations, in id order."""
        rows: list[Row] = await self._worker.call(
            lambda connection: connection.execute("SELECT id, alloc, progress FROM allocs ORDER BY id").fetchall()
        )
        return tuple(_record(row) for row in rows)

    async def put_alloc(self, alloc: Allocation) -> None:
        """Store an allocation before any part of it starts; keeps the records of its tasks."""
        data = _sealed(alloc)
        await self._execute(
            "INSERT INTO allocs (id, alloc) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET alloc = excluded.alloc",
            (alloc.id, data),
            {f"alloc/{alloc.id}": data},
        )

    async def put_tasks(
        self,
        alloc_id: str,
        tasks: Mapping[str, TaskRecord],
        deployment_status: AllocDeploymentStatus | None,
        accounting: DeviceAccounting | None = None,
    ) -> None:
        """Store the states of an allocation's tasks and the use of its devices; ignored for a deleted allocation."""
        data = _sealed(Progress(tasks=tasks, deployment_status=deployment_status, accounting=accounting))
        await self._execute(
            "UPDATE allocs SET progress = ? WHERE id = ?", (data, alloc_id), {f"progress/{alloc_id}": data}
        )

    async def delete_alloc(self, alloc_id: str) -> None:
        """Delete an allocation and its tasks."""
        cells: Cells = {f"alloc/{alloc_id}": None, f"progress/{alloc_id}": None}
        await self._execute("DELETE FROM allocs WHERE id = ?", (alloc_id,), cells)

    async def close(self) -> None:
        """Finish pending calls and close the file; may be called again."""
        await self._worker.close()
        if self._copy is not None:
            self._copy.close()
        if self._commit_index is not None:
            self._commit_index.close()
        if self._folder is not None:
            self._folder.close()

    async def _execute(self, statement: str, values: tuple[bytes | str, ...], cells: Cells) -> None:
        """Set new values of cells."""

        def run(connection: sqlite3.Connection) -> None:
            is_changed = connection.execute(statement, values).rowcount > 0
            if is_changed and self._path is not None:
                connection.execute(PUT_STAMP, (self._ledger.change(cells),))
                self._pending.append((statement, values))

        await self._worker.call(run)

    def _follow(self) -> None:
        """Apply committed changes to the second copy; called in the worker's thread."""
        if self._pending and self._copy is not None:
            self._copy.apply(self._pending, self._ledger.stamp())
            self._pending.clear()
            if self._commit_index is not None:
                self._commit_index.write(Mark(index=self._ledger.number))

    async def _put_fact(self, name: str, data: bytes) -> None:
        await self._execute(
            "INSERT INTO facts (name, data) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET data = excluded.data",
            (name, data),
            {f"fact/{name}": data},
        )

    async def _fact(self, name: str, kind: type[T]) -> T | None:
        row: tuple[bytes] | None = await self._worker.call(
            lambda connection: connection.execute("SELECT data FROM facts WHERE name = ?", (name,)).fetchone()
        )
        if row is None:
            return None
        try:
            return _unsealed(row[0], kind)
        except (ValueError, msgspec.DecodeError) as error:
            if self.is_incomplete:
                log.error("a record of the client's database is lost: name=%s path=%s", name, self._path)
                return None
            raise Conflict(
                f'the record "{name}" in {self._path} can not be read: {error}; restore the file from a copy, '
                "or move it away to start as a new node"
            ) from error


def _recorded_identity(path: Path) -> NodeIdentity | None:
    try:
        return msgspec.json.decode(read_checked(path), type=NodeIdentity)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, msgspec.DecodeError) as error:
        log.warning("the file of the node's identity is damaged: path=%s: %s", path, error)
        return None


def _sealed(value: Value | int | str | tuple[Value, ...] | Mapping[str, Value]) -> bytes:
    data = _encoder.encode(value)
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest() + data


def _unsealed(sealed: bytes, kind: type[T]) -> T:
    digest, data = sealed[:DIGEST_BYTES], sealed[DIGEST_BYTES:]
    if digest != hashlib.blake2b(data, digest_size=DIGEST_BYTES).digest():
        raise ValueError("its content does not fit its digest")
    return msgspec.msgpack.decode(data, type=kind)


def _record(row: Row) -> AllocRecord:
    record = AllocRecord(id=row[0])
    try:
        record = replace(record, alloc=_unsealed(row[1], Allocation))
        progress = Progress() if row[2] is None else _unsealed(row[2], Progress)
    except (ValueError, msgspec.DecodeError) as error:
        return replace(record, error=f"the stored record can not be read: {error}")
    return replace(
        record,
        tasks=progress.tasks,
        deployment_status=progress.deployment_status,
        accounting=progress.accounting,
    )
