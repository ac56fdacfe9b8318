"""Builds large states for `bench.pauses` row by row, without scheduler and log."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from yurt.fsm.node_class import computed_class
from yurt.sdk.value import UnixNano, replace
from yurt.state import TABLES, Snapshot, Tables
from yurt.state.persistent_table import Table
from yurt.structs import status
from yurt.structs.alloc import (
    AllocatedCpuResources,
    AllocatedMemoryResources,
    AllocatedResources,
    AllocatedTaskResources,
    Allocation,
)
from yurt.structs.deployment import Deployment, DeploymentState
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, ParameterizedJobConfig
from yurt.structs.node import Node
from yurt.structs.predicates import eval_type
from yurt.structs.summary import JobChildrenSummary, JobSummary, TaskGroupSummary

from bench.scheduler import NOW, job, node

INDEX: Final = 1_000
EACH: Final = 10
"""Allocations of an ordinary job."""
BIG: Final = "big"
PARENT: Final = "parent"
RESOURCES: Final = AllocatedResources(
    tasks={
        "web": AllocatedTaskResources(
            cpu=AllocatedCpuResources(cpu_shares=50), memory=AllocatedMemoryResources(memory_mb=32)
        )
    }
)


class Sizes(NamedTuple):
    """How much there is of what."""

    nodes: int = 5_000
    jobs: int = 90_000
    big: int = 100_000
    dead_jobs: int = 100_000
    blocked: int = 10_000

    @classmethod
    def scaled(cls, scale: float) -> Sizes:
        """A part of the full size."""
        return cls(*(max(1, round(size * scale)) for size in cls()))


def row_id(kind: int, number: int) -> str:
    """A UUID that is spread over the whole range, as drawn ones are."""
    mixed = number * 0x9E3779B97F4A7C15 + kind * 0x2545F4914F6CDD1D & (1 << 64) - 1
    return f"{mixed >> 32:08x}-{mixed >> 16 & 0xFFFF:04x}-4000-8{kind:03x}-{mixed & 0xFFFF:04x}{number:08x}"


def live(sizes: Sizes) -> Snapshot:
    """Running service jobs with their evaluations and deployments; as many blocked evaluations as asked for."""
    nodes = _nodes(sizes.nodes, status.NODE_READY)
    ordinary = [(_stored(job(f"job-{number:06}", EACH)), EACH) for number in range(sizes.jobs)]
    big = (_stored(job(BIG, sizes.big)), sizes.big)
    return _state(
        {
            "nodes": ((one.id, one) for one in nodes),
            "jobs": ((made.key, made) for made, _ in (*ordinary, big)),
            "job_versions": (((*made.key, 0), made) for made, _ in (*ordinary, big)),
            "job_summaries": ((made.key, _summary(made, running=count)) for made, count in (*ordinary, big)),
            "evals": _evals_of(ordinary, big, sizes.blocked),
            "deployments": ((one.id, one) for one in _deployments(ordinary, big)),
        },
        _allocs((*ordinary, big), nodes, client_status=status.CLIENT_RUNNING),
    )


def dead(sizes: Sizes) -> Snapshot:
    """What dispatched batch jobs left behind, with deployments that ended, on nodes that are down."""
    nodes = _nodes(sizes.nodes, status.NODE_DOWN)
    parent = replace(_stored(job(PARENT, EACH, kind="batch")), parameterized_job=ParameterizedJobConfig())
    made = [
        replace(_stored(job(f"{PARENT}/dispatch-{number:06}", EACH, kind="batch")), status="dead", parent_id=PARENT)
        for number in range(sizes.dead_jobs)
    ]
    jobs = [(one, EACH) for one in made]
    summaries = ((one.key, _summary(one, complete=EACH)) for one in made)
    above = replace(_summary(parent), children=JobChildrenSummary(dead=len(made)))
    return _state(
        {
            "nodes": ((one.id, one) for one in nodes),
            "jobs": ((one.key, one) for one in (*made, parent)),
            "job_versions": (((*one.key, 0), one) for one in (*made, parent)),
            "job_summaries": (*summaries, (parent.key, above)),
            "evals": ((one.id, one) for number, (of, _) in enumerate(jobs) for one in (_ended(of, number),)),
            "deployments": ((one.id, one) for n in range(len(made)) for one in (_orphan(n),)),
        },
        _allocs(jobs, nodes, client_status=status.CLIENT_COMPLETE),
    )


WORLDS: Final[Mapping[str, Callable[[Sizes], Snapshot]]] = {"live": live, "dead": dead}


def _state(rows: Mapping[str, Iterable[tuple[Any, Any]]], allocs: Iterator[Mapping[str, Allocation]]) -> Snapshot:
    tables: dict[str, Table[Any, Any]] = {}
    for name, schema in TABLES.items():
        tables[name] = schema.with_rows((*schema.built_in, *rows.get(name, ())), index=INDEX)
    editor = Tables.allocs.empty().edit()
    for fresh in allocs:
        editor.put_new(fresh)
    tables["allocs"] = editor.finish(INDEX)
    return Snapshot(INDEX, tables)


def _nodes(count: int, node_status: str) -> list[Node]:
    made = (replace(node(number, 0), status=node_status, create_index=1, modify_index=1) for number in range(count))
    return [replace(one, datacenter="dc1", computed_class=computed_class(one)) for one in made]


def _stored(made: Job) -> Job:
    return replace(made, status=status.JOB_RUNNING, submit_time=NOW, create_index=1, modify_index=1, job_modify_index=1)


def _summary(made: Job, **counts: int) -> JobSummary:
    return JobSummary(job_id=made.id, summary={"web": TaskGroupSummary(**counts)}, create_index=1, modify_index=1)


def _ended(made: Job, number: int) -> Evaluation:
    return Evaluation(
        id=row_id(1, number), job_id=made.id, type=eval_type(made), triggered_by="job-register", status="complete",
        create_index=1, modify_index=1, create_time=NOW, modify_time=NOW,
    )  # fmt: skip


def _evals_of(ordinary: list[tuple[Job, int]], big: tuple[Job, int], blocked: int) -> Iterator[tuple[str, Evaluation]]:
    for number, (made, _) in enumerate((*ordinary, big)):
        one = _ended(made, number)
        yield one.id, one
    for number, (made, _) in enumerate(ordinary[:blocked]):
        yield row_id(2, number), replace(_ended(made, number), id=row_id(2, number), status="blocked", snapshot_index=1)


def _deployments(ordinary: list[tuple[Job, int]], big: tuple[Job, int]) -> Iterator[Deployment]:
    for number, (made, count) in enumerate((*ordinary, big)):
        yield Deployment(
            id=row_id(3, number), job_id=made.id, job_create_index=1, create_index=1, modify_index=1,
            status="running" if made is big[0] else "successful", create_time=NOW, modify_time=NOW,
            task_groups={"web": DeploymentState(desired_total=count, placed_allocs=count)},
        )  # fmt: skip


def _orphan(number: int) -> Deployment:
    return Deployment(
        id=row_id(3, number), job_id=f"gone-{number}", status="successful", create_index=1, modify_index=1,
        create_time=NOW, modify_time=NOW, task_groups={"web": DeploymentState(desired_total=1)},
    )  # fmt: skip


def _allocs(
    jobs: Iterable[tuple[Job, int]], nodes: list[Node], *, client_status: status.ClientStatus
) -> Iterator[Mapping[str, Allocation]]:
    """The allocations of some jobs at a time, on one node after another."""
    number, fresh = 0, dict[str, Allocation]()
    for place, (made, count) in enumerate(jobs):
        eval_id, deployment_id = row_id(1, place), row_id(3, place) if made.type == "service" else ""
        for index in range(count):
            on = nodes[number % len(nodes)]
            fresh[row_id(0, number)] = Allocation(
                id=row_id(0, number), namespace=made.namespace, eval_id=eval_id, name=f"{made.id}.web[{index}]",
                node_id=on.id, node_name=on.name, job_id=made.id, job=made, task_group="web",
                allocated_resources=RESOURCES, client_status=client_status, deployment_id=deployment_id,
                create_index=1, modify_index=1, alloc_modify_index=1, create_time=NOW, modify_time=UnixNano(NOW),
            )  # fmt: skip
            number += 1
        if len(fresh) >= 5_000:
            yield fresh
            fresh = {}
    if fresh:
        yield fresh
