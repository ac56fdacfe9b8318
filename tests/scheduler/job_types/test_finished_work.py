"""A batch task that completes before the plan that moves it is applied does not run again."""

from __future__ import annotations

import pytest
from yurt.scheduler.attempts import Attempt
from yurt.sdk.value import replace, seconds
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.alloc import Allocation, DesiredTransition, TaskState
from yurt.structs.job import Job
from yurt.structs.plan import AllocStop, Plan
from yurt.structs.policies import DisconnectStrategy, ReschedulePolicy
from yurt.structs.rules import FINISHED_WORK_RULES, STAND_IN_RULES
from yurt.structs.status import JOB_BATCH, JOB_SERVICE, JOB_SYSBATCH, ClientStatus, EvalType
from yurt.testing import factories
from yurt.testing.cluster_models.attempts import applied, attempted

FIRST, SECOND, THIRD = (factories.number_id(number, kind=1) for number in (1, 2, 3))


def _job(kind: EvalType, env: str = "0", **policies: object) -> Job:
    task = factories.task(env={"V": env})
    group = factories.group("once", 1, tasks=(task,), **{"update": None, "reschedule_policy": None, **policies})
    return factories.job("once", type=kind, task_groups=(group,))


def _reported(state: Snapshot, alloc: Allocation, status: ClientStatus) -> Snapshot:
    is_running = status == "running"
    told = TaskState(state="running" if is_running else "dead", failed=status == "failed")
    update = c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status=status, task_states={"web": told})
    return applied(state, c.UpdateAllocsFromClient(updates=(update,), now=factories.NOW))


def _running(kind: EvalType = JOB_BATCH, **policies: object) -> tuple[Snapshot, Allocation]:
    """The job runs on the first node; a second one is there for a job that may move."""
    state = applied(
        Snapshot.empty(), c.RegisterNode(node=factories.node(FIRST)), c.RegisterJob(job=_job(kind, **policies))
    )
    state = applied(state, c.ApplyPlan(plan=attempted(state, "once").plan))
    (alloc,) = state.allocs.values()
    if kind != JOB_SYSBATCH:
        state = applied(state, c.RegisterNode(node=factories.node(SECOND)))
    return _reported(state, alloc, "running"), alloc


def _moved(state: Snapshot, alloc: Allocation, event: str) -> Snapshot:
    """Something happened for which the allocation is moved."""
    if event == "node is down":
        return applied(state, c.SetNodeStatus(node_id=FIRST, status="down", updated_at=1))
    transition = DesiredTransition(migrate=True, reschedule=event == "restarted elsewhere")
    closed = (c.SetNodeEligibility(node_id=FIRST, eligibility="ineligible"),) if event == "drained" else ()
    return applied(state, *closed, c.SetDesiredTransitions(transitions={alloc.id: transition}, now=factories.NOW))


@pytest.mark.parametrize(("kind", "event"), [
    (JOB_BATCH, "drained"), (JOB_BATCH, "node is down"), (JOB_BATCH, "restarted elsewhere"),
    (JOB_SYSBATCH, "restarted elsewhere"),
])  # fmt: skip
@pytest.mark.parametrize("rules", [FINISHED_WORK_RULES - 1, FINISHED_WORK_RULES])
def test_what_has_completed_before_its_replacement_is_applied_does_not_run_again(
    kind: EvalType, event: str, rules: int
) -> None:
    state, alloc = _running(kind)
    state = _moved(state, alloc, event)
    made = attempted(state, "once")
    assert [each.previous_allocation for each in made.plan.placements] == [alloc.id]

    state = applied(state, c.SetNodeStatus(node_id=FIRST, status="ready", updated_at=2))
    state = applied(_reported(state, alloc, "complete"), c.ApplyPlan(plan=made.plan), rules=rules)

    if rules < FINISHED_WORK_RULES:
        assert len(state.allocs) == 2
        return
    (done,) = state.allocs.values()
    assert (done.id, done.desired_status, done.next_allocation) == (alloc.id, "run", "")
    assert [(each.job_id, each.triggered_by) for each in state.evals.where("status", "pending")] == [
        ("once", "alloc-stop")
    ]
    assert attempted(state, "once").plan.is_empty


@pytest.mark.parametrize("end", ["failed", "of an older version", "a service's"])
def test_other_ends_do_not_keep_a_replacement_out(end: str) -> None:
    state, alloc = _running(JOB_SERVICE if end == "a service's" else JOB_BATCH)
    if end == "of an older version":
        state = applied(state, c.RegisterJob(job=_job(JOB_BATCH, "1")))
    else:
        state = _moved(state, alloc, "drained")
    made = attempted(state, "once")
    reported = _reported(state, alloc, "failed" if end == "failed" else "complete")
    state = applied(reported, c.ApplyPlan(plan=made.plan))
    assert state.allocs[alloc.id].next_allocation == made.plan.placements[0].id
    assert not state.evals.where("status", "pending")


def test_nothing_is_preempted_for_a_replacement_that_is_left_out() -> None:
    state, alloc = _running()
    victim = factories.job("victim")
    placed = factories.placement(victim, on=state.nodes[SECOND])
    plan = Plan(eval_id="e", namespace="default", job_id=victim.id, now=factories.NOW, placements=(placed,))
    state = applied(state, c.RegisterJob(job=victim), c.ApplyPlan(plan=plan))
    state = _moved(state, alloc, "drained")
    plan = attempted(state, "once").plan
    preempted = AllocStop(id=placed.id, node_id=SECOND, desired_status="evict", preempted_by=plan.placements[0].id)
    state = applied(_reported(state, alloc, "complete"), c.ApplyPlan(plan=replace(plan, preemptions=(preempted,))))
    assert state.allocs[placed.id].desired_status == "run"


def _stand_in(strategy: str = "best_score") -> tuple[Snapshot, Allocation, Allocation]:
    """An allocation out of contact, and the one that stands in for it on the second node."""
    again = ReschedulePolicy(attempts=3, interval=seconds(3600), delay_function="constant")
    disconnect = DisconnectStrategy(lost_after=seconds(600), replace=True, reconcile=strategy)
    state, alloc = _running(disconnect=disconnect, reschedule_policy=again)
    state = applied(state, c.SetNodeStatus(node_id=FIRST, status="disconnected", updated_at=1))
    state = applied(state, c.ApplyPlan(plan=attempted(state, "once").plan))
    (other,) = (each for each in state.allocs.values() if each.id != alloc.id)
    return _reported(state, other, "running"), alloc, other


def _failed_stand_in() -> tuple[Snapshot, Allocation, Attempt]:
    """What stood in for an allocation out of contact has failed; the plan for the next one, not applied yet."""
    state, alloc, other = _stand_in()
    state = _reported(state, other, "failed")
    made = attempted(state, "once")
    assert [each.previous_allocation for each in made.plan.placements] == [other.id]
    return applied(state, c.SetNodeStatus(node_id=FIRST, status="initializing", updated_at=2)), alloc, made


def _moved_stand_in(event: str) -> tuple[Snapshot, Allocation, Attempt]:
    """What stands in for an allocation out of contact is to move to a third node; the plan, not applied yet."""
    state, alloc, other = _stand_in()
    state = applied(state, c.RegisterNode(node=factories.node(THIRD)))
    if event in ("lost", "disconnected"):
        down = "down" if event == "lost" else event
        state = applied(state, c.SetNodeStatus(node_id=SECOND, status=down, updated_at=1))
    else:
        transition = DesiredTransition(migrate=True, reschedule=event == "restarted elsewhere")
        closed = (c.SetNodeEligibility(node_id=SECOND, eligibility="ineligible"),) if event == "drained" else ()
        moved = c.SetDesiredTransitions(transitions={other.id: transition}, now=factories.NOW)
        state = applied(state, *closed, moved)
    made = attempted(state, "once")
    assert [each.previous_allocation for each in made.plan.placements] == [other.id]
    return applied(state, c.SetNodeStatus(node_id=FIRST, status="initializing", updated_at=2)), alloc, made


@pytest.mark.parametrize("event", ["lost", "disconnected", "drained", "restarted elsewhere"])
@pytest.mark.parametrize("rules", [STAND_IN_RULES - 1, STAND_IN_RULES])
def test_what_completes_out_of_contact_is_not_run_again_for_its_stand_in_that_moves(event: str, rules: int) -> None:
    state, alloc, made = _moved_stand_in(event)
    state = applied(_reported(state, alloc, "complete"), c.ApplyPlan(plan=made.plan), rules=rules)
    if rules < STAND_IN_RULES:
        assert len(state.allocs) == 3
        return
    assert len(state.allocs) == 2
    assert [each.triggered_by for each in state.evals.where("status", "pending")] == ["alloc-stop"]
    again = attempted(state, "once").plan
    (other,) = (each.id for each in state.allocs.values() if each.id != alloc.id)
    decided = [each.id for each in (*again.stops, *again.attributes)]
    assert (decided, again.placements) == ([other], ()), "it stops, or waits for its client"
    assert attempted(applied(state, c.ApplyPlan(plan=again)), "once").plan.is_empty, "so evaluations end"


@pytest.mark.parametrize("end", ["still away", "running", "failed"])
@pytest.mark.parametrize("event", ["lost", "drained"])
def test_a_stand_in_that_moves_is_replaced_while_its_original_has_not_completed(event: str, end: str) -> None:
    state, alloc, made = _moved_stand_in(event)
    if end != "still away":
        state = _reported(state, alloc, "running" if end == "running" else "failed")
    state = applied(state, c.ApplyPlan(plan=made.plan))
    assert len(state.allocs) == 3


@pytest.mark.parametrize("rules", [FINISHED_WORK_RULES - 1, FINISHED_WORK_RULES])
def test_what_completes_out_of_contact_is_not_run_again_for_the_failed_one_that_stood_in(rules: int) -> None:
    state, alloc, made = _failed_stand_in()
    state = applied(_reported(state, alloc, "complete"), c.ApplyPlan(plan=made.plan), rules=rules)
    if rules < FINISHED_WORK_RULES:
        assert len(state.allocs) == 3
        return
    assert len(state.allocs) == 2
    assert [each.triggered_by for each in state.evals.where("status", "pending")] == ["alloc-stop"]
    assert attempted(state, "once").plan.is_empty, "the scheduler decides the same, so evaluations end"


@pytest.mark.parametrize("end", ["still away", "failed"])
def test_the_one_that_stood_in_is_rescheduled_while_its_original_has_not_completed(end: str) -> None:
    state, alloc, made = _failed_stand_in()
    state = _reported(state, alloc, "failed") if end == "failed" else state
    state = applied(state, c.ApplyPlan(plan=made.plan))
    assert len(state.allocs) == 3


@pytest.mark.parametrize("strategy", ["keep_original", "keep_replacement"])
@pytest.mark.parametrize("rules", [STAND_IN_RULES - 1, STAND_IN_RULES])
def test_of_two_the_one_stays_that_completes_in_the_moment_in_which_it_is_stopped(strategy: str, rules: int) -> None:
    state, alloc, other = _stand_in(strategy)
    back = c.SetNodeStatus(node_id=FIRST, status="initializing", updated_at=2)
    state = _reported(applied(state, back), alloc, "running")
    state = applied(state, c.SetNodeStatus(node_id=FIRST, status="ready", updated_at=3))
    made = attempted(state, "once")
    loser, winner = (other, alloc) if strategy == "keep_original" else (alloc, other)
    assert [each.id for each in made.plan.stops] == [loser.id]

    state = applied(_reported(state, loser, "complete"), c.ApplyPlan(plan=made.plan), rules=rules)

    again = attempted(state, "once").plan
    if rules < STAND_IN_RULES:
        assert again.is_empty, "the other runs to its end as well"
        return
    assert state.allocs[loser.id].desired_status == "run"
    assert ([each.id for each in again.stops], again.placements) == ([winner.id], ())
    assert attempted(applied(state, c.ApplyPlan(plan=again)), "once").plan.is_empty


def test_a_plan_counts_completed_and_stopped_allocations_as_ignored() -> None:
    """As Nomad does: 0.8.2 shows `(2 ignore)` for a batch job of count 1 that has run twice."""
    state, alloc = _running()
    state = applied(_reported(state, alloc, "complete"), c.RegisterJob(job=_job(JOB_BATCH, "1")))
    state = applied(state, c.ApplyPlan(plan=attempted(state, "once").plan))
    annotations = attempted(state, "once").plan.annotations
    assert annotations is not None and annotations.desired_tg_updates["once"].ignore == 2
