"""Snapshots of the state: a stream of chunks, and a digest that says whether two states are the same.

A stream is a header, then for each table chunks of at most 1,000 rows, then an end mark with the number of rows.
Jobs and resources are written once, in chunks of their own before the first row that refers to them by number, so
that allocations that shared them share them again after a restore. Strings that repeat within a chunk are shared
too. Columns are derived and are not in the stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.state.store import INDEXES, JobKey, Snapshot, VersionKey
from yurt.state.table import Table, TableEditor
from yurt.structs.alloc import AllocatedResources, Allocation
from yurt.structs.cluster import DriverSchema, Namespace, NodePool, PeriodicLaunch, RestoreChunk, SchedulerConfiguration
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, JobScalingEvents, JobSubmission
from yurt.structs.node import Node
from yurt.structs.plan import StagedPlan
from yurt.structs.service import ServiceRegistration
from yurt.structs.summary import JobSummary
from yurt.structs.variable import EncryptedVariable, RootKeyMeta

FORMAT = 1
CHUNK_ROWS = 1_000
JOBS, RESOURCES, END = "*jobs", "*resources", "*end"
"""Kinds of chunks that are not rows of a table."""

ROWS: dict[str, Any] = {
    "jobs": tuple[JobKey, int],
    "job_versions": tuple[VersionKey, int],
    "job_summaries": tuple[JobKey, JobSummary],
    "job_submissions": tuple[VersionKey, JobSubmission],
    "scaling_events": tuple[JobKey, JobScalingEvents],
    "nodes": tuple[str, Node],
    "evals": tuple[str, Evaluation],
    "allocs": tuple[int, int, Allocation],
    "deployments": tuple[str, Deployment],
    "services": tuple[str, ServiceRegistration],
    "variables": tuple[tuple[str, str], EncryptedVariable],
    "root_keys": tuple[str, RootKeyMeta],
    "namespaces": tuple[str, Namespace],
    "node_pools": tuple[str, NodePool],
    "scheduler_config": tuple[str, SchedulerConfiguration],
    "periodic_launches": tuple[JobKey, PeriodicLaunch],
    "schemas": tuple[tuple[str, str], DriverSchema],
    "restore_chunks": tuple[tuple[str, int], RestoreChunk],
    "staged_plans": tuple[tuple[str, int], StagedPlan],
}
"""How the rows of each table are written; a number stands for a shared job or for shared resources."""

NO_JOB = -1
NO_RESOURCES = AllocatedResources()
INTERNED = (
    "namespace", "eval_id", "node_id", "node_name", "job_id", "task_group", "desired_status", "desired_description",
    "client_status", "client_description", "deployment_id",
)  # fmt: skip
"""Strings of allocations that repeat."""

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_envelope = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_row_decoders = {name: msgspec.msgpack.Decoder(list[row]) for name, row in ROWS.items()}  # type: ignore[valid-type]
_jobs_decoder = msgspec.msgpack.Decoder(list[Job])
_resources_decoder = msgspec.msgpack.Decoder(list[AllocatedResources])
_count_decoder = msgspec.msgpack.Decoder(int)


class Header(msgspec.Struct, frozen=True):
    """The first chunk: the format, the index of the state, and the index of each table."""

    format: int
    index: int
    tables: dict[str, int]


_header_decoder = msgspec.msgpack.Decoder(Header)


class _Pool(Generic[T]):
    """Numbers for shared objects, by identity: the state that is written keeps them alive."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._numbers: dict[int, int] = {}
        self._fresh: list[T] = []

    def number(self, value: T) -> int:
        """The object's number; a new one is written before the rows that use it."""
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._numbers)
            self._fresh.append(value)
        return number

    def flush(self) -> Iterator[bytes]:
        """The objects numbered since the last time."""
        fresh, self._fresh = self._fresh, []
        for start in range(0, len(fresh), CHUNK_ROWS):
            yield _encoder.encode((self._kind, fresh[start : start + CHUNK_ROWS]))


def encode(state: Snapshot) -> Iterator[bytes]:
    """The state as a stream of chunks."""
    yield _encoder.encode(Header(FORMAT, state.index, {table.name: table.index for table in state.tables()}))
    jobs: _Pool[Job] = _Pool(JOBS)
    resources: _Pool[AllocatedResources] = _Pool(RESOURCES)
    for table in state.tables():
        for rows in _batches(table):
            written = [_written(table.name, key, row, jobs=jobs, resources=resources) for key, row in rows]
            yield from jobs.flush()
            yield from resources.flush()
            yield _encoder.encode((table.name, written))
    yield _encoder.encode((END, sum(len(table) for table in state.tables())))


def decode(chunks: Iterable[bytes]) -> Snapshot:
    """The state that a stream was made from; raises Invalid when the stream is cut short or of another format."""
    stream = iter(chunks)
    try:
        header = _header_decoder.decode(next(stream, b""))
        if header.format != FORMAT:
            raise Invalid(f"the snapshot has format {header.format}, this version reads format {FORMAT}")
        reader = _Reader()
        for chunk in stream:
            reader.read(chunk)
        return reader.finish(header)
    except (msgspec.DecodeError, KeyError, IndexError) as error:
        raise Invalid(f"the snapshot is broken: {error}") from error


def digest(state: Snapshot) -> str:
    """A hash of all that the state holds; equal for equal states, whatever their history.

    It is made from texts that hold every field: which of them an encoder leaves out depends on more than content.
    """
    hasher = hashlib.blake2b(repr(state.index).encode(), digest_size=16)
    jobs: dict[int, str] = {}
    for table in state.tables():
        hasher.update(repr((table.name, table.index, len(table))).encode())
        for key in sorted(table.keys()):
            row = table[key]
            whose = ""
            if isinstance(row, Allocation) and row.job is not None:
                whose = jobs.get(id(row.job)) or jobs.setdefault(id(row.job), _text_digest(row.job))
                row = replace(row, job=None)
            hasher.update(repr((key, whose, row)).encode())
    return hasher.hexdigest()


def _text_digest(job: Job) -> str:
    return hashlib.blake2b(repr(job).encode(), digest_size=16).hexdigest()


def _batches(table: Table[Any, Any]) -> Iterator[list[tuple[Hashable, Any]]]:
    batch: list[tuple[Hashable, Any]] = []
    for item in table.items():
        batch.append(item)
        if len(batch) == CHUNK_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _written(
    table: str, key: Hashable, row: Any, *, jobs: _Pool[Job], resources: _Pool[AllocatedResources]
) -> tuple[Any, ...]:
    if isinstance(row, Job):
        return (key, jobs.number(row))
    if isinstance(row, Allocation):
        job = NO_JOB if row.job is None else jobs.number(row.job)
        shared = resources.number(row.allocated_resources)
        return (job, shared, replace(row, job=None, allocated_resources=NO_RESOURCES))
    return (key, row)


class _Reader:
    """Tables under construction."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._resources: list[AllocatedResources] = []
        self._newest: dict[VersionKey, Job] = {}
        self._editors: dict[str, TableEditor[Any, Any]] = {
            name: Table(name, extract).edit() for name, extract in INDEXES.items()
        }
        self._rows = 0
        self._rows_told = -1

    def read(self, chunk: bytes) -> None:
        kind, body = _envelope.decode(chunk)
        if kind == JOBS:
            self._jobs.extend(map(self._shared, _jobs_decoder.decode(body)))
        elif kind == RESOURCES:
            self._resources.extend(_resources_decoder.decode(body))
        elif kind == END:
            self._rows_told = _count_decoder.decode(body)
        else:
            self._read_rows(kind, _row_decoders[kind].decode(body))

    def finish(self, header: Header) -> Snapshot:
        if self._rows != self._rows_told:
            raise Invalid(f"the snapshot is incomplete: {self._rows} rows, not {max(self._rows_told, 0)}")
        tables: dict[str, Table[Any, Any]] = {}
        for name, editor in self._editors.items():
            editor.is_changed = True
            tables[name] = editor.finish(header.tables.get(name, 0))

        return Snapshot(header.index, tables)

    def _read_rows(self, table: str, rows: list[Any]) -> None:
        editor = self._editors[table]
        self._rows += len(rows)
        if table == "allocs":
            strings: dict[str, str] = {}
            for job, resources, alloc in rows:
                editor.put(alloc.id, self._whole(alloc, job, resources, strings=strings))
        elif table in ("jobs", "job_versions"):
            for key, job in rows:
                editor.put(key, self._jobs[job])
        else:
            for key, row in rows:
                editor.put(key, row)

    def _whole(self, alloc: Allocation, job: int, resources: int, *, strings: dict[str, str]) -> Allocation:
        shared: Mapping[str, str] = {
            field: strings.setdefault(value, value) for field in INTERNED if (value := getattr(alloc, field))
        }
        whose = None if job == NO_JOB else self._jobs[job]
        return replace(alloc, job=whose, allocated_resources=self._resources[resources], **shared)

    def _shared(self, job: Job) -> Job:
        """One version is often there with several statuses: they share their groups."""
        key = (job.namespace, job.id, job.version)
        other = self._newest.get(key)
        if other is not None and other.task_groups == job.task_groups:
            return replace(job, task_groups=other.task_groups)
        self._newest[key] = job
        return job
