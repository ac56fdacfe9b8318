"""Decides whether a reconnected allocation or its replacement stays (invariant D3, docs/explanation).

The decision rests on what the servers wrote down themselves. Only `longest_running` has to ask when tasks started,
which clients tell by clocks of their own: those are not asked where the servers know the answer.
"""

from __future__ import annotations

from yurt.scheduler.reconcile.classify import strategy_of
from yurt.structs.alloc import Allocation, TaskState
from yurt.structs.job import Job
from yurt.structs.predicates import unknown_since
from yurt.structs.status import CLIENT_FAILED, CLIENT_RUNNING, CLIENT_TERMINAL


def decide(original: Allocation, rivals: list[Allocation], job: Job) -> tuple[bool, list[Allocation]]:
    """Whether the original stays, and which allocations stop."""
    if original.client_status == CLIENT_FAILED or _is_outdated(original, job):
        return False, [original]
    for rival in rivals:
        if not _is_original_better(original, rival):
            return False, [original]
    return True, list(rivals)


def _is_outdated(original: Allocation, job: Job) -> bool:
    old = original.job
    return old is None or old.version != job.version or old.create_index != job.create_index


def _is_original_better(original: Allocation, rival: Allocation) -> bool:
    # An ended allocation is never preferred, whatever the strategy.
    if rival.client_status in CLIENT_TERMINAL:
        return True
    # Before the strategy: an original of an older version would have to be replaced by the next evaluation.
    if original.job is not None and rival.job is not None and rival.job.version > original.job.version:
        return False
    match strategy_of(original).reconcile:
        case "keep_original":
            return True
        case "keep_replacement":
            return False
        case "longest_running":
            verdict = _has_run_longer(original, rival)
            return _has_better_score(original, rival) if verdict is None else verdict
        case _:
            return _has_better_score(original, rival)


def _has_better_score(original: Allocation, rival: Allocation) -> bool:
    own, other = _score(original), _score(rival)
    is_rival_better = other is not None and (own is None or other > own)
    can_rival_serve = rival.client_status == CLIENT_RUNNING or original.client_status != CLIENT_RUNNING
    return not (is_rival_better and can_rival_serve)


def _score(alloc: Allocation) -> float | None:
    if alloc.metrics is None or not alloc.metrics.score_meta_data:
        return None
    return max(meta.norm_score for meta in alloc.metrics.score_meta_data)


def _has_run_longer(original: Allocation, rival: Allocation) -> bool | None:
    own, other = _started(original), _started(rival)
    if own is None and other is None:
        return None
    if own is None or other is None:
        return other is None
    if not own.restarts and rival.create_time >= unknown_since(original):
        return True
    return _at_least(own, original) <= _at_least(other, rival)


def _started(alloc: Allocation) -> TaskState | None:
    """The start time of the leader task, or of the longest running main task; None if it has not started."""
    group = alloc.job.group(alloc.task_group) if alloc.job is not None else None
    tasks = group.tasks if group is not None else ()
    leader = next((task.name for task in tasks if task.leader), "")
    main = [leader] if leader else [task.name for task in tasks if task.lifecycle is None]
    states = [alloc.task_states[name] for name in main if name in alloc.task_states]
    return min((state for state in states if state.started_at), key=lambda state: state.started_at, default=None)


def _at_least(task: TaskState, alloc: Allocation) -> int:
    """Its start time, but not before the servers created its allocation, in case its client's clock is wrong."""
    return max(task.started_at, alloc.create_time)
