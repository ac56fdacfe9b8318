"""A drain or a user stops a batch allocation for good, but only for its own version: a newer one has yet to run."""

from __future__ import annotations

from typing import Final

import pytest
from yurt import scheduler
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation, DesiredTransition
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.resources import Resources
from yurt.testing import factories
from yurt.testing.cluster_models.cluster import PlannedCluster

STOPPED_FOR_GOOD: Final = DesiredTransition(migrate=True, migrate_disable_placement=True)
TOO_LARGE: Final = 100_000


def _job(cpu: int) -> Job:
    task = factories.task(resources=Resources(cpu=cpu, memory_mb=10))
    group = factories.group(count=1, tasks=(task,), update=None, migrate=None, reschedule_policy=None)
    return factories.job(type=status.JOB_BATCH, task_groups=(group,))


def _running(job: Job) -> tuple[PlannedCluster, Allocation]:
    cluster = PlannedCluster(nodes=2)
    cluster.register(job)
    cluster.settle(job)
    (alloc,) = cluster.live(job)
    return cluster, alloc


def _drain(cluster: PlannedCluster, alloc: Allocation) -> None:
    """The drain of its node has reached the deadline."""
    cluster.do(c.SetNodeEligibility(node_id=alloc.node_id, eligibility=status.INELIGIBLE))
    cluster.do(c.SetDesiredTransitions(transitions={alloc.id: STOPPED_FOR_GOOD}))


@pytest.mark.parametrize("version", ["same", "new"])
def test_a_drained_batch_allocation_is_followed_only_by_one_of_a_newer_version(version: str) -> None:
    cluster, old = _running(job := _job(100))
    if version == "new":
        cluster.register(job := _job(200))
    _drain(cluster, old)

    assert cluster.evaluate(job)
    cluster.clients_act(job)

    live = cluster.live(job)
    assert [alloc.previous_allocation for alloc in live] == ([old.id] if version == "new" else [])
    assert all(alloc.node_id != old.node_id for alloc in live)
    assert cluster.state.allocs[old.id].desired_status == status.DESIRED_STOP
    assert not cluster.evaluate(job), "one evaluation settles it"


def test_a_version_that_waits_for_room_waits_on_after_the_drain_of_the_version_before() -> None:
    cluster, old = _running(_job(100))
    cluster.register(job := _job(TOO_LARGE))
    cluster.evaluate(job)
    cluster.do(c.UpsertEvaluations(evaluations=tuple(cluster.blocked)))
    _drain(cluster, old)

    evaluation = Evaluation(id=factories.new_id(), job_id=job.id, type=job.type, triggered_by="node-drain")
    made = scheduler.attempt(cluster.state, evaluation, now=cluster.now, seed=1)
    cluster.do(c.ApplyPlan(plan=made.plan))
    cluster.do(c.UpsertEvaluations(evaluations=(made.outcome.evaluation, *made.outcome.created)))

    assert cluster.state.allocs[old.id].desired_status == status.DESIRED_STOP
    assert made.outcome.evaluation.queued_allocations == {"web": 1}
    assert cluster.state.evals.where("status", status.EVAL_BLOCKED)
