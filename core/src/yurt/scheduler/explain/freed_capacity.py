"""Treats the capacity of replaceable and preemptible allocations as free during an explanation.

A placement that replaces an allocation may use its capacity. When the attempt found no node even so, the allocation
keeps running and the capacity was taken back; an explanation frees it again while it looks, and does the same with
allocations that the job may preempt.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from yurt.scheduler.explain.blockers import NodeBlockers
from yurt.scheduler.explain.disclosure import ALL, Disclosure
from yurt.scheduler.explain.finished_attempt import FinishedAttempt
from yurt.scheduler.placing.group_placer import GroupPlacer
from yurt.scheduler.placing.preemption import is_allowed, victims_of
from yurt.scheduler.reconcile.alloc_names import index_of
from yurt.state.columns import IS_NODE
from yurt.structs.alloc import Allocation
from yurt.structs.job import TaskGroup
from yurt.structs.status import CLIENT_TERMINAL, SERVER_TERMINAL


class FreedCapacity(NamedTuple):
    """The problems of one more allocation while this many `victims` may be preempted."""

    blockers: NodeBlockers
    victims: int


@contextmanager
def freed_capacity(
    attempt: FinishedAttempt, placer: GroupPlacer, disclosure: Disclosure = ALL
) -> Iterator[FreedCapacity]:
    """Treat the capacity of replaceable and preemptible allocations as free inside the `with` block."""
    group = placer.group
    replaced = attempt.draft.replacing.get(group.name, []) if group.name in attempt.draft.failed else []
    live = [alloc for alloc in replaced if is_live(alloc)] if attempt.kind == "generic" else []
    for alloc in replaced:
        placer.view.release(alloc)
    _count(placer, live, -1)
    victims = _victims(placer) if attempt.draft.queued.get(group.name) else []
    for alloc in victims:
        placer.view.release(alloc)
    staying = _staying_rows(attempt, placer, group)
    yield FreedCapacity(NodeBlockers(placer, disclosure, staying=staying), len(victims))
    for alloc in (*victims, *replaced):
        placer.view.restore(alloc)
    _count(placer, live, 1)


def _count(placer: GroupPlacer, allocs: Sequence[Allocation], sign: int) -> None:
    for alloc in allocs:
        placer.count(alloc, sign)
    if allocs:
        placer.recount()


def _victims(placer: GroupPlacer) -> list[Allocation]:
    view, job = placer.view, placer.job
    if not is_allowed(view, job):
        return []
    rows = view.rows.offered[:, IS_NODE].nonzero()[0].tolist()
    return [victim for row in rows for victim in victims_of(view, job, row)]


def _staying_rows(attempt: FinishedAttempt, placer: GroupPlacer, group: TaskGroup) -> list[int]:
    """The row of each allocation of the group that would keep its resources if the group requested less.

    A changed job replaces as many as its update block lets it, those that it lacks first, the others in the order of
    their names; where even the first replacement finds no room, all the others are still as they were.
    """
    if attempt.kind != "generic":
        return []
    view = placer.view
    running = [
        alloc
        for alloc in attempt.context.allocs
        if alloc.task_group == group.name and is_live(alloc) and not view.is_released(alloc.id)
    ]
    if group.name not in attempt.draft.replacing:
        running.sort(key=lambda alloc: (index_of(alloc), alloc.name, alloc.id))
        running = running[_replaced_at_once(attempt, group) :]
    return [row for alloc in running if (row := view.row(alloc.node_id)) is not None]


def _replaced_at_once(attempt: FinishedAttempt, group: TaskGroup) -> int:
    """The number of allocations that a change of the group would replace before placing missing ones."""
    if group.max_parallel <= 0:
        return len(attempt.context.allocs)
    return max(0, group.max_parallel - attempt.draft.queued.get(group.name, 0))


def is_live(alloc: Allocation) -> bool:
    """Whether an allocation runs or is going to run, as far as known."""
    return alloc.client_status not in CLIENT_TERMINAL and alloc.desired_status not in SERVER_TERMINAL
