"""Explanations: why a job's allocations are where they are, or are not placed, and the least that would change it.

Nothing here is part of placing. An explanation runs an attempt on the state as it is, keeps what it looked at, and
asks of every node all that stands in the way (`blockers`) and what the least change is (`changes`). Where the job may
preempt, what it could end counts as free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from yurt.scheduler.attempts import lay_over
from yurt.scheduler.blockers import AMOUNTS, Blocked, Held, Problem
from yurt.scheduler.changes import (
    EQUIPMENT,
    HOPELESS,
    Change,
    Cost,
    apply_edits,
    change_for,
    device_edits,
    edited_node,
    joined,
)
from yurt.scheduler.feasible import BoolArray
from yurt.scheduler.generic import GenericAttempt
from yurt.scheduler.hints import unknown_names
from yurt.scheduler.ids import Ids
from yurt.scheduler.limits import LimitsOf, limits_now, no_limits
from yurt.scheduler.placer import GroupPlacer
from yurt.scheduler.preempt import is_allowed, victims_of
from yurt.scheduler.shortfalls import shortfalls
from yurt.scheduler.system import SystemAttempt
from yurt.scheduler.view import View
from yurt.sdk.value import UnixNano, replace
from yurt.state.arrays import IntArray
from yurt.state.columns import IS_NODE
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
from yurt.structs.job import Job, TaskGroup
from yurt.structs.metrics import NodeScoreMeta
from yurt.structs.node import Node
from yurt.structs.plan import Plan
from yurt.structs.questions import alloc_index
from yurt.structs.status import CLIENT_TERMINAL, DEPLOYMENT_SUCCESSFUL, JOB_SYSBATCH, JOB_SYSTEM, SERVER_TERMINAL

NEAR_MISSES = 5
CHANGE_ROWS_MAX = 2000
"""Nodes looked at for the least change, in the order of the least that they may need."""

CHANGE_ROUNDS_MAX = 32
"""So many allocations get room one after another when a gang is to be placed; larger lacks are told for one of them."""

Machine = GenericAttempt | SystemAttempt


class _Terms(NamedTuple):
    """With what an attempt is made."""

    now: UnixNano
    seed: int
    limits: LimitsOf


def why_not(snapshot: Snapshot, job: Job, *, now: UnixNano, seed: int, limits: LimitsOf = no_limits) -> JobExplanation:
    """What registering the job (or evaluating it again as it is) would place, and why not the rest."""
    terms = _Terms(now, seed, limits)
    machine, plan = _run(snapshot, job, terms)
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
            notes=tuple(_notes(machine, group, running + len(placed) + unplaced)),
            scores=_scores(snapshot, placed[0].metrics.score_meta_data, placed[0].node_id)
            if placed and placed[0].metrics is not None
            else (),
        )
        if placer is not None and (group.name in machine.failed or (group.count and not made.desired)):
            made = _with_blockers(made, placer, only=_open_rows(machine, group.name), quota=_quota(machine, group.name))
            made = _with_places(snapshot, job, made, terms)
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
        if placer.volumes.is_used:
            placer.look_at_volumes(alloc_index(alloc.name))
        ranked = _ranked_now(snapshot, placer, alloc.node_id)
        others_only = np.array([node_id != alloc.node_id for node_id in view.rows.ids], np.bool_)
        now = _with_blockers(GroupExplanation(name=group.name, desired=group.count), placer, only=others_only)
        now = replace(now, smallest_change=None, scores=ranked)
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


def _run(snapshot: Snapshot, job: Job, terms: _Terms) -> tuple[Machine, Plan]:
    laid, evaluation = lay_over(snapshot, job, now=terms.now, seed=terms.seed)
    machine = _machine(laid, evaluation, terms)
    plan, _ = machine.run()
    return machine, plan


def _machine(snapshot: Snapshot, evaluation: Evaluation, terms: _Terms) -> Machine:
    ids = Ids(terms.seed, evaluation.id, "0")
    job = snapshot.jobs[evaluation.namespace, evaluation.job_id]
    limits = partial(limits_now, terms.limits, snapshot, job)
    if evaluation.type in (JOB_SYSTEM, JOB_SYSBATCH):
        system = SystemAttempt(snapshot, evaluation, now=terms.now, ids=ids, seed=terms.seed)
        system.limits = tuple(limits())
        return system
    generic = GenericAttempt(snapshot, evaluation, now=terms.now, ids=ids, seed=terms.seed)
    generic.limits_of = limits
    return generic


def _with_places(snapshot: Snapshot, job: Job, made: GroupExplanation, terms: _Terms) -> GroupExplanation:
    """The explanation with how many more allocations its least change places.

    Where all or many must run together room for one more places none: the change grows until it is enough.
    """
    group, change = job.group(made.name), made.smallest_change
    assert group is not None
    is_whole = job.all_at_once or group.least > 1
    for _ in range(CHANGE_ROUNDS_MAX):
        if change is None:
            break
        machine, plan = _run(_with_nodes(snapshot, change), apply_edits(job, made.name, change.edits), terms)
        places = _places(machine, plan, made)
        if places > 0 or not is_whole:
            return replace(made, smallest_change=replace(change, places=max(0, places)))
        more = _change_of(machine, made.name)
        change = _both(change, more) if more is not None else None
    return made


def _places(machine: Machine, plan: Plan, made: GroupExplanation) -> int:
    if not made.desired:
        return sum(placement.task_group == made.name for placement in plan.placements)
    return made.unplaced - machine.queued.get(made.name, 0)


def _change_of(machine: Machine, name: str) -> SmallestChange | None:
    """The least change for one more allocation of a group that found no room."""
    placer = machine.placers.get(name)
    if placer is None or name not in machine.failed or machine.failed[name].quota_exhausted:
        return None
    if is_allowed(placer.view, placer.job):
        _release_victims(placer)
    blocked = Blocked(placer)
    return _smallest(blocked, _nearest(blocked, blocked.nodes & (blocked.count > 0)))


def _both(first: SmallestChange, then: SmallestChange) -> SmallestChange:
    """A change and one that follows it."""
    edits = joined(first.edits, then.edits)
    return replace(then, edits=edits, text="; ".join(edit.text for edit in edits))


def _with_nodes(snapshot: Snapshot, change: SmallestChange) -> Snapshot:
    """The state with the nodes that a change concerns as it makes them."""
    nodes: dict[str, Node] = {}
    for edit in change.edits:
        if edit.node_id:
            nodes[edit.node_id] = edited_node(nodes.get(edit.node_id) or snapshot.nodes[edit.node_id], edit)
    if not nodes:
        return snapshot
    changed = snapshot.edit(snapshot.index + 1)
    for node in nodes.values():
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


def _notes(machine: Machine, group: TaskGroup, seen: int) -> Iterator[str]:
    """What else there is to know about what is not placed."""
    job = machine.job
    assert job is not None
    if job.stop:
        yield "the job is stopped"
    if group.name in machine.failed or (group.count and not seen):
        yield from unknown_names(machine.snapshot, job, group)
        if not machine.snapshot.nodes:
            yield "there are no nodes"
    if isinstance(machine, GenericAttempt):
        yield from _notes_of_whole(machine, group)
        yield from _notes_of_later(machine, group, seen)


def _notes_of_whole(machine: GenericAttempt, group: TaskGroup) -> Iterator[str]:
    """What is not placed for others do not find room."""
    if group.name in machine.broken:
        yield f"gang: {machine.broken[group.name].gang}, so none of them is placed"
    elif machine.job is not None and machine.job.all_at_once and machine.failed:
        found, asked = machine.withdrawn.get(group.name, 0), machine.queued.get(group.name, 0)
        others = ", ".join(f'"{name}"' for name in sorted(machine.failed) if name != group.name)
        if group.name in machine.failed:
            yield f"all_at_once: {found} of {asked} find room, so nothing of the job is placed"
        else:
            yield f"all_at_once: nothing of the job is placed, for not all of group {others} finds room"


def _notes_of_later(machine: GenericAttempt, group: TaskGroup, seen: int) -> Iterator[str]:
    """What waits for another evaluation."""
    missing = group.count - seen
    later = [evaluation for evaluation in machine.followups if evaluation.wait_until]
    deployment = machine.told_deployment
    if missing <= 0 or group.name in machine.broken or (machine.job is not None and machine.job.stop):
        return
    if later:
        yield f"{missing} wait for a delayed evaluation, evaluation {later[0].id[:8]}"
    elif deployment is not None and group.name in deployment.task_groups and deployment.status != DEPLOYMENT_SUCCESSFUL:
        yield f"{missing} wait for deployment {deployment.id[:8]}, which is {deployment.status}"


def _quota(machine: Machine, group: str) -> tuple[str, ...]:
    """How one more allocation of the group would exceed a limit beside the nodes."""
    failed = machine.failed.get(group)
    return () if failed is None else tuple(f"quota {machine.limit_reached}: {text}" for text in failed.quota_exhausted)


def _open_rows(machine: Machine, group: str) -> BoolArray | None:
    """For a system job the nodes that have no allocation of the group; None for all."""
    if not isinstance(machine, SystemAttempt) or not machine.failed:
        return None
    mask = np.zeros(len(machine.view.offered), np.bool_)
    failed = [node for node, groups in machine.failed_nodes.items() if group in groups]
    mask[[row for node in failed if (row := machine.view.row(node)) is not None]] = True
    return mask


# -- blockers, near misses, the least change ---------------------------------------------------------------------------


def _with_blockers(
    made: GroupExplanation, placer: GroupPlacer, *, only: BoolArray | None, quota: tuple[str, ...] = ()
) -> GroupExplanation:
    metric = placer.failure()
    notes = made.notes
    if made.unplaced and is_allowed(placer.view, placer.job):
        notes += _release_victims(placer)
    blocked = Blocked(placer)
    nodes = blocked.nodes if only is None else blocked.nodes & only
    nearest = _nearest(blocked, nodes & (blocked.count > 0))
    free = nodes & blocked.candidates & (blocked.count == 0)
    limits = [_limit(text, blocked, free) for text in quota]
    return replace(
        made,
        notes=notes,
        nodes_in_pool=metric.nodes_in_pool,
        nodes_evaluated=metric.nodes_evaluated,
        nodes_filtered=metric.nodes_filtered,
        nodes_exhausted=metric.nodes_exhausted,
        blockers=(*limits, *(replace(each, alone=0) if quota else each for each in _blockers(blocked, nodes))),
        near_misses=() if quota and free.any() else tuple(_near_miss(blocked, row) for row in nearest.shown),
        smallest_change=None if quota else _smallest(blocked, nearest),
    )


def _release_victims(placer: GroupPlacer) -> tuple[str, ...]:
    """Count as free what the job may preempt; the answer says so when that is anything."""
    view, number = placer.view, 0
    for row in np.flatnonzero(placer.view.rows.offered[:, IS_NODE]).tolist():
        for victim in victims_of(view, placer.job, row):
            view.release(victim)
            number += 1
    if not number:
        return ()
    text = (
        "1 less important allocation that may be preempted uses"
        if number == 1
        else (f"{number} less important allocations that may be preempted use")
    )
    return (f"what {text} counts as free below",)


def _limit(text: str, blocked: Blocked, free: BoolArray) -> Blocker:
    nodes = int(np.count_nonzero(blocked.candidates))
    return Blocker(kind="quota", text=text, nodes=nodes, alone=int(np.count_nonzero(free)))


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


class _Nearest(NamedTuple):
    """Rows by what a change of them costs at least, with that cost; and the nearest by what they lack."""

    rows: list[int]
    least: list[Cost]
    shown: list[int]


def _nearest(blocked: Blocked, nodes: BoolArray) -> _Nearest:
    """Rows without anything that no change brings come first; then by the least that they need; then by name."""
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
    for row, held in blocked.held.items():
        weight[row] += _exclusive_weight(blocked, row, held)
    lacking = weight.copy()
    for column, name, _ in AMOUNTS:
        if blocked.asked[column] and not (name == "cpu" and blocked.placer.ask.cores):
            short = np.maximum(0, blocked.short(column))
            weight += -(-short // (blocked.own + 1)) / blocked.asked[column]
            lacking += short / blocked.asked[column]
    rows = np.flatnonzero(nodes)
    names = _ranks([blocked.view.node(row).name for row in rows.tolist()])
    shown = np.lexsort((blocked.rows.ties[rows], names, lacking[rows], edits[rows], equipment[rows], hopeless[rows]))
    by_cost = np.lexsort((blocked.rows.ties[rows], names, weight[rows], edits[rows], equipment[rows], hopeless[rows]))
    nearest, rows = rows[shown[:NEAR_MISSES]], rows[by_cost]
    least = list(zip(equipment[rows].tolist(), edits[rows].tolist(), weight[rows].tolist(), strict=True))
    return _Nearest(rows.tolist(), least, nearest.tolist())


def _exclusive_weight(blocked: Blocked, row: int, held: Held) -> float:
    """The least size of the edits that cores and devices need."""
    asked, own = blocked.placer.ask.cores, int(blocked.own[row])
    cores = max(0, asked - (held.cores_free + own * asked) // (own + 1)) / asked if asked else 0.0
    return cores + sum(size for _, size in device_edits(blocked, row))


def _ranks(names: Sequence[str]) -> IntArray:
    """The place of each name among all of them in order."""
    place = {name: at for at, name in enumerate(sorted(set(names)))}
    return np.array([place[name] for name in names], np.int64)


def _smallest(blocked: Blocked, nearest: _Nearest) -> SmallestChange | None:
    """The least change of all nodes; the order says when no later node can do with less."""
    best: tuple[Change, int] | None = None
    for row, least in zip(nearest.rows[:CHANGE_ROWS_MAX], nearest.least, strict=False):
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
    looked_at = f"of {metrics.nodes_evaluated} that were looked at"
    if metrics.nodes_evaluated == 1:
        looked_at = "as the only one that was looked at"
    text = f"node {node} was chosen {looked_at}"
    ruled_out = metrics.nodes_filtered + metrics.nodes_exhausted
    if ruled_out:
        text += f", {ruled_out} of them ruled out"
    own = next((score for score in scores if score.chosen), None)
    rivals = [score for score in scores if not score.chosen]
    if own is not None and rivals:
        rival = rivals[0].node_name or rivals[0].node_id[:8]
        text += f"; it scored {own.norm_score:.3g}, the next best, {rival}, {rivals[0].norm_score:.3g}"
    victims = len(alloc.preempted_allocations)
    if victims:
        text += f"; {victims} less important {'allocation' if victims == 1 else 'allocations'} made room"
    return text
