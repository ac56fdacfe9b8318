"""Sorts allocations into present ones, those to replace now and those to replace later
(docs/explanation/reconciling.md)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec

from yurt.scheduler.reconcile.classify import is_out_of_reach, is_unplaced
from yurt.scheduler.reconcile.reschedule_policy import SOON, due
from yurt.structs.alloc import Allocation
from yurt.structs.deployment import Deployment
from yurt.structs.node import Node
from yurt.structs.predicates import has_completed, has_returned_done
from yurt.structs.queueing.requeue import (
    IDLE_DELAY,
    behind_until,
    due_at,
    has_attempts,
    has_done_its_work,
    requeue_policy,
    waited_for,
)
from yurt.structs.status import (
    CLIENT_COMPLETE,
    CLIENT_FAILED,
    CLIENT_LOST,
    CLIENT_TERMINAL,
    DEPLOYMENT_ACTIVE,
    DESIRED_EVICT,
    DESIRED_STOP,
    SERVER_TERMINAL,
)


class Replacements(msgspec.Struct, frozen=True):
    """Allocations that count as present, those to replace now, and those to replace at a given time."""

    present: list[Allocation]
    now: list[Allocation]
    later: list[tuple[Allocation, int]]
    again: list[Allocation]
    """Live allocations of a batch group whose work another one has completed meanwhile; they no longer count."""


class ReplacementBasis(msgspec.Struct, frozen=True):
    """The facts, apart from the allocation itself, that decide about a replacement."""

    deployment: Deployment | None
    nodes: Mapping[str, Node | None]
    waiting_evals: Collection[str]
    """Evaluations that still wait of those for which idle allocations ended."""


def split(
    allocs: Iterable[Allocation],
    *,
    is_batch: bool,
    eval_id: str,
    now: int,
    basis: ReplacementBasis,
) -> Replacements:
    """Split untainted allocations; one to replace later counts as present until then."""
    result = Replacements([], [], [], [])
    for alloc in allocs:
        is_terminal = alloc.client_status in CLIENT_TERMINAL or alloc.desired_status in SERVER_TERMINAL
        if is_terminal and alloc.next_allocation and not (is_batch and has_returned_done(alloc)):
            continue
        if requeue_policy(alloc) is not None:
            at = behind_until(alloc) if waited_for(alloc) in basis.waiting_evals else 0
            _requeue(result, alloc, eval_id=eval_id, now=now, node=basis.nodes.get(alloc.node_id), behind=at)
            continue
        verdict = _batch(alloc) if is_batch else _service(alloc)
        if verdict is None:
            continue
        if not verdict:
            result.present.append(alloc)
            continue
        _sort(result, alloc, eval_id=eval_id, now=now, deployment=basis.deployment)
    assert len(result.later) <= len(result.present), "an allocation to replace later counts as present until then"
    return _once_each(result) if is_batch else result


def _once_each(replacements: Replacements) -> Replacements:
    """Count each name once: as completed or in progress; a stopped one counts only without either."""
    present = sorted(replacements.present, key=_standing)
    done = {alloc.name for alloc in present if _standing(alloc) == 0}
    counted: dict[str, Allocation] = {}
    retained: list[Allocation] = []
    again: list[Allocation] = []
    for alloc in present:
        if _standing(alloc) == 1:
            (again if alloc.name in done else retained).append(alloc)
        elif alloc.name not in counted:
            retained.append(alloc)
        counted.setdefault(alloc.name, alloc)
    assert len(retained) + len(again) <= len(present), (len(retained), len(again), len(present))
    return Replacements(
        retained,
        [alloc for alloc in replacements.now if alloc.name not in done],
        [pair for pair in replacements.later if pair[0].name not in done],
        again,
    )


def _standing(alloc: Allocation) -> int:
    """0: completed, 1: in progress or to be replaced, 2: stopped."""
    if alloc.desired_status in SERVER_TERMINAL:
        return 2
    return 0 if alloc.client_status == CLIENT_COMPLETE else 1


def _sort(result: Replacements, alloc: Allocation, *, eval_id: str, now: int, deployment: Deployment | None) -> None:
    transition = alloc.desired_transition
    is_rolling = (
        deployment is not None and deployment.status in DEPLOYMENT_ACTIVE and alloc.deployment_id == deployment.id
    )
    # In a deployment its watcher marks the replaceable allocations: a failing version must fail the deployment first,
    # and not be tried again without its knowledge.
    if is_rolling and not (transition.reschedule or transition.force_reschedule):
        result.present.append(alloc)
        return
    is_ended = alloc.client_status in CLIENT_TERMINAL
    is_stopped = alloc.desired_status in SERVER_TERMINAL
    if (transition.force_reschedule and is_ended) or (is_stopped and (transition.reschedule or is_unplaced(alloc))):
        result.now.append(alloc)
        return
    when = due(alloc)
    # The arrival of the follow-up evaluation for this time counts, whatever this server's clock says.
    if when.is_eligible and (alloc.followup_eval_id == eval_id or when.at - now <= SOON):
        result.now.append(alloc)
        return
    result.present.append(alloc)
    if when.is_eligible and not alloc.followup_eval_id:
        result.later.append((alloc, when.at))


def _requeue(
    result: Replacements, alloc: Allocation, *, eval_id: str, now: int, node: Node | None, behind: int
) -> None:
    """Sort a preempted allocation that is placed again: once it has ended and its back-off is over.

    One whose node is out of reach never tells its end. One that has done its work, or has no attempts left, keeps its
    place for good. Until the time `behind` it lets those go first for which it ended, and is looked at in between.
    """
    policy = requeue_policy(alloc)
    assert policy is not None, alloc.id
    has_ended = alloc.client_status in CLIENT_TERMINAL
    if not has_attempts(alloc, policy) or has_done_its_work(alloc):
        result.present.append(alloc)
    elif not has_ended:
        (result.now if is_out_of_reach(node) else result.present).append(alloc)
    else:
        at = due_at(alloc, policy)
        is_called = alloc.followup_eval_id == eval_id
        if (is_called or at - now <= SOON) and now >= behind:
            result.now.append(alloc)
            return
        result.present.append(alloc)
        if not alloc.followup_eval_id or is_called:
            result.later.append((alloc, max(at, min(now + IDLE_DELAY, behind))))


def _batch(alloc: Allocation) -> bool | None:
    """Classify an allocation of a batch job: True for a candidate for replacement, False for a present one, None for
    neither."""
    transition = alloc.desired_transition
    if transition.migrate_disable_placement:
        return False
    if alloc.desired_status == DESIRED_STOP:
        if transition.reschedule:
            return True
        if has_completed(alloc):
            return False
        return True if is_unplaced(alloc) else None
    if alloc.desired_status == DESIRED_EVICT:
        return None
    return alloc.client_status == CLIENT_FAILED


def _service(alloc: Allocation) -> bool | None:
    if alloc.desired_status in SERVER_TERMINAL:
        return True if is_unplaced(alloc) else None
    if alloc.client_status in (CLIENT_COMPLETE, CLIENT_LOST):
        return None
    return alloc.client_status == CLIENT_FAILED
