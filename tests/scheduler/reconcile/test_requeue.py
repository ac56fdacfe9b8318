"""Preempted allocations of groups with `requeue`: replaced once ended, after their back-off, with their history."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.state import Tables
from yurt.structs import commands as c
from yurt.structs.alloc import Allocation, IdleState, TaskEvent, TaskState
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.plan import AllocStop, Plan
from yurt.structs.policies import Requeue
from yurt.structs.queueing.requeue import PREEMPTING
from yurt.structs.status import EvalStatus
from yurt.testing import factories
from yurt.testing.cluster_models.cluster import PlannedCluster


def _preempted(**policy: Any) -> tuple[PlannedCluster, Job, Allocation]:
    """A running batch job whose only allocation is preempted after 100 seconds."""
    group = factories.group(count=1, update=None, requeue=Requeue(**policy))
    job = factories.job(type="batch", task_groups=(group,))
    cluster = PlannedCluster(2)
    cluster.register(job)
    cluster.settle(job)
    (alloc,) = cluster.live(job)
    cluster.now = UnixNano(cluster.now + seconds(100))
    stop = AllocStop(id=alloc.id, node_id=alloc.node_id, desired_status="evict", preempted_by="b")
    plan = Plan(eval_id="e", namespace="default", job_id="urgent", preemptions=(stop,), now=cluster.now)
    cluster.do(c.ApplyPlan(plan=plan))
    return cluster, job, alloc


def _ends(cluster: PlannedCluster, alloc: Allocation, *, saved_ago: float | None = None, told: bool = True) -> None:
    """The client says that the allocation has ended, and when it saved last."""
    saved = 0 if saved_ago is None else UnixNano(cluster.now - seconds(saved_ago))
    state = TaskState(
        state="dead",
        started_at=cluster.state.allocs[alloc.id].task_states["web"].started_at,
        finished_at=cluster.now,
        checkpointed_at=saved,
        events=(TaskEvent(type=PREEMPTING),) if told else (),
    )
    update = c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="complete", task_states={"web": state})
    seed = c.EvalSeed(seed="s", now=cluster.now)
    cluster.do(c.UpdateAllocsFromClient(updates=(update,), now=cluster.now, seed=seed))


def test_it_is_replaced_once_its_client_has_told_its_end() -> None:
    cluster, job, alloc = _preempted()
    cluster.evaluate(job)
    assert cluster.live(job) == []
    _ends(cluster, alloc)
    made = [each for each in cluster.state.evals.values() if each.triggered_by == "preemption"]
    assert [each.job_id for each in made] == [job.id]
    cluster.evaluate(job)
    (again,) = cluster.live(job)
    assert (again.previous_allocation, again.name) == (alloc.id, alloc.name)
    assert again.reschedule_tracker is not None
    assert again.reschedule_tracker.requeues == 1
    assert seconds(100) <= again.reschedule_tracker.lost <= seconds(110)
    ended = cluster.state.allocs[alloc.id]
    assert (ended.desired_status, ended.next_allocation) == ("evict", again.id)


def test_only_the_time_since_the_last_checkpoint_is_lost() -> None:
    cluster, job, alloc = _preempted()
    _ends(cluster, alloc, saved_ago=7)
    cluster.evaluate(job)
    (again,) = cluster.live(job)
    assert again.reschedule_tracker is not None and again.reschedule_tracker.lost == seconds(7)


def test_a_back_off_is_waited_out_by_an_evaluation_of_its_own() -> None:
    cluster, job, alloc = _preempted(delay=seconds(60))
    _ends(cluster, alloc)
    cluster.evaluate(job)
    assert cluster.live(job) == []
    (followup,) = cluster.followups
    due_in = followup.wait_until - cluster.now
    assert followup.triggered_by == "preemption" and seconds(50) < due_in <= seconds(60)
    cluster.now = UnixNano(followup.wait_until)
    cluster.settle(job)
    assert len(cluster.live(job)) == 1


@pytest.mark.parametrize("told", [True, False])
def test_without_attempts_or_with_its_work_done_it_is_over(told: bool) -> None:
    cluster, job, alloc = _preempted(attempts=0 if told else 5)
    _ends(cluster, alloc, told=told)
    cluster.settle(job)
    assert cluster.live(job) == []


def test_what_is_lost_with_its_node_while_it_ends_is_replaced_with_its_history() -> None:
    cluster, job, alloc = _preempted()
    cluster.do(c.SetNodeStatus(node_id=alloc.node_id, status="down", updated_at=1))
    cluster.evaluate(job)
    (again,) = cluster.live(job)
    lost = cluster.state.allocs[alloc.id]
    assert (lost.desired_status, lost.client_status) == ("evict", "lost")
    assert again.previous_allocation == alloc.id and again.node_id != alloc.node_id
    assert again.reschedule_tracker is not None and again.reschedule_tracker.lost >= seconds(100)


def _ended_for(waiting_status: EvalStatus) -> tuple[PlannedCluster, Job, Evaluation]:
    """A batch job whose allocation was ended for being idle, for an evaluation with that status."""
    cluster, job, alloc = _preempted()
    waiting = Evaluation(id="waits", job_id="other", type="batch", status=waiting_status)
    cluster.do(c.UpsertEvaluations(evaluations=(waiting,)))
    idle = IdleState(action="requeue", waiting_eval="waits")
    edit = cluster.state.edit(cluster.state.index + 1)
    edit.put(Tables.allocs, alloc.id, replace(cluster.state.allocs[alloc.id], idle=idle))
    cluster.state = edit.commit()
    _ends(cluster, alloc)
    cluster.evaluate(job)
    assert cluster.live(job) == []
    (followup,) = cluster.followups
    assert seconds(5) < followup.wait_until - cluster.now <= seconds(10)
    return cluster, job, waiting


def _call_followup(cluster: PlannedCluster, job: Job) -> None:
    followup = max(cluster.followups, key=lambda each: each.wait_until)
    cluster.now = UnixNano(followup.wait_until)
    cluster.evaluate(job, "preemption", eval_id=followup.id)


def test_one_that_ended_for_being_idle_goes_behind_the_one_it_ended_for_until_that_is_placed() -> None:
    cluster, job, waiting = _ended_for("blocked")
    for _ in range(3):
        _call_followup(cluster, job)
        assert cluster.live(job) == []
    cluster.do(c.UpsertEvaluations(evaluations=(replace(waiting, status="complete"),)))
    _call_followup(cluster, job)
    assert len(cluster.live(job)) == 1


def test_it_goes_behind_for_five_minutes_at_most() -> None:
    cluster, job, _ = _ended_for("blocked")
    begun, calls = cluster.now, 0
    while not cluster.live(job):
        _call_followup(cluster, job)
        calls += 1
        assert calls < 40

    assert seconds(290) < cluster.now - begun <= seconds(310)


def test_it_does_not_wait_for_one_that_waits_no_longer() -> None:
    cluster, job, _ = _ended_for("complete")
    _call_followup(cluster, job)
    assert len(cluster.live(job)) == 1
