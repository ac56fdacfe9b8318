"""Snapshots of the state: a stream of chunks, and a digest that says whether two states are the same.

A stream is a header, then for each table chunks of at most 1,000 rows, then an end mark with the number of rows.
Jobs and resources are written once, in chunks of their own before the first row that refers to them by number, so
that allocations that shared them share them again after a restore. Strings that repeat within a chunk are shared
too. Columns are derived and are not in the stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Generic, TypeVar

import msgspec

from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.state.store import INDEXES, JobKey, Snapshot, VersionKey
from yurt.state.table import Table, TableEditor
from yurt.structs.alloc import AllocatedResources, Allocation
from yurt.structs.cluster import (
    AutopilotConfiguration,
    DriverSchema,
    Namespace,
    NodePool,
    PeriodicLaunch,
    RestoreChunk,
    SchedulerConfiguration,
)
from yurt.structs.csi_volume import CSIVolume
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.host_volume import HostVolume, TaskGroupHostVolumeClaim
from yurt.structs.job import Job, JobScalingEvents, JobSubmission
from yurt.structs.metrics import AllocationMetric, NodeScoreMeta
from yurt.structs.node import Node
from yurt.structs.plan import StagedPlan
from yurt.structs.service import ServiceRegistration
from yurt.structs.summary import JobSummary
from yurt.structs.variable import EncryptedVariable, RootKeyMeta

FORMAT = 2
READABLE = (1, FORMAT)
"""Format 1 had the scores of each allocation in its row."""
CHUNK_ROWS = 1_000
JOBS, RESOURCES, METRICS, PARTS, SCORES, END = "*jobs", "*resources", "*metrics", "*parts", "*scores", "*end"
"""Kinds of chunks that are not rows of a table."""

ROWS: dict[str, Any] = {
    "jobs": tuple[JobKey, int],
    "job_versions": tuple[VersionKey, int],
    "job_summaries": tuple[JobKey, JobSummary],
    "job_submissions": tuple[VersionKey, JobSubmission],
    "scaling_events": tuple[JobKey, JobScalingEvents],
    "nodes": tuple[str, Node],
    "evals": tuple[str, Evaluation],
    "allocs": tuple[int, int, int, tuple[int, ...], Allocation],
    "deployments": tuple[str, Deployment],
    "services": tuple[str, ServiceRegistration],
    "variables": tuple[tuple[str, str], EncryptedVariable],
    "root_keys": tuple[str, RootKeyMeta],
    "namespaces": tuple[str, Namespace],
    "node_pools": tuple[str, NodePool],
    "scheduler_config": tuple[str, SchedulerConfiguration],
    "autopilot_config": tuple[str, AutopilotConfiguration],
    "periodic_launches": tuple[JobKey, PeriodicLaunch],
    "schemas": tuple[tuple[str, str], DriverSchema],
    "restore_chunks": tuple[tuple[str, int], RestoreChunk],
    "staged_plans": tuple[tuple[str, int], StagedPlan],
    "csi_volumes": tuple[tuple[str, str], CSIVolume],
    "host_volumes": tuple[str, HostVolume],
    "host_volume_claims": tuple[str, TaskGroupHostVolumeClaim],
}
"""How the rows of each table are written; a number stands for something shared.

An allocation's row: the numbers of its job, resources and metrics, those of its score table, and the rest of it.
"""
OLD_ALLOC = tuple[int, int, Allocation]

NOTHING = -1
NO_RESOURCES = AllocatedResources()
T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_envelope = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_row_decoders = {name: msgspec.msgpack.Decoder(list[row]) for name, row in ROWS.items()}  # type: ignore[valid-type]
_jobs_decoder = msgspec.msgpack.Decoder(list[Job])
_old_allocs_decoder = msgspec.msgpack.Decoder(list[OLD_ALLOC])
_shared_decoders: dict[str, msgspec.msgpack.Decoder[Any]] = {
    RESOURCES: msgspec.msgpack.Decoder(list[AllocatedResources]),
    METRICS: msgspec.msgpack.Decoder(list[AllocationMetric]),
    PARTS: msgspec.msgpack.Decoder(list[dict[str, float]]),
    SCORES: msgspec.msgpack.Decoder(list[tuple[str, int, float]]),
}
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
        self._numbers: dict[Hashable, int] = {}
        self._fresh: list[T] = []
        self.known = self._numbers.get
        """The number of what has this key, or None."""

    def number(self, value: T) -> int:
        """The object's number; a new one is written before the rows that use it."""
        number = self.known(id(value))
        return self.add(id(value), value) if number is None else number

    def add(self, key: Hashable, value: T) -> int:
        """A number for something new."""
        number = self._numbers[key] = len(self._numbers)
        self._fresh.append(value)
        return number

    def flush(self) -> Iterator[bytes]:
        """The objects numbered since the last time."""
        fresh, self._fresh = self._fresh, []
        for start in range(0, len(fresh), CHUNK_ROWS):
            yield _encoder.encode((self._kind, fresh[start : start + CHUNK_ROWS]))


_parts_of_metric = attrgetter(*(field for field in AllocationMetric.__struct_fields__ if field != "score_meta_data"))


class _Pools:
    """All that rows share."""

    def __init__(self) -> None:
        self.jobs: _Pool[Job] = _Pool(JOBS)
        self.resources: _Pool[AllocatedResources] = _Pool(RESOURCES)
        self._metrics: _Pool[AllocationMetric] = _Pool(METRICS)
        self._parts: _Pool[Mapping[str, float]] = _Pool(PARTS)
        self._scores: _Pool[tuple[str, int, float]] = _Pool(SCORES)

    def flush(self) -> Iterator[bytes]:
        """What the next rows need and was not written yet, each after what it needs itself."""
        for pool in (self.jobs, self.resources, self._metrics, self._parts, self._scores):
            yield from pool.flush()

    def metric(self, metric: AllocationMetric | None) -> tuple[int, list[int]]:
        """The numbers of an allocation's metrics and of the rows of its score table."""
        if metric is None:
            return NOTHING, []
        key = tuple(map(id, _parts_of_metric(metric)))
        number = self._metrics.known(key)
        if number is None:
            number = self._metrics.add(key, replace(metric, score_meta_data=()))
        known = self._scores.known
        return number, [
            self._new_score(score) if (found := known(id(score))) is None else found for score in metric.score_meta_data
        ]

    def _new_score(self, score: NodeScoreMeta) -> int:
        return self._scores.add(id(score), (score.node_id, self._parts.number(score.scores), score.norm_score))


def encode(state: Snapshot) -> Iterator[bytes]:
    """The state as a stream of chunks."""
    yield _encoder.encode(Header(FORMAT, state.index, {table.name: table.index for table in state.tables()}))
    pools = _Pools()
    for table in state.tables():
        for rows in _batches(table):
            written = [_written(key, row, pools) for key, row in rows]
            yield from pools.flush()
            yield _encoder.encode((table.name, written))
    yield _encoder.encode((END, sum(len(table) for table in state.tables())))


def decode(chunks: Iterable[bytes]) -> Snapshot:
    """The state that a stream was made from; raises Invalid when the stream is cut short or of another format."""
    stream = iter(chunks)
    try:
        header = _header_decoder.decode(next(stream, b""))
        if header.format not in READABLE:
            raise Invalid(f"the snapshot has format {header.format}, this version reads {READABLE[0]} to {FORMAT}")
        reader = _Reader(header.format)
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
    for item in table.grouped("job") if table.name == "allocs" else table.items():
        batch.append(item)
        if len(batch) == CHUNK_ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _written(key: Hashable, row: Any, pools: _Pools) -> tuple[Any, ...]:
    if isinstance(row, Job):
        return (key, pools.jobs.number(row))
    if isinstance(row, Allocation):
        job = NOTHING if row.job is None else pools.jobs.number(row.job)
        resources = pools.resources.number(row.allocated_resources)
        metric, scores = pools.metric(row.metrics)
        rest = replace(row, job=None, allocated_resources=NO_RESOURCES, metrics=None)
        return (job, resources, metric, scores, rest)
    return (key, row)


class _Reader:
    """Tables under construction."""

    def __init__(self, form: int) -> None:
        self._form = form
        self._jobs: list[Job] = []
        self._shared: dict[str, list[Any]] = {RESOURCES: [], METRICS: [], PARTS: [], SCORES: []}
        self._strings: dict[str, str] = {}
        """Texts of allocations that repeat."""
        self._newest: dict[VersionKey, Job] = {}
        self._editors: dict[str, TableEditor[Any, Any]] = {
            name: Table(name, extract).edit() for name, extract in INDEXES.items()
        }
        self._rows = 0
        self._rows_told = -1

    def read(self, chunk: bytes) -> None:
        kind, body = _envelope.decode(chunk)
        if kind == JOBS:
            self._jobs.extend(map(self._with_known_groups, _jobs_decoder.decode(body)))
        elif kind in _shared_decoders:
            found = _shared_decoders[kind].decode(body)
            self._shared[kind].extend(map(self._score, found) if kind == SCORES else found)
        elif kind == END:
            self._rows_told = _count_decoder.decode(body)
        elif kind == "allocs":
            self._read_allocs(body)
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
        if table in ("jobs", "job_versions"):
            for key, job in rows:
                editor.put(key, self._jobs[job])
        else:
            for key, row in rows:
                editor.put(key, row)

    def _read_allocs(self, body: msgspec.Raw) -> None:
        if self._form == 1:
            old = _old_allocs_decoder.decode(body)
            allocs = [self._whole(alloc, job, resources, alloc.metrics) for job, resources, alloc in old]
        else:
            rows: list[Any] = _row_decoders["allocs"].decode(body)
            allocs = [
                self._whole(alloc, job, resources, self._metric(metric, scores))
                for job, resources, metric, scores, alloc in rows
            ]
        self._rows += len(allocs)
        editor, fresh = self._editors["allocs"], {alloc.id: alloc for alloc in allocs}
        if len(fresh) < len(allocs) or editor.present(fresh):
            raise Invalid("the snapshot is broken: it has an allocation twice")
        editor.put_new(fresh)

    def _score(self, row: tuple[str, int, float]) -> NodeScoreMeta:
        node_id, parts, score = row
        node_id = self._strings.setdefault(node_id, node_id)
        return NodeScoreMeta(node_id=node_id, scores=self._shared[PARTS][parts], norm_score=score)

    def _metric(self, number: int, scores: Sequence[int]) -> AllocationMetric | None:
        if number == NOTHING:
            return None
        metric: AllocationMetric = self._shared[METRICS][number]
        known = self._shared[SCORES]
        return replace(metric, score_meta_data=tuple([known[score] for score in scores])) if scores else metric

    def _whole(self, alloc: Allocation, job: int, resources: int, metric: AllocationMetric | None) -> Allocation:
        """The allocation with what it shares; texts that repeat become one object."""
        one = self._strings.setdefault
        return replace(
            alloc,
            job=None if job == NOTHING else self._jobs[job],
            allocated_resources=self._shared[RESOURCES][resources],
            metrics=metric,
            namespace=one(alloc.namespace, alloc.namespace),
            eval_id=one(alloc.eval_id, alloc.eval_id),
            node_id=one(alloc.node_id, alloc.node_id),
            node_name=one(alloc.node_name, alloc.node_name),
            job_id=one(alloc.job_id, alloc.job_id),
            task_group=one(alloc.task_group, alloc.task_group),
            desired_status=one(alloc.desired_status, alloc.desired_status),
            desired_description=one(alloc.desired_description, alloc.desired_description),
            client_status=one(alloc.client_status, alloc.client_status),
            client_description=one(alloc.client_description, alloc.client_description),
            deployment_id=one(alloc.deployment_id, alloc.deployment_id),
        )

    def _with_known_groups(self, job: Job) -> Job:
        """One version is often there with several statuses: they share their groups."""
        key = (job.namespace, job.id, job.version)
        other = self._newest.get(key)
        if other is not None and other.task_groups == job.task_groups:
            return replace(job, task_groups=other.task_groups)
        self._newest[key] = job
        return job
