"""What a client keeps on disk so that a restarted agent finds its tasks again.

Every call is durable when it returns. Records carry a digest; one that can not be read spoils its own allocation
only, and says so in `AllocRecord.error` (invariant E6).
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from yurt.lifecycle.restarts import RestartWindow
from yurt.sdk.driver import TaskHandle
from yurt.sdk.errors import Conflict
from yurt.sdk.value import Value, no_entries, replace
from yurt.storage.data_dir import DataDir
from yurt.storage.sqlite_worker import SqliteWorker
from yurt.structs.alloc import Allocation, AllocDeploymentStatus, TaskState
from yurt.structs.host_volume import HostVolume

SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS allocs (id TEXT PRIMARY KEY, alloc BLOB NOT NULL, progress BLOB);
"""
DIGEST_BYTES = 8
IDENTITY, SEEN_INDEX, NODE_META, VOLUMES = "identity", "seen_index", "node_meta", "host_volumes"
CSI_USES, NODE_TOKEN = "csi_uses", "node_token"

T = TypeVar("T")


class NodeIdentity(Value):
    """Who this client is to the servers."""

    node_id: str
    secret_id: str


class DynamicMeta(Value):
    """What operators changed of the node's metadata while it ran; None hides a value of the configuration."""

    values: Mapping[str, str | None] = no_entries()


class HostVolumeRecord(Value):
    """A dynamic host volume of the node; one that was registered was there before and stays."""

    volume: HostVolume
    is_registered: bool = False


class CsiUse(Value):
    """A CSI volume that is, or is about to be, mounted for an allocation; `volume` is its name in the group."""

    alloc_id: str
    volume: str
    id: str
    namespace: str
    external_id: str
    plugin_id: str


class TaskRecord(Value):
    """One task as it was last known; the handle finds its present run again, `fetched` are digests of artifacts."""

    state: TaskState = TaskState()
    run: int = 0
    window: RestartWindow = RestartWindow()
    handle: TaskHandle | None = None
    fetched: tuple[str, ...] = ()


class AllocRecord(Value):
    """One allocation as it was last known; `error` is set when its record could not be read."""

    id: str
    alloc: Allocation | None = None
    tasks: Mapping[str, TaskRecord] = no_entries()
    deployment_status: AllocDeploymentStatus | None = None
    error: str = ""


class Progress(Value):
    """How the tasks of an allocation fare."""

    tasks: Mapping[str, TaskRecord] = no_entries()
    deployment_status: AllocDeploymentStatus | None = None


_encoder = msgspec.msgpack.Encoder()
Row = tuple[str, bytes, bytes | None]


class ClientDatabase:
    """The client's records, in a database file or (path None) in memory."""

    def __init__(self, path: Path | None) -> None:
        """Open it; raises Conflict when its folder is in use, broken or of another format version."""
        self._path = path
        self._folder = None if path is None else DataDir(path.parent)
        try:
            self._worker = SqliteWorker(path, schema=SCHEMA, name="client-database")
        except BaseException:
            if self._folder is not None:
                self._folder.close()
            raise

    async def identity(self) -> NodeIdentity | None:
        """Who this client was, or nothing on first start; raises Conflict when the record is broken."""
        return await self._fact(IDENTITY, NodeIdentity)

    async def put_identity(self, identity: NodeIdentity) -> None:
        """Remember who this client is."""
        await self._put_fact(IDENTITY, _sealed(identity))

    async def node_token(self) -> str:
        """The identity that the servers signed for this node, "" for none."""
        return await self._fact(NODE_TOKEN, str) or ""

    async def put_node_token(self, token: str) -> None:
        """Remember the identity that the servers signed."""
        await self._put_fact(NODE_TOKEN, _sealed(token))

    async def node_meta(self) -> DynamicMeta:
        """What was changed of the node's metadata."""
        return await self._fact(NODE_META, DynamicMeta) or DynamicMeta()

    async def put_node_meta(self, meta: DynamicMeta) -> None:
        """Remember what was changed of the node's metadata."""
        await self._put_fact(NODE_META, _sealed(meta))

    async def host_volumes(self) -> tuple[HostVolumeRecord, ...]:
        """The dynamic host volumes of the node."""
        return await self._fact(VOLUMES, tuple[HostVolumeRecord, ...]) or ()

    async def put_host_volumes(self, records: tuple[HostVolumeRecord, ...]) -> None:
        """Remember the dynamic host volumes of the node."""
        await self._put_fact(VOLUMES, _sealed(records))

    async def csi_uses(self) -> tuple[CsiUse, ...]:
        """The CSI volumes that are mounted for allocations."""
        return await self._fact(CSI_USES, tuple[CsiUse, ...]) or ()

    async def put_csi_uses(self, uses: tuple[CsiUse, ...]) -> None:
        """Remember the CSI volumes that are mounted for allocations."""
        await self._put_fact(CSI_USES, _sealed(uses))

    async def seen_index(self) -> int:
        """The index of the newest list of allocations that was taken over."""
        return await self._fact(SEEN_INDEX, int) or 0

    async def put_seen_index(self, index: int) -> None:
        """Remember the index of a list that was taken over."""
        await self._put_fact(SEEN_INDEX, _sealed(index))

    async def allocs(self) -> tuple[AllocRecord, ...]:
        """All allocations known here, in id order."""
        rows: list[Row] = await self._worker.call(
            lambda connection: connection.execute("SELECT id, alloc, progress FROM allocs ORDER BY id").fetchall()
        )
        return tuple(_record(row) for row in rows)

    async def put_alloc(self, alloc: Allocation) -> None:
        """Remember an allocation before anything of it starts; what is known of its tasks stays."""
        data = _sealed(alloc)
        await self._execute(
            "INSERT INTO allocs (id, alloc) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET alloc = excluded.alloc",
            (alloc.id, data),
        )

    async def put_tasks(
        self, alloc_id: str, tasks: Mapping[str, TaskRecord], deployment_status: AllocDeploymentStatus | None
    ) -> None:
        """Remember how the tasks of an allocation fare; an allocation that was forgotten stays so."""
        data = _sealed(Progress(tasks=tasks, deployment_status=deployment_status))
        await self._execute("UPDATE allocs SET progress = ? WHERE id = ?", (data, alloc_id))

    async def delete_alloc(self, alloc_id: str) -> None:
        """Forget an allocation and its tasks."""
        await self._execute("DELETE FROM allocs WHERE id = ?", (alloc_id,))

    async def close(self) -> None:
        """Finish what waits and close the file; calling it again does nothing."""
        await self._worker.close()
        if self._folder is not None:
            self._folder.close()

    async def _execute(self, statement: str, values: tuple[bytes | str, ...]) -> None:
        def run(connection: sqlite3.Connection) -> None:
            connection.execute(statement, values)

        await self._worker.call(run)

    async def _put_fact(self, name: str, data: bytes) -> None:
        await self._execute(
            "INSERT INTO facts (name, data) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET data = excluded.data",
            (name, data),
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
            raise Conflict(
                f'the record "{name}" in {self._path} can not be read: {error}; restore the file from a copy, '
                "or move it away to start as a new node"
            ) from error


def _sealed(value: Value | int | str | tuple[Value, ...]) -> bytes:
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
    return replace(record, tasks=progress.tasks, deployment_status=progress.deployment_status)
