"""What a replacement knows of those before it: where they failed, and how often."""

from __future__ import annotations

import pytest
from yurt import scheduler
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.state import Snapshot, Tables
from yurt.structs.alloc import Allocation, DesiredTransition, RescheduleEvent, RescheduleTracker
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.plan import Placement
from yurt.testing import factories

HOUR = seconds(3600)


def _state(job: Job, nodes: list[Node], allocs: list[Allocation]) -> Snapshot:
    edit = Snapshot.empty().edit(1)
    for node in nodes:
        edit.put(Tables.nodes, node.id, node)
    edit.put(Tables.jobs, job.key, job)
    edit.put(Tables.job_versions, (*job.key, job.version), job)
    for alloc in allocs:
        edit.put(Tables.allocs, alloc.id, alloc)
    return edit.commit()


def _replacement(job: Job, nodes: list[Node], allocs: list[Allocation], previous: Allocation) -> Placement:
    now = UnixNano(factories.NOW + HOUR)
    made = scheduler.attempt(_state(job, nodes, allocs), factories.evaluation(job), now=now, seed=1)
    (placed,) = made.plan.placements
    assert placed.previous_allocation == previous.id
    return placed


def _tracker(node: Node) -> RescheduleTracker:
    event = RescheduleEvent(reschedule_time=factories.NOW, prev_alloc_id="first", prev_node_id=node.id)
    return RescheduleTracker(events=(event,), last_reschedule="ok")


@pytest.mark.parametrize("way", ["lost", "migrated", "updated"])
def test_a_node_on_which_one_before_it_failed_is_avoided_whatever_the_replacement_is_for(way: str) -> None:
    failed_on, other = factories.node(), factories.node()
    last = factories.node(status="down" if way == "lost" else "ready", scheduling_eligibility="ineligible")
    job = factories.job(task_groups=(factories.group(update=None),))
    alloc = factories.alloc(job, on=last, client_status="running", reschedule_tracker=_tracker(failed_on))
    if way == "migrated":
        alloc = replace(alloc, desired_transition=DesiredTransition(migrate=True))
    if way == "updated":
        group = replace(job.task_groups[0], tasks=(factories.task(env={"V": "2"}),))
        job = replace(job, version=1, task_groups=(group,))
    beside = factories.alloc(factories.job("beside"), on=failed_on, client_status="running")
    placed = _replacement(job, [failed_on, other, last], [alloc, beside], alloc)
    assert placed.node_id == other.id


def test_what_is_lost_carries_its_history_on_and_a_new_version_begins_anew() -> None:
    first, last, gone = factories.node(), factories.node(), factories.node(status="down")
    job = factories.job(task_groups=(factories.group(update=None),))
    lost = factories.alloc(job, on=gone, client_status="running", reschedule_tracker=_tracker(first))
    assert _replacement(job, [first, last, gone], [lost], lost).reschedule_tracker == lost.reschedule_tracker
    running = factories.alloc(job, on=last, client_status="running", reschedule_tracker=_tracker(first))
    newer = replace(job.task_groups[0], tasks=(factories.task(env={"V": "2"}),))
    updated = replace(job, version=1, task_groups=(newer,))
    assert _replacement(updated, [first, last], [running], running).reschedule_tracker is None
