"""Explanations: why a job's allocations are where they are, or are not placed, and the least that would change it.

Nothing here is part of placing. An explanation runs an attempt on the state as it is, keeps what it looked at, and
asks of every node all that stands in the way (`blockers`) and what the least change is (`changes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from yurt.scheduler.attempts import lay_over
from yurt.scheduler.blockers import AMOUNTS, Blocked, Problem
from yurt.scheduler.changes import EQUIPMENT, HOPELESS, Change, Cost, apply_edits, change_for, edited_node
from yurt.scheduler.feasible import BoolArray
from yurt.scheduler.generic import GenericAttempt
from yurt.scheduler.ids import Ids
from yurt.scheduler.placer import GroupPlacer
from yurt.scheduler.shortfalls import shortfalls
from yurt.scheduler.system import SystemAttempt
from yurt.scheduler.view import View
from yurt.sdk.value import UnixNano, replace
from yurt.state.store import Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.evaluation import Evaluation
from yurt.structs.explain import (
    AllocationExplanation,
    Blocker,
    GroupExplanation,
    JobExplanation,
    NearMiss,
    NodeScore,
    SmallestChange,
)
from yurt.structs.job import Job
from yurt.structs.metrics import NodeScoreMeta
from yurt.structs.plan import Plan
from yurt.structs.status import CLIENT_TERMINAL, JOB_SYSBATCH, JOB_SYSTEM, SERVER_TERMINAL

NEAR_MISSES = 5
CHANGE_ROWS_MAX = 2000
"""Nodes looked at for the least change, in the order of the least that they may need."""

Machine = GenericAttempt | SystemAttempt


def why_not(snapshot: Snapshot, job: Job, *, now: UnixNano, seed: int) -> JobExplanation:
    """What registering the job (or evaluating it again as it is) would place, and why not the rest."""
    machine, plan = _run(snapshot, job, now=now, seed=seed)
    groups = []
    for group in job.task_groups:
        running = _running(machine, group.name)
        placed = [placement for placement in plan.placements if placement.task_group == group.name]
        unplaced = machine.queued.get(group.name, 0)
        placer = machine.placers.get(group.name)
        made = GroupExplanation(
            name=group.name,
            desired=group.count if job.type not in (JOB_SYSTEM, JOB_SYSBATCH) else running + len(placed) + unplaced,
            running=running,
            placed=len(placed),
            unplaced=unplaced,
            notes=_notes(machine, group.name, group.count, running + len(placed) + unplaced),
            scores=_scores(snapshot, placed[0].metrics.score_meta_data, placed[0].node_id)
            if placed and placed[0].metrics is not None
            else (),
        )
        if unplaced and placer is not None:
            made = _with_blockers(made, placer, only=_open_rows(machine, group.name))
            change = made.smallest_change
            if change is not None:
                edited = apply_edits(job, group.name, change.edits)
                places = unplaced - _unplaced(_with_nodes(snapshot, change), edited, group.name, now=now, seed=seed)
                made = replace(made, smallest_change=replace(change, places=max(0, places)))
        groups.append(made)
    return JobExplanation(namespace=job.namespace, job_id=job.id, index=snapshot.index, groups=tuple(groups))


def why(snapshot: Snapshot, alloc: Allocation, *, seed: int) -> AllocationExplanation:
    """Why an allocation is on its node: the scores it was placed by, and how the other nodes look now without it."""
    metrics, job = alloc.metrics, alloc.job
    evaluation = snapshot.evals.get(alloc.eval_id)
    now: GroupExplanation | None = None
    group = job.group(alloc.task_group) if job is not None else None
    if job is not None and group is not None and alloc.client_status not in CLIENT_TERMINAL:
        view = View(snapshot)
        view.release(alloc)
        others = [
            other
            for other in snapshot.allocs_of_job(alloc.namespace, alloc.job_id)
            if other.id != alloc.id
            and other.client_status not in CLIENT_TERMINAL
            and other.desired_status not in SERVER_TERMINAL
        ]
        placer = GroupPlacer(view, job, group, seed=seed, own=others)
        now = _with_blockers(GroupExplanation(name=group.name, desired=group.count), placer, only=None)
        now = replace(now, smallest_change=None, scores=_ranked_now(snapshot, placer, alloc.node_id))
    scores = _scores(snapshot, metrics.score_meta_data, alloc.node_id) if metrics is not None else ()
    return AllocationExplanation(
        alloc_id=alloc.id,
        name=alloc.name,
        namespace=alloc.namespace,
        job_id=alloc.job_id,
        task_group=alloc.task_group,
        eval_id=alloc.eval_id,
        node_id=alloc.node_id,
        node_name=alloc.node_name,
        placed_at=alloc.create_time,
        text=_summary(alloc, scores),
        triggered_by=evaluation.triggered_by if evaluation is not None else "",
        previous_allocation=alloc.previous_allocation,
        preempted_allocations=alloc.preempted_allocations,
        metrics=metrics,
        scores=scores,
        now=now,
        index=snapshot.index,
    )


# -- the attempt that is explained -------------------------------------------------------------------------------------


def _run(snapshot: Snapshot, job: Job, *, now: UnixNano, seed: int) -> tuple[Machine, Plan]:
    laid, evaluation = lay_over(snapshot, job, now=now, seed=seed)
    machine = _machine(laid, evaluation, now=now, seed=seed)
    plan, _ = machine.run()
    return machine, plan


def _machine(snapshot: Snapshot, evaluation: Evaluation, *, now: UnixNano, seed: int) -> Machine:
    ids = Ids(seed, evaluation.id, "0")
    if evaluation.type in (JOB_SYSTEM, JOB_SYSBATCH):
        return SystemAttempt(snapshot, evaluation, now=now, ids=ids, seed=seed)
    return GenericAttempt(snapshot, evaluation, now=now, ids=ids, seed=seed)


def _unplaced(snapshot: Snapshot, job: Job, group: str, *, now: UnixNano, seed: int) -> int:
    """How many allocations of the group find no node when the job is as given."""
    return _run(snapshot, job, now=now, seed=seed)[0].queued.get(group, 0)


def _with_nodes(snapshot: Snapshot, change: SmallestChange) -> Snapshot:
    """The state with the nodes that a change concerns as it makes them."""
    node = snapshot.nodes[change.node_id]
    own = [edit for edit in change.edits if edit.node_id]
    if not own:
        return snapshot
    for edit in own:
        node = edited_node(node, edit)
    changed = snapshot.edit(snapshot.index + 1)
    changed.put("nodes", node.id, node)
    return changed.commit()


def _running(machine: Machine, group: str) -> int:
    stopped = {stop.id for stop in machine.stops}
    return sum(
        1
        for alloc in machine.allocs
        if alloc.task_group == group
        and alloc.id not in stopped
        and alloc.client_status not in CLIENT_TERMINAL
        and alloc.desired_status not in SERVER_TERMINAL
    )


def _notes(machine: Machine, group: str, desired: int, seen: int) -> tuple[str, ...]:
    """Why fewer allocations are placed than wanted, when it is not for want of room."""
    if isinstance(machine, SystemAttempt):
        return ()
    if group in machine.broken:
        return (f"gang: {machine.broken[group].gang}, so none of them is placed",)
    if seen >= desired:
        return ()
    missing = desired - seen
    later = [evaluation for evaluation in machine.followups if evaluation.wait_until]
    if later:
        return (f"{missing} wait for a delayed evaluation, evaluation {later[0].id[:8]}",)
    deployment = machine.deployment
    if deployment is not None and group in deployment.task_groups:
        return (f"{missing} wait for deployment {deployment.id[:8]}, which is {deployment.status}",)
    return ()


def _open_rows(machine: Machine, group: str) -> BoolArray | None:
    """For a system job the nodes that have no allocation of the group; None for all."""
    if not isinstance(machine, SystemAttempt):
        return None
    mask = np.zeros(len(machine.view.offered), np.bool_)
    failed = [node for node, groups in machine.failed_nodes.items() if group in groups]
    mask[[row for node in failed if (row := machine.view.row(node)) is not None]] = True
    return mask


# -- blockers, near misses, the least change ---------------------------------------------------------------------------


def _with_blockers(made: GroupExplanation, placer: GroupPlacer, *, only: BoolArray | None) -> GroupExplanation:
    blocked = Blocked(placer)
    nodes = blocked.nodes if only is None else blocked.nodes & only
    metric = placer.failure()
    order = _nearest(blocked, nodes & (blocked.count > 0))
    return replace(
        made,
        nodes_in_pool=metric.nodes_in_pool,
        nodes_evaluated=metric.nodes_evaluated,
        nodes_filtered=metric.nodes_filtered,
        nodes_exhausted=metric.nodes_exhausted,
        blockers=tuple(_blockers(blocked, nodes)),
        near_misses=tuple(_near_miss(blocked, row) for row in order.rows[:NEAR_MISSES]),
        smallest_change=_smallest(blocked, order),
    )


def _blockers(blocked: Blocked, nodes: BoolArray) -> list[Blocker]:
    """Every problem with its number of nodes; those of nodes in reach first, the most frequent first."""
    found = []
    for problem in blocked.problems:
        mask = problem.mask & nodes
        alone = int(np.count_nonzero(mask & (blocked.count == 1)))
        count = int(np.count_nonzero(mask if _is_outside(problem) else mask & blocked.candidates))
        if count:
            found.append(Blocker(kind=problem.kind, text=problem.text, nodes=count, alone=alone))
    return sorted(found, key=lambda blocker: (-blocker.alone, -blocker.nodes, blocker.kind, blocker.text))


def _is_outside(problem: Problem) -> bool:
    return problem.kind in ("datacenter", "node_pool", "status", "drain", "eligibility")


class _Order(NamedTuple):
    """Rows from the nearest on, and for each the least that its change may cost."""

    rows: list[int]
    least: list[Cost]


def _nearest(blocked: Blocked, nodes: BoolArray) -> _Order:
    """Rows without anything that no change brings come first; then by the least that they need."""
    size = len(nodes)
    hopeless, equipment = np.zeros(size, np.int64), np.zeros(size, np.int64)
    edits, weight = blocked.count.copy(), np.zeros(size)
    masks = {problem.kind: problem.mask for problem in blocked.problems}
    for problem in blocked.problems:
        hopeless += problem.mask & (problem.kind in HOPELESS)
        equipment += problem.mask & (problem.kind in EQUIPMENT)
        if problem.kind not in ("cpu", "memory", "disk", "cores", "device"):
            weight += problem.mask
    if "cores" in masks and "cpu" in masks:
        edits -= masks["cores"] & masks["cpu"]
    for column, name, _ in AMOUNTS:
        if blocked.asked[column] and not (name == "cpu" and blocked.placer.ask.cores):
            short = np.maximum(0, blocked.short(column))
            weight += -(-short // (blocked.own + 1)) / blocked.asked[column]
    rows = np.flatnonzero(nodes)
    keys = (blocked.rows.ties[rows], weight[rows], edits[rows], equipment[rows], hopeless[rows])
    rows = rows[np.lexsort(keys)]
    least = list(zip(equipment[rows].tolist(), edits[rows].tolist(), weight[rows].tolist(), strict=True))
    return _Order(rows.tolist(), least)


def _smallest(blocked: Blocked, order: _Order) -> SmallestChange | None:
    """The least change of all nodes; the order says when no later node can do with less."""
    best: tuple[Change, int] | None = None
    for row, least in zip(order.rows[:CHANGE_ROWS_MAX], order.least, strict=False):
        if best is not None and least >= best[0].cost:
            break
        change = change_for(blocked, row)
        if change is not None and (best is None or change.cost < best[0].cost):
            best = change, row
    if best is None:
        return None
    change, row = best
    node = blocked.view.node(row)
    text = "; ".join(edit.text for edit in change.edits)
    return SmallestChange(text=text, node_id=node.id, node_name=node.name, edits=change.edits)


def _near_miss(blocked: Blocked, row: int) -> NearMiss:
    node = blocked.view.node(row)
    return NearMiss(
        node_id=node.id, node_name=node.name, datacenter=node.datacenter, shortfalls=tuple(shortfalls(blocked, row))
    )


# -- scores ------------------------------------------------------------------------------------------------------------


def _scores(snapshot: Snapshot, metas: Sequence[NodeScoreMeta], chosen: str) -> tuple[NodeScore, ...]:
    found = []
    for meta in metas:
        node = snapshot.nodes.get(meta.node_id)
        found.append(
            NodeScore(
                node_id=meta.node_id,
                node_name=node.name if node is not None else "",
                chosen=meta.node_id == chosen,
                norm_score=meta.norm_score,
                scores=meta.scores,
            )
        )
    return tuple(found)


def _ranked_now(snapshot: Snapshot, placer: GroupPlacer, chosen: str) -> tuple[NodeScore, ...]:
    row = placer.view.row(chosen)
    if row is None or chosen not in snapshot.nodes:
        return ()
    placer.ranker.best()
    return _scores(snapshot, placer.ranker.top(row), chosen)


def _summary(alloc: Allocation, scores: Sequence[NodeScore]) -> str:
    """One sentence."""
    metrics = alloc.metrics
    if metrics is None:
        return "nothing is known about how it was placed"
    node = alloc.node_name or alloc.node_id[:8]
    text = f"node {node} was chosen of {metrics.nodes_evaluated} that were looked at"
    ruled_out = metrics.nodes_filtered + metrics.nodes_exhausted
    if ruled_out:
        text += f", {ruled_out} of them ruled out"
    own = next((score for score in scores if score.chosen), None)
    rivals = [score for score in scores if not score.chosen]
    if own is not None and rivals:
        text += f"; it scored {own.norm_score:.3g}, the next best, {rivals[0].node_name}, {rivals[0].norm_score:.3g}"
    if alloc.preempted_allocations:
        text += f"; {len(alloc.preempted_allocations)} less important allocations made room"
    return text
