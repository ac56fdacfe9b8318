"""Answers: the reasons why a job's allocations are on their nodes or unplaced, and the smallest change that would help.

Nothing here is part of placing. An explanation runs an attempt on the state as it is (`dry_runs`), keeps what it looked
at, and finds for every node all blockers (`blockers`) and the smallest change (`nearest`,
`minimal_change`, and `change_search` for those that must run together). Where the job may preempt, what it could end
counts as free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from yurt.scheduler.capacity.limits import LimitsOf, no_limits
from yurt.scheduler.capacity.view import ClusterView
from yurt.scheduler.explain.blockers import NodeBlockers, NodeProblem
from yurt.scheduler.explain.change_search import with_places
from yurt.scheduler.explain.count_differences import count_differences
from yurt.scheduler.explain.disclosure import ALL, Disclosure, without_names, without_nodes
from yurt.scheduler.explain.dry_runs import DryRuns
from yurt.scheduler.explain.finished_attempt import FinishedAttempt, FinishedGeneric
from yurt.scheduler.explain.freed_capacity import freed_capacity
from yurt.scheduler.explain.missing_requirements import split_by_requirement
from yurt.scheduler.explain.nearest import near_miss, nearest, smallest
from yurt.scheduler.explain.unknown_names import unknown_names
from yurt.scheduler.feasibility.masks import BoolArray
from yurt.scheduler.job_types.gangs import placeable_text
from yurt.scheduler.placing.group_placer import GroupPlacer
from yurt.sdk.value import UnixNano, replace
from yurt.state.store import Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.explain.explanation import (
    AllocationExplanation,
    Blocker,
    GroupExplanation,
    JobExplanation,
    NearMiss,
    NodeScore,
)
from yurt.structs.explain.metrics import AllocationMetric, NodeScoreMeta
from yurt.structs.job import Job, TaskGroup
from yurt.structs.predicates import alloc_index
from yurt.structs.status import CLIENT_TERMINAL, JOB_SYSBATCH, JOB_SYSTEM, SERVER_TERMINAL

OF_EVERY_NODE = (JOB_SYSTEM, JOB_SYSBATCH)


def why_not(
    snapshot: Snapshot,
    job: Job,
    *,
    now: UnixNano,
    seed: int,
    limits: LimitsOf = no_limits,
    disclosure: Disclosure = ALL,
) -> JobExplanation:
    """The placements of the job, registered or evaluated now, and the reasons for its unplaced allocations."""
    dry_runs = DryRuns(snapshot, job, now=now, seed=seed, limits=limits)
    groups = tuple(_explained(dry_runs, group, disclosure) for group in job.task_groups)
    if not disclosure.reads_nodes:
        groups = tuple(map(without_nodes, groups))
    return JobExplanation(namespace=job.namespace, job_id=job.id, index=snapshot.index, groups=groups)


def why(snapshot: Snapshot, alloc: Allocation, *, seed: int, disclosure: Disclosure = ALL) -> AllocationExplanation:
    """The reasons why an allocation is on its node: its scores at placement, and a present ranking without it."""
    metrics = alloc.metrics
    evaluation = snapshot.evals.get(alloc.eval_id)
    scores = _scores(snapshot, metrics.score_meta_data, alloc.node_id) if metrics is not None else ()
    now = _again(snapshot, alloc, seed, disclosure)
    if not disclosure.reads_nodes:
        scores = without_names(scores, alloc.node_id)
        now = None if now is None else without_nodes(now, alloc.node_id)
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


# -- a group that is not placed, and an allocation that is -------------------------------------------------------------


def _explained(dry_runs: DryRuns, group: TaskGroup, disclosure: Disclosure) -> GroupExplanation:
    """A dry run's result for a group, and the reasons for its unplaced allocations."""
    dry_run = dry_runs.unchanged
    attempt, name, node_id = dry_run.attempt, group.name, disclosure.node_id
    running, placed, unplaced = dry_run.running(name), dry_run.placed(name), dry_run.unplaced(name)
    differences = count_differences(attempt, group)
    desired = running + len(placed) + unplaced + sum(difference.number for difference in differences)
    table = placed[0].metrics.score_meta_data if placed and placed[0].metrics is not None else ()
    made = GroupExplanation(
        name=name,
        desired=desired if dry_runs.job.type in OF_EVERY_NODE else group.count,
        running=running,
        placed=len(placed),
        unplaced=unplaced,
        runs_nowhere=name in attempt.placers and group.count > 0 and not desired and dry_runs.job.type in OF_EVERY_NODE,
        notes=(*_notes(attempt, group, desired, disclosure), *(difference.text for difference in differences)),
        scores=_scores(dry_runs.snapshot, table, placed[0].node_id) if placed else (),
    )
    placer = attempt.placers.get(name)
    if placer is None:
        return made
    if not (name in attempt.draft.failed or made.runs_nowhere):
        return replace(made, there=_there(NodeBlockers(placer, disclosure), node_id)) if node_id else made
    quota, only = _quota(attempt, name), _open_rows(attempt, name)
    with freed_capacity(attempt, placer, disclosure) as (blockers, victims):
        made = replace(made, notes=made.notes + _note_of_victims(victims))
        made = _with_blockers(made, blockers, attempt.draft.failed.get(name), only=only, quota=quota)
        made = replace(made, there=_there(blockers, node_id))
    return with_places(dry_runs, made)


def _there(blockers: NodeBlockers, node_id: str) -> NearMiss | None:
    """The node in question and its shortages; None without a node, or if it is in another pool."""
    row = blockers.view.row(node_id) if node_id else None
    return None if row is None else near_miss(blockers, row)


def _again(snapshot: Snapshot, alloc: Allocation, seed: int, disclosure: Disclosure) -> GroupExplanation | None:
    """A present ranking for an existing allocation, as if it were absent."""
    job = alloc.job
    group = job.group(alloc.task_group) if job is not None else None
    if job is None or group is None or alloc.client_status in CLIENT_TERMINAL:
        return None
    view = ClusterView(snapshot)
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
    blockers = NodeBlockers(placer, disclosure)
    elsewhere = np.array([node_id != alloc.node_id for node_id in view.rows.ids], np.bool_)
    now = _with_blockers(GroupExplanation(name=group.name, desired=group.count), blockers, None, only=elsewhere)
    return replace(
        now,
        smallest_change=None,
        scores=_ranked_now(snapshot, blockers, alloc.node_id),
        notes=tuple(_note_of_own(snapshot, blockers, alloc.node_id)),
    )


def _note_of_own(snapshot: Snapshot, blockers: NodeBlockers, node_id: str) -> Iterator[str]:
    """The reason why an allocation's own node would refuse it now, or None."""
    row = blockers.view.row(node_id)
    if row is not None and node_id in snapshot.nodes and blockers.count[row]:
        miss = near_miss(blockers, row)
        lacks = ": " + "; ".join(short.text for short in miss.shortfalls) if blockers.disclosure.reads_nodes else ""
        yield f"its own node, {miss.node_name or node_id[:8]}, would not take it now{lacks}"


def _with_blockers(
    made: GroupExplanation,
    blockers: NodeBlockers,
    failure: AllocationMetric | None,
    *,
    only: BoolArray | None,
    quota: tuple[str, ...] = (),
) -> GroupExplanation:
    """The explanation with the problems of the nodes, or of `only` some, and the smallest change."""
    metric = failure or blockers.placer.failure()
    nodes = blockers.nodes if only is None else blockers.nodes & only
    nearest_rows = nearest(blockers, nodes & (blockers.count > 0))
    free = nodes & blockers.candidates & (blockers.count == 0)
    limits = [_limit(text, blockers, free) for text in quota]
    return replace(
        made,
        nodes_in_pool=metric.nodes_in_pool,
        nodes_evaluated=metric.nodes_evaluated,
        nodes_filtered=metric.nodes_filtered,
        nodes_exhausted=metric.nodes_exhausted,
        blockers=(*limits, *(replace(each, alone=0) if quota else each for each in _blockers(blockers, nodes))),
        near_misses=() if quota and free.any() else tuple(near_miss(blockers, row) for row in nearest_rows.shown),
        smallest_change=None if quota else smallest(blockers, nearest_rows),
    )


def _limit(text: str, blockers: NodeBlockers, free: BoolArray) -> Blocker:
    nodes = int(np.count_nonzero(blockers.candidates))
    return Blocker(kind="quota", text=text, nodes=nodes, alone=int(np.count_nonzero(free)))


def _blockers(blockers: NodeBlockers, nodes: BoolArray) -> list[Blocker]:
    """Every problem with its number of nodes; those of reachable nodes first, then by frequency."""
    problems = split_by_requirement(blockers)
    number = sum((problem.mask.astype(np.int64) for problem in problems), np.zeros(len(nodes), np.int64))
    listed = []
    for problem in problems:
        mask = problem.mask & nodes
        alone = int(np.count_nonzero(mask & (number == 1)))
        count = int(np.count_nonzero(mask if _is_outside(problem) else mask & blockers.candidates))
        if count:
            listed.append(Blocker(kind=problem.kind, text=problem.text, nodes=count, alone=alone))
    return sorted(listed, key=lambda blocker: (-blocker.alone, -blocker.nodes, blocker.kind, blocker.text))


def _is_outside(problem: NodeProblem) -> bool:
    return problem.kind in ("datacenter", "node_pool", "status", "drain", "eligibility")


# -- notes -------------------------------------------------------------------------------------------------------------


def _notes(attempt: FinishedAttempt, group: TaskGroup, desired: int, disclosure: Disclosure) -> Iterator[str]:
    """Further notes on unplaced allocations."""
    job = attempt.context.job
    assert job is not None
    if job.stop:
        yield "the job is stopped"
    if group.name in attempt.draft.failed or (group.count and not desired):
        yield from unknown_names(attempt.context.snapshot, job, group, reads_nodes=disclosure.reads_nodes)
        if not attempt.context.snapshot.nodes:
            yield "the cluster has no nodes"
    if attempt.kind == "generic":
        yield from _notes_of_whole(attempt, group)


def _notes_of_whole(attempt: FinishedGeneric, group: TaskGroup) -> Iterator[str]:
    """Notes on allocations that are unplaced because other members of their gang are."""
    if group.name in attempt.broken:
        yield f"gang: {attempt.broken[group.name].gang}, so none of them is placed"
    elif attempt.context.job is not None and attempt.context.job.all_at_once and attempt.draft.failed:
        withdrawn, queued = attempt.draft.withdrawn.get(group.name, 0), attempt.draft.queued.get(group.name, 0)
        others = ", ".join(f'"{name}"' for name in sorted(attempt.draft.failed) if name != group.name)
        if group.name in attempt.draft.failed:
            yield f"all_at_once: {placeable_text(withdrawn, str(queued))}, so nothing of the job is placed"
        else:
            yield f"all_at_once: nothing of the job is placed, for not all of group {others} finds room"


def _note_of_victims(number: int) -> tuple[str, ...]:
    """A note on the capacity that the explanation assumes to be free, if any."""
    if not number:
        return ()
    who = "1 less important allocation that may be preempted uses"
    if number > 1:
        who = f"{number} less important allocations that may be preempted use"
    return (f"what {who} counts as free below",)


def _quota(attempt: FinishedAttempt, group: str) -> tuple[str, ...]:
    """The excess of a quota by one more allocation of the group."""
    failed = attempt.draft.failed.get(group)
    return () if failed is None else tuple(f"quota {attempt.limit_reached}: {text}" for text in failed.quota_exhausted)


def _open_rows(attempt: FinishedAttempt, group: str) -> BoolArray | None:
    """For a system job, the rows of nodes without an allocation of the group; None for all rows."""
    if attempt.kind != "system" or not attempt.draft.failed:
        return None
    mask = np.zeros(len(attempt.view.offered), np.bool_)
    failed = [node for node, groups in attempt.failed_nodes.items() if group in groups]
    mask[[row for node in failed if (row := attempt.view.row(node)) is not None]] = True
    return mask


# -- scores ------------------------------------------------------------------------------------------------------------


def _scores(snapshot: Snapshot, metas: Sequence[NodeScoreMeta], chosen: str) -> tuple[NodeScore, ...]:
    scores = []
    for meta in metas:
        node = snapshot.nodes.get(meta.node_id)
        scores.append(
            NodeScore(
                node_id=meta.node_id,
                node_name=node.name if node is not None else "",
                chosen=meta.node_id == chosen,
                norm_score=meta.norm_score,
                scores=meta.scores,
            )
        )
    return tuple(scores)


def _ranked_now(snapshot: Snapshot, blockers: NodeBlockers, chosen: str) -> tuple[NodeScore, ...]:
    """The chosen node, feasible or not, and the best of the others that have capacity."""
    row, ranker = blockers.view.row(chosen), blockers.placer.ranker
    if row is None or chosen not in snapshot.nodes:
        return ()
    ranker.close_all(blockers.count > 0)
    ranker.best()
    return _scores(snapshot, ranker.top(row), chosen)


def _summary(alloc: Allocation, scores: Sequence[NodeScore]) -> str:
    """The explanation in one sentence."""
    if alloc.metrics is None:
        return "nothing is known about how it was placed"
    parts = [_choice(alloc, alloc.metrics)]
    own = next((score for score in scores if score.chosen), None)
    rival = next((score for score in scores if not score.chosen), None)
    if own is not None and rival is not None:
        name = rival.node_name or rival.node_id[:8]
        parts.append(f"it scored {own.norm_score:.3g}, the next best, {name}, {rival.norm_score:.3g}")
    victims = len(alloc.preempted_allocations)
    if victims:
        parts.append(f"{victims} less important {'allocation' if victims == 1 else 'allocations'} made room")
    return "; ".join(parts)


def _choice(alloc: Allocation, metrics: AllocationMetric) -> str:
    """The candidates for its node; a system job has none."""
    node, number = alloc.node_name or alloc.node_id[:8], metrics.nodes_evaluated
    ruled_out = metrics.nodes_filtered + metrics.nodes_exhausted
    without = f", {ruled_out} of them ruled out" if ruled_out else ""
    if alloc.job is not None and alloc.job.type in OF_EVERY_NODE:
        return f"node {node} has one, as has every node that can: it is of a {alloc.job.type} job"
    looked_at = "as the only one that was looked at" if number == 1 else f"of {number} that were looked at"
    return f"node {node} was chosen {looked_at}{without}"
