"""Sysbatch jobs run once on each node in each version: what counts as run, and what a late plan leaves."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.alloc import Allocation, DesiredTransition, TaskEvent, TaskState
from yurt.structs.job import Job
from yurt.structs.plan import AllocStop, Plan
from yurt.structs.rules import LATE_UPDATE_RULES
from yurt.structs.status import JOB_BATCH, JOB_SYSBATCH, JOB_SYSTEM, ClientStatus, EvalType
from yurt.testing import factories
from yurt.testing.cluster_models.attempts import applied, attempted

STOPPED = DesiredTransition(migrate=True, migrate_disable_placement=True)
RESCHEDULED = DesiredTransition(migrate=True, reschedule=True)


def _job(kind: EvalType = JOB_SYSBATCH, count: int = 1, **changes: Any) -> Job:
    group = factories.group("once", count, update=None, reschedule_policy=None)
    return factories.job("once", type=kind, task_groups=(group,), **changes)


def _evaluated(state: Snapshot) -> Snapshot:
    made = attempted(state, "once")
    return state if made.plan.is_empty else applied(state, c.ApplyPlan(plan=made.plan))


def _reported(state: Snapshot, alloc: Allocation, status: ClientStatus, *events: str) -> Snapshot:
    told = TaskState(
        state="running" if status == "running" else "dead", events=tuple(TaskEvent(type=each) for each in events)
    )
    update = c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status=status, task_states={"web": told})
    return applied(state, c.UpdateAllocsFromClient(updates=(update,), now=factories.NOW))


def _running(kind: EvalType = JOB_SYSBATCH) -> tuple[Snapshot, Allocation]:
    """The job runs on one node."""
    state = _evaluated(applied(Snapshot.empty(), c.RegisterNode(node=factories.node()), c.RegisterJob(job=_job(kind))))
    (alloc,) = state.allocs.values()
    return _reported(state, alloc, "running"), alloc


def _stopped(transition: DesiredTransition) -> tuple[Snapshot, Allocation]:
    """The allocation is asked to stop, and its client has not reported the end."""
    state, alloc = _running()
    return _evaluated(applied(state, c.SetDesiredTransitions(transitions={alloc.id: transition}))), alloc


def _of_job(state: Snapshot) -> list[str]:
    return sorted(f"{each.desired_status} {each.client_status}" for each in state.allocs_of_job("default", "once"))


@pytest.mark.parametrize("end", ["complete", "failed"])
def test_an_allocation_that_a_user_stopped_is_not_placed_again_before_or_after_its_client_reports(
    end: ClientStatus,
) -> None:
    state, alloc = _stopped(STOPPED)
    assert _of_job(state) == ["stop running"]
    assert attempted(state, "once").plan.is_empty
    assert attempted(_reported(state, alloc, end), "once").plan.is_empty


def test_an_allocation_that_a_user_or_a_drain_stopped_is_not_placed_again_when_its_node_is_lost() -> None:
    state, alloc = _stopped(STOPPED)
    down = c.SetNodeStatus(node_id=alloc.node_id, status="down", updated_at=1)
    state = _evaluated(applied(state, down))
    assert _of_job(state) == ["stop lost"]
    assert attempted(applied(state, replace(down, status="ready")), "once").plan.is_empty


def test_a_lost_allocation_runs_again_when_its_node_returns() -> None:
    state, alloc = _running()
    down = c.SetNodeStatus(node_id=alloc.node_id, status="down", updated_at=1)
    state = _evaluated(applied(state, down))
    assert _of_job(state) == ["stop lost"]
    assert len(attempted(applied(state, replace(down, status="ready")), "once").plan.placements) == 1


def test_an_allocation_that_a_user_stopped_to_reschedule_it_is_replaced_once() -> None:
    state, alloc = _stopped(RESCHEDULED)
    assert _of_job(state) == ["run pending", "stop running"]
    assert attempted(state, "once").plan.is_empty
    (new,) = (each for each in state.allocs.values() if each.previous_allocation == alloc.id)
    state = _reported(_reported(state, alloc, "complete"), new, "complete")
    assert attempted(state, "once").plan.is_empty


@pytest.mark.parametrize(
    ("events", "placed"), [(None, 1), (("Preempting", "Killed"), 1), (("Terminated",), 0)],
    ids=["its client has not reported", "it was ended", "it completed before"],
)  # fmt: skip
def test_a_preempted_allocation_runs_again_unless_it_had_done_its_work(
    events: tuple[str, ...] | None, placed: int
) -> None:
    state, alloc = _running()
    evicted = AllocStop(id=alloc.id, node_id=alloc.node_id, desired_status="evict", preempted_by="other")
    plan = Plan(eval_id="e", namespace="default", job_id="once", preemptions=(evicted,))
    state = applied(state, c.ApplyPlan(plan=plan))
    if events is not None:
        state = _reported(state, alloc, "complete", *events)
    assert len(attempted(state, "once").plan.placements) == placed


def test_a_job_that_was_stopped_and_is_registered_again_runs_again() -> None:
    state, alloc = _running()
    state = _evaluated(applied(state, c.DeregisterJob(namespace="default", job_id="once")))
    state = applied(_reported(state, alloc, "complete"), c.RegisterJob(job=_job()))
    assert len(attempted(state, "once").plan.placements) == 1


@pytest.mark.parametrize(("kind", "end"), [
    (JOB_SYSBATCH, "complete"), (JOB_SYSBATCH, "failed"), (JOB_BATCH, "complete"), (JOB_SYSTEM, "failed"),
])  # fmt: skip
@pytest.mark.parametrize("rules", [LATE_UPDATE_RULES - 1, LATE_UPDATE_RULES])
def test_a_version_runs_also_where_the_one_before_ends_before_its_update_in_place_is_applied(
    kind: EvalType, end: ClientStatus, rules: int
) -> None:
    state, alloc = _running(kind)
    state = applied(state, c.RegisterJob(job=replace(_job(kind), priority=60)))
    made = attempted(state, "once")
    assert [each.id for each in made.plan.in_place] == [alloc.id] and not made.plan.placements

    state = applied(_reported(state, alloc, end), c.ApplyPlan(plan=made.plan), rules=rules)

    pending = [each for each in state.evals.where("status", "pending") if each.triggered_by == "alloc-stop"]
    assert [(each.job_id, each.type, each.create_time) for each in pending] == (
        [("once", kind, factories.NOW)] if rules >= LATE_UPDATE_RULES else []
    )
    (placed,) = attempted(state, "once").plan.placements
    assert placed.job_version == 1


@pytest.mark.parametrize("moment", ["in time", "job stopped", "preempted"])
def test_an_update_in_place_that_is_not_too_late_needs_no_further_evaluation(moment: str) -> None:
    state, alloc = _running()
    state = applied(state, c.RegisterJob(job=replace(_job(), priority=60)))
    made = attempted(state, "once")
    if moment == "job stopped":
        state = applied(_reported(state, alloc, "complete"), c.DeregisterJob(namespace="default", job_id="once"))
    elif moment == "preempted":
        evicted = AllocStop(id=alloc.id, node_id=alloc.node_id, desired_status="evict", preempted_by="other")
        plan = Plan(eval_id="e", namespace="default", job_id="once", preemptions=(evicted,))
        state = _reported(applied(state, c.ApplyPlan(plan=plan)), alloc, "complete")
    state = applied(state, c.ApplyPlan(plan=made.plan))
    assert not state.evals.where("status", "pending")
