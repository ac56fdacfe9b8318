"""Failed allocations that nothing can replace yet: stopped all the same, and tried again."""

from __future__ import annotations

from yurt import scheduler
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation, TaskState
from yurt.structs.job import Job
from yurt.structs.policies import DisconnectStrategy, ReschedulePolicy
from yurt.testing import factories
from yurt.testing.cluster_models.cluster import PlannedCluster

ONCE = ReschedulePolicy(attempts=1, interval=seconds(24 * 3600), delay=seconds(5), delay_function="constant")
NO_PLACEMENT = "no placement"


def _failed(job: Job) -> tuple[PlannedCluster, Allocation]:
    """The job's one allocation has failed, its replacement is due, and no node takes it."""
    cluster = PlannedCluster(1)
    cluster.register(job)
    cluster.settle(job)
    (alloc,) = cluster.live(job)
    cluster.end(alloc, status.CLIENT_FAILED)
    _permit(cluster, alloc, status.INELIGIBLE)
    cluster.now = UnixNano(cluster.now + seconds(60))
    return cluster, alloc


def _permit(cluster: PlannedCluster, alloc: Allocation, eligibility: str) -> None:
    cluster.do(c.SetNodeEligibility(node_id=alloc.node_id, eligibility=eligibility))


def _job(job_type: str = "service", **changes: object) -> Job:
    group = factories.group(update=None, migrate=None, reschedule_policy=ONCE)
    return factories.job(type=job_type, task_groups=(replace(group, **changes),))


def _is_marked(cluster: PlannedCluster, alloc: Allocation) -> bool:
    found = cluster.state.allocs[alloc.id]
    return found.reschedule_tracker is not None and found.reschedule_tracker.last_reschedule == NO_PLACEMENT


def test_it_is_stopped_and_marked_and_asked_about_once() -> None:
    for job in (_job(), _job("batch")):
        cluster, failed = _failed(job)
        assert cluster.evaluate(job)
        known = cluster.state.allocs[failed.id]
        assert (known.desired_status, known.desired_description) == ("stop", "alloc was rescheduled because it failed")
        assert _is_marked(cluster, failed) and len(cluster.blocked) == 1
        assert not cluster.evaluate(job)


def test_it_is_replaced_with_its_history_as_soon_as_there_is_room() -> None:
    for job in (_job(), _job("batch")):
        cluster, failed = _failed(job)
        cluster.evaluate(job)
        _permit(cluster, failed, status.ELIGIBLE)
        cluster.settle(job)
        (placed,) = cluster.live(job)
        assert (placed.previous_allocation, placed.name) == (failed.id, failed.name)
        tracker = placed.reschedule_tracker
        assert tracker is not None and (len(tracker.events), tracker.last_reschedule) == (1, "ok")


def test_its_attempts_stay_counted() -> None:
    job = _job()
    cluster, failed = _failed(job)
    cluster.evaluate(job)
    _permit(cluster, failed, status.ELIGIBLE)
    cluster.settle(job)
    cluster.end(cluster.live(job)[0], status.CLIENT_FAILED)
    cluster.now = UnixNano(cluster.now + seconds(60))
    cluster.settle(job)
    assert not cluster.live(job)


def test_a_job_that_is_placed_whole_or_not_at_all_leaves_it_as_it_is() -> None:
    job = replace(_job(), all_at_once=True)
    cluster, _ = _failed(job)
    evaluation = factories.evaluation(job)
    made = scheduler.attempt(cluster.state, evaluation, now=cluster.now, seed=1)
    assert made.plan.is_empty and made.outcome.created[0].status == status.EVAL_BLOCKED


def test_an_original_that_returns_makes_it_needless() -> None:
    job = _job(disconnect=DisconnectStrategy(lost_after=seconds(600), replace=True))
    cluster = PlannedCluster(2)
    cluster.register(job)
    cluster.settle(job)
    (original,) = cluster.live(job)
    cluster.do(c.SetNodeStatus(node_id=original.node_id, status="disconnected", updated_at=1))
    cluster.settle(job)
    (failed,) = (alloc for alloc in cluster.live(job) if alloc.id != original.id)
    cluster.end(failed, status.CLIENT_FAILED)
    _permit(cluster, failed, status.INELIGIBLE)
    cluster.now = UnixNano(cluster.now + seconds(60))
    cluster.settle(job)
    assert _is_marked(cluster, failed)
    cluster.do(c.SetNodeStatus(node_id=original.node_id, status="initializing", updated_at=1))
    states = {"web": TaskState(state="running", started_at=factories.NOW)}
    told = c.AllocUpdate(id=original.id, node_id=original.node_id, client_status="running", task_states=states)
    cluster.do(c.UpdateAllocsFromClient(updates=(told,), now=cluster.now))
    cluster.do(c.SetNodeStatus(node_id=original.node_id, status="ready", updated_at=1))
    cluster.settle(job)
    assert [alloc.id for alloc in cluster.live(job)] == [original.id]
