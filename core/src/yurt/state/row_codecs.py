"""The encoding of rows in a snapshot: shared parts are written once, and shared again after reading.

A codec turns a batch of rows into values to encode, and a decoded chunk back into rows. Most tables write keys and
rows as they are (`PlainRows`). Jobs, resources, metrics and scores are shared by many rows and worth more than the
rest of them: `SharedWriter` numbers them by identity and writes each in a chunk of its own kind before the first rows
that refer to it, `SharedReader` gives the object of a number. Strings of allocations that repeat become one object.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Final, Generic, Protocol, TypeAlias, TypeVar, get_args

import msgspec

from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.state.persistent_table import Table, TableEditor
from yurt.structs.alloc import AllocatedResources, Allocation
from yurt.structs.explain.metrics import AllocationMetric, NodeScoreMeta
from yurt.structs.job import Job

CHUNK_ROWS: Final = 1_000
JOBS, RESOURCES, METRICS, PARTS, SCORES = "*jobs", "*resources", "*metrics", "*parts", "*scores"
"""Kinds of chunks with objects that rows share."""
SHARED: Final = frozenset({JOBS, RESOURCES, METRICS, PARTS, SCORES})

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")

_NOTHING: Final = -1
_NO_RESOURCES: Final = AllocatedResources()

_encoder = msgspec.msgpack.Encoder()


@cache
def _decoder(kind: type[T]) -> msgspec.msgpack.Decoder[T]:
    """The decoder of a chunk, made with the first chunk and not at the import: few processes read snapshots."""
    return msgspec.msgpack.Decoder(kind)


AllocRow: TypeAlias = tuple[int, int, int, tuple[int, ...], Allocation]
"""A row of allocations: the numbers of job, resources and metrics, those of score table rows, and the other fields."""
OldAllocRow: TypeAlias = tuple[int, int, Allocation]
"""A row of allocations of format 1, which contains their scores."""


class RowCodec(Protocol[K, V]):
    """Writes and reads the rows of one table."""

    @property
    def key_type(self) -> type[K]:
        """The type of a key."""

    @property
    def row_type(self) -> type[V]:
        """The type of a row."""

    def ordered(self, table: Table[K, V]) -> Iterable[tuple[K, V]]:
        """All rows in the order of writing."""

    def written(self, rows: Sequence[tuple[K, V]], shared: SharedWriter) -> Sequence[tuple[object, ...]]:
        """The rows for encoding, with numbers for the objects in `shared`."""

    def read(self, body: msgspec.Raw, shared: SharedReader, editor: TableEditor[K, V]) -> int:
        """Insert the rows of a chunk into their table; returns their number."""


class PlainRows(Generic[K, V]):
    """Each key and row, without sharing."""

    def __init__(self, rows: type[list[tuple[K, V]]]) -> None:
        self._rows = rows
        self.key_type: type[K] = get_args(get_args(rows)[0])[0]
        self.row_type: type[V] = get_args(get_args(rows)[0])[1]

    def ordered(self, table: Table[K, V]) -> Iterable[tuple[K, V]]:
        """Rows in the order of their keys' hashes."""
        return table.items()

    def written(self, rows: Sequence[tuple[K, V]], shared: SharedWriter) -> Sequence[tuple[object, ...]]:
        """The rows unchanged."""
        return rows

    def read(self, body: msgspec.Raw, shared: SharedReader, editor: TableEditor[K, V]) -> int:
        """Insert the rows of a chunk into their table."""
        rows = _decoder(self._rows).decode(body)
        for key, row in rows:
            editor.put(key, row)
        return len(rows)


class JobKeys(Generic[K]):
    """Keys with the numbers of their jobs, which allocations and versions share."""

    row_type = Job

    def __init__(self, rows: type[list[tuple[K, int]]]) -> None:
        self._rows = rows
        self.key_type: type[K] = get_args(get_args(rows)[0])[0]

    def ordered(self, table: Table[K, Job]) -> Iterable[tuple[K, Job]]:
        """Rows in the order of their keys' hashes."""
        return table.items()

    def written(self, rows: Sequence[tuple[K, Job]], shared: SharedWriter) -> Sequence[tuple[object, ...]]:
        """Keys with the numbers of their jobs."""
        return [(key, shared.job(job)) for key, job in rows]

    def read(self, body: msgspec.Raw, shared: SharedReader, editor: TableEditor[K, Job]) -> int:
        """Insert the jobs of a chunk into their table."""
        rows = _decoder(self._rows).decode(body)
        for key, number in rows:
            editor.put(key, shared.jobs[number])
        return len(rows)


class AllocRows:
    """An allocation with numbers for its job, resources, metrics and scores."""

    key_type = str
    row_type = Allocation

    def ordered(self, table: Table[str, Allocation]) -> Iterable[tuple[str, Allocation]]:
        """Grouped by job, so that shared objects are written shortly before their rows."""
        return table.grouped("job")

    def written(self, rows: Sequence[tuple[str, Allocation]], shared: SharedWriter) -> Sequence[tuple[object, ...]]:
        """Each row with the numbers of its shared objects."""
        return [self._written(row, shared) for _, row in rows]

    def read(self, body: msgspec.Raw, shared: SharedReader, editor: TableEditor[str, Allocation]) -> int:
        """Insert the allocations of a chunk into their table in one step, so that each index entry is written once."""
        allocs = [*self._read(body, shared)]
        fresh = {alloc.id: alloc for alloc in allocs}
        if len(fresh) < len(allocs) or editor.present(fresh):
            raise Invalid("the snapshot is broken: it has an allocation twice")
        editor.put_new(fresh)
        return len(allocs)

    def _written(self, row: Allocation, shared: SharedWriter) -> tuple[object, ...]:
        job = _NOTHING if row.job is None else shared.job(row.job)
        resources = shared.resources(row.allocated_resources)
        metric, scores = shared.metric(row.metrics)
        return (job, resources, metric, scores, replace(row, job=None, allocated_resources=_NO_RESOURCES, metrics=None))

    def _read(self, body: msgspec.Raw, shared: SharedReader) -> Iterator[Allocation]:
        if shared.has_scores_in_rows:
            for job, resources, alloc in _decoder(list[OldAllocRow]).decode(body):
                yield shared.alloc(alloc, job, resources, alloc.metrics)
        else:
            for job, resources, metric, scores, alloc in _decoder(list[AllocRow]).decode(body):
                yield shared.alloc(alloc, job, resources, shared.metric(metric, scores))


class _SharedObjects(Generic[T]):
    """Numbers for shared objects by identity; the state being written keeps them alive."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._numbers: dict[Hashable, int] = {}
        self._fresh: list[T] = []
        self.number_or_none = self._numbers.get
        """The number of the object with this key, or None."""

    def number(self, value: T) -> int:
        """The object's number; a new object is written before the rows that use it."""
        number = self.number_or_none(id(value))
        return self.add(id(value), value) if number is None else number

    def add(self, key: Hashable, value: T) -> int:
        """A number for a new object."""
        number = self._numbers[key] = len(self._numbers)
        self._fresh.append(value)
        return number

    def flush(self) -> Iterator[bytes]:
        """The objects numbered since the last flush."""
        fresh, self._fresh = self._fresh, []
        for start in range(0, len(fresh), CHUNK_ROWS):
            yield _encoder.encode((self._kind, fresh[start : start + CHUNK_ROWS]))


_parts_of_metric = attrgetter(*(field for field in AllocationMetric.__struct_fields__ if field != "score_meta_data"))


class SharedWriter:
    """Numbers all shared objects."""

    def __init__(self) -> None:
        self._jobs: _SharedObjects[Job] = _SharedObjects(JOBS)
        self._resources: _SharedObjects[AllocatedResources] = _SharedObjects(RESOURCES)
        self._metrics: _SharedObjects[AllocationMetric] = _SharedObjects(METRICS)
        self._parts: _SharedObjects[Mapping[str, float]] = _SharedObjects(PARTS)
        self._scores: _SharedObjects[tuple[str, int, float]] = _SharedObjects(SCORES)
        self.job = self._jobs.number
        """A job's number."""
        self.resources = self._resources.number
        """The number of an allocation's resources."""

    def flush(self) -> Iterator[bytes]:
        """The unwritten objects of the next rows, each after those it depends on."""
        for pool in (self._jobs, self._resources, self._metrics, self._parts, self._scores):
            yield from pool.flush()

    def metric(self, metric: AllocationMetric | None) -> tuple[int, list[int]]:
        """The numbers of an allocation's metrics and of its score table's rows."""
        if metric is None:
            return _NOTHING, []
        key = tuple(map(id, _parts_of_metric(metric)))
        number = self._metrics.number_or_none(key)
        if number is None:
            number = self._metrics.add(key, replace(metric, score_meta_data=()))
        number_of = self._scores.number_or_none
        return number, [
            self._new_score(score) if (cached := number_of(id(score))) is None else cached
            for score in metric.score_meta_data
        ]

    def _new_score(self, score: NodeScoreMeta) -> int:
        return self._scores.add(id(score), (score.node_id, self._parts.number(score.scores), score.norm_score))


class SharedReader:
    """Shared objects by number, as far as the stream has been read."""

    def __init__(self, *, has_scores_in_rows: bool) -> None:
        self.has_scores_in_rows = has_scores_in_rows
        """Whether the stream has format 1."""
        self.jobs: list[Job] = []
        self._resources: list[AllocatedResources] = []
        self._metrics: list[AllocationMetric] = []
        self._parts: list[dict[str, float]] = []
        self._scores: list[NodeScoreMeta] = []
        self._strings: dict[str, str] = {}
        """Repeated texts of allocations, by value."""
        self._newest: dict[tuple[str, str, int], Job] = {}

    def read(self, kind: str, body: msgspec.Raw) -> None:
        """Read a chunk of one of the kinds `SHARED`."""
        if kind == JOBS:
            self.jobs.extend(map(self._with_shared_groups, _decoder(list[Job]).decode(body)))
        elif kind == RESOURCES:
            self._resources.extend(_decoder(list[AllocatedResources]).decode(body))
        elif kind == METRICS:
            self._metrics.extend(_decoder(list[AllocationMetric]).decode(body))
        elif kind == PARTS:
            self._parts.extend(_decoder(list[dict[str, float]]).decode(body))
        else:
            assert kind == SCORES, kind
            self._scores.extend(map(self._score, _decoder(list[tuple[str, int, float]]).decode(body)))

    def metric(self, number: int, scores: Sequence[int]) -> AllocationMetric | None:
        """The metrics with this number, with the scores of these numbers."""
        if number == _NOTHING:
            return None
        metric, scores_by_number = self._metrics[number], self._scores
        return (
            replace(metric, score_meta_data=tuple([scores_by_number[score] for score in scores])) if scores else metric
        )

    def alloc(self, alloc: Allocation, job: int, resources: int, metric: AllocationMetric | None) -> Allocation:
        """The allocation with its shared objects; repeated texts become one object."""
        one = self._strings.setdefault
        return replace(
            alloc,
            job=None if job == _NOTHING else self.jobs[job],
            allocated_resources=self._resources[resources],
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

    def _score(self, row: tuple[str, int, float]) -> NodeScoreMeta:
        node_id, parts, score = row
        node_id = self._strings.setdefault(node_id, node_id)
        return NodeScoreMeta(node_id=node_id, scores=self._parts[parts], norm_score=score)

    def _with_shared_groups(self, job: Job) -> Job:
        """The job with its groups replaced by equal ones of another version, which may differ in status only."""
        key = (job.namespace, job.id, job.version)
        other = self._newest.get(key)
        if other is not None and other.task_groups == job.task_groups:
            return replace(job, task_groups=other.task_groups)
        self._newest[key] = job
        return job
