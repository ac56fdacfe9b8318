"""The packed form of a plan in the command log: shared parts of placements are written once.

The score tables of consecutive placements show mostly the same rows, nodes are named by several of them, and a name is
its job, its group and an index. The rest of their metrics changes only where a node has filled up. A block holds a run
of placements that share their group, job version, resources and deployment; ids, nodes and scores are packed into byte
strings (little-endian). A plan of which some placement does not fit into a block is written as it is. `unpacked` gives
back the plan that `packed` was given, to the byte.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, count, islice
from operator import attrgetter
from struct import pack, unpack
from typing import Final

from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.structs.explain.metrics import AllocationMetric, NodeScoreMeta
from yurt.structs.plan import ExhaustedFrom, Placement, PlacementBlock, Plan
from yurt.structs.predicates import alloc_name

BLOCK_MIN: Final = 4
"""The average number of placements per block below which blocks would not be smaller than single placements."""
NUMBERS_MAX: Final = 65_535
ID_BYTES: Final = 16
ID_LENGTH: Final = 36
DASHES: Final = (8, 13, 18, 23)
NO_SCORES: Final[tuple[NodeScoreMeta, ...]] = ()

_id, _name, _node_id, _node_name, _metrics = map(attrgetter, ("id", "name", "node_id", "node_name", "metrics"))
_MORE: Final = tuple(map(attrgetter, ("previous_allocation", "reschedule_tracker", "preempted_allocations")))
"""Fields of a placement that a block cannot hold."""
_EXHAUSTED: Final = ("nodes_exhausted", "class_exhausted", "dimension_exhausted")
_exhausted = attrgetter(*_EXHAUSTED)
_shared = attrgetter(*(set(AllocationMetric.__struct_fields__) - {*_EXHAUSTED, "score_meta_data"}))


def packed(plan: Plan) -> Plan:
    """The plan with its placements in blocks; the plan unchanged if blocks cannot hold it or would not be smaller."""
    if len(plan.placements) < BLOCK_MIN:
        return plan
    blocks: list[PlacementBlock] = []
    runs = list(_runs(plan.placements))
    if len(plan.placements) < BLOCK_MIN * len(runs):
        return plan
    for run in runs:
        block = _packed_run(plan.job_id, run)
        if block is None:
            return plan
        blocks.append(block)
    return replace(plan, placements=(), blocks=tuple(blocks))


def unpacked(plan: Plan) -> Plan:
    """The plan with single placements; raises Invalid for malformed blocks."""
    if not plan.blocks:
        return plan
    try:
        placements = tuple(placement for block in plan.blocks for placement in _unpacked_block(plan.job_id, block))
    except (struct.error, IndexError, ValueError) as error:
        raise Invalid(f"the plan's packed placements are broken: {error}") from error
    return replace(plan, placements=(*plan.placements, *placements), blocks=())


def _runs(placements: Sequence[Placement]) -> Iterator[list[Placement]]:
    """Runs of consecutive placements with the same group, version, resources and deployment."""
    run: list[Placement] = []
    for placement in placements:
        if run:
            first = run[0]
            if (
                placement.resources is not first.resources
                or placement.task_group != first.task_group
                or placement.job_version != first.job_version
                or placement.deployment_id != first.deployment_id
                or placement.deployment_status != first.deployment_status
            ):
                yield run
                run = []
        run.append(placement)
    if run:
        yield run


def _packed_run(job_id: str, run: Sequence[Placement]) -> PlacementBlock | None:
    """The block of a run; None when a placement has fields that a block cannot hold."""
    first = run[0]
    if any(any(map(more, run)) for more in _MORE):
        return None
    indexes = _indexes(job_id, run)
    metrics = _packed_metrics(run)
    if indexes is None or metrics is None:
        return None
    tables, exhausted = metrics
    node_ids, node_names = list(map(_node_id, run)), list(map(_node_name, run))
    names = dict(zip(node_ids, node_names, strict=True))
    numbers = dict(zip(names, count(), strict=False))
    shown = list(chain.from_iterable(tables))
    keys = list(map(id, shown))
    scores = dict(zip(keys, shown, strict=True))
    parts = _ScoreParts()
    pairs = [
        number
        for score in scores.values()
        for number in (numbers.setdefault(score.node_id, len(numbers)), parts.number(score))
    ]
    ids, nodes = packed_ids(list(map(_id, run))), packed_ids(list(numbers))
    is_large = max(len(scores), len(numbers), len(parts.rows)) > NUMBERS_MAX
    is_renamed = list(map(names.__getitem__, node_ids)) != node_names
    if ids is None or nodes is None or parts.is_odd or is_large or is_renamed:
        return None
    places = dict(zip(scores, count(), strict=False))
    return PlacementBlock(
        task_group=first.task_group,
        job_version=first.job_version,
        resources=first.resources,
        deployment_id=first.deployment_id,
        deployment_status=first.deployment_status,
        metrics=None if first.metrics is None else replace(first.metrics, score_meta_data=NO_SCORES),
        exhausted=tuple(exhausted),
        count=len(run),
        ids=ids,
        indexes=pack(f"<{len(run)}I", *indexes),
        nodes=nodes,
        node_names=tuple(names.values()),
        rows=pack(f"<{len(run)}H", *map(numbers.__getitem__, node_ids)),
        part_names=parts.names,
        parts=pack(f"<{len(parts.rows) * len(parts.names)}d", *[value for row in parts.rows for value in row]),
        score_rows=pack(f"<{len(pairs)}H", *pairs),
        scores=pack(f"<{len(scores)}d", *[score.norm_score for score in scores.values()]),
        tables=pack(f"<{len(keys)}H", *map(places.__getitem__, keys)),
    )


def _indexes(job_id: str, run: Sequence[Placement]) -> list[int] | None:
    """The indexes in allocation names; None if a name has another form."""
    names, opening = list(map(_name, run)), alloc_name(job_id, run[0].task_group, 0).removesuffix("0]")
    start = len(opening)
    try:
        first = int(names[0][start:-1])
        if names == [f"{opening}{index}]" for index in range(first, first + len(names))]:
            return list(range(first, first + len(names)))
        indexes = [int(name[start:-1]) for name in names]
    except ValueError:
        return None
    is_usual = names == [f"{opening}{index}]" for index in indexes]
    return indexes if is_usual and max(indexes) < 1 << 32 and min(indexes) >= 0 else None


def _packed_metrics(run: Sequence[Placement]) -> tuple[list[tuple[NodeScoreMeta, ...]], list[ExhaustedFrom]] | None:
    """The score tables, of equal length, and the steps of exhausted nodes; None if metrics differ in other fields."""
    metrics = list(map(_metrics, run))
    first = metrics[0]
    if first is None:
        return None if any(metrics) else ([NO_SCORES] * len(run), [])
    shared, exhausted, width = _shared(first), _exhausted(first), len(first.score_meta_data)
    tables, steps = [], []
    for at, metric in enumerate(metrics):
        if metric is None or _shared(metric) != shared or len(metric.score_meta_data) != width:
            return None
        tables.append(metric.score_meta_data)
        now = _exhausted(metric)
        if now != exhausted:
            steps.append(ExhaustedFrom(at=at, nodes=now[0], classes=now[1], dimensions=now[2]))
            exhausted = now
    return tables, steps


class _ScoreParts:
    """Distinct score parts; `is_odd` if some have other scorers than the first."""

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.rows: list[tuple[float, ...]] = []
        self.is_odd = False
        self._numbers: dict[tuple[float, ...], int] = {}
        self._known: dict[int, int] = {}

    def number(self, score: NodeScoreMeta) -> int:
        """The number of a score's parts in the table."""
        existing = self._known.get(id(score.scores))
        if existing is not None:
            return existing
        names, values = tuple(score.scores), tuple(score.scores.values())
        if not self.rows:
            self.names = names
        self.is_odd |= names != self.names or not all(type(value) is float for value in (*values, score.norm_score))
        number = self._numbers.setdefault(values, len(self.rows))
        if number == len(self.rows):
            self.rows.append(values)
        self._known[id(score.scores)] = number
        return number


def packed_ids(ids: Sequence[str]) -> bytes | None:
    """UUIDs in 16 bytes each; None if a text is not a UUID in lower case with hyphens."""
    text, count = "".join(ids), len(ids)
    dashes = "-" * count
    if set(map(len, ids)) != {ID_LENGTH} or any(text[at::ID_LENGTH] != dashes for at in DASHES) or text != text.lower():
        return None
    try:
        data = bytes.fromhex(text.replace("-", ""))
    except ValueError:
        return None
    return data if len(data) == ID_BYTES * count else None


def unpacked_ids(data: bytes) -> list[str]:
    """The texts of packed UUIDs."""
    if len(data) % ID_BYTES:
        raise ValueError(f"{len(data)} bytes are not a multiple of {ID_BYTES}")
    text = data.hex()
    return [
        f"{text[at : at + 8]}-{text[at + 8 : at + 12]}-{text[at + 12 : at + 16]}-{text[at + 16 : at + 20]}-"
        f"{text[at + 20 : at + 32]}"
        for at in range(0, len(text), 2 * ID_BYTES)
    ]


def _unpacked_block(job_id: str, block: PlacementBlock) -> list[Placement]:
    count, group = block.count, block.task_group
    node_ids = unpacked_ids(block.nodes)
    rows = unpack(f"<{count}H", block.rows)
    metrics = _unpacked_metrics(block, node_ids)
    return [
        Placement(
            id=alloc_id,
            name=alloc_name(job_id, group, index),
            task_group=group,
            node_id=node_ids[row],
            job_version=block.job_version,
            resources=block.resources,
            node_name=block.node_names[row],
            metrics=metric,
            deployment_id=block.deployment_id,
            deployment_status=block.deployment_status,
        )
        for alloc_id, index, row, metric in zip(
            unpacked_ids(block.ids), unpack(f"<{count}I", block.indexes), rows, metrics, strict=True
        )
    ]


def _unpacked_metrics(block: PlacementBlock, node_ids: Sequence[str]) -> list[AllocationMetric | None]:
    shared = block.metrics
    if shared is None:
        return [None] * block.count
    width = len(block.part_names)
    values = unpack(f"<{len(block.parts) // 8}d", block.parts)
    parts = [
        dict(zip(block.part_names, values[at : at + width], strict=True)) for at in range(0, len(values), width or 1)
    ] or [{}]
    pairs = unpack(f"<{len(block.score_rows) // 2}H", block.score_rows)
    norms = unpack(f"<{len(block.scores) // 8}d", block.scores)
    scores = [
        NodeScoreMeta(node_id=node_ids[node], scores=parts[part], norm_score=norm)
        for node, part, norm in zip(pairs[::2], pairs[1::2], norms, strict=True)
    ]
    numbers = iter(unpack(f"<{len(block.tables) // 2}H", block.tables))
    size = len(block.tables) // 2 // block.count if block.count else 0
    found: list[AllocationMetric | None] = []
    for start, end, metric in _stretches(shared, block):
        found += [replace(metric, score_meta_data=_table(scores, islice(numbers, size))) for _ in range(start, end)]
    return found


def _stretches(first: AllocationMetric, block: PlacementBlock) -> Iterator[tuple[int, int, AllocationMetric]]:
    """The metrics of a block without score tables, each with its range of placements."""
    start, metric = 0, first
    for step in block.exhausted:
        if not start < step.at < block.count:
            raise ValueError(f"the exhausted nodes change at placement {step.at} of {block.count}")
        yield start, step.at, metric
        start = step.at
        metric = replace(
            first, nodes_exhausted=step.nodes, class_exhausted=step.classes, dimension_exhausted=step.dimensions
        )
    yield start, block.count, metric


def _table(scores: Sequence[NodeScoreMeta], numbers: Iterable[int]) -> tuple[NodeScoreMeta, ...]:
    return tuple([scores[number] for number in numbers])
