"""Status, health and promotion of deployments."""

from __future__ import annotations

import pytest
from yurt.sdk.value import UnixNano, replace
from yurt.structs import status
from yurt.structs.alloc import AllocDeploymentStatus
from yurt.structs.cluster import Namespace, NamespaceCapabilities
from yurt.structs.commands import (
    ApplyPlan,
    DeleteDeployments,
    PromoteDeployment,
    RegisterJob,
    RegisterNode,
    SetDeploymentAllocHealth,
    SetDeploymentStatus,
    UpsertNamespaces,
)
from yurt.structs.deployment import Deployment, DeploymentState
from yurt.structs.job import Job
from yurt.structs.plan import DeploymentUpdate, Placement, Plan
from yurt.testing import factories
from yurt.testing.replica import Replica

KEY = ("default", "web")
NODE = factories.node(factories.number_id(1, kind=1))
LATER = UnixNano(factories.NOW + 5)


class Rollout:
    """A deployment with one canary and one ordinary allocation."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        strategy = factories.update_strategy(canary=1)
        job = factories.job(task_groups=(factories.group(count=2, update=strategy),))
        replica.apply(RegisterNode(node=NODE), RegisterJob(job=job, evaluation=factories.evaluation(job)))
        self.id = factories.new_id()
        deployment = factories.deployment(self.job, id=self.id, status_description="Deployment is running but requires")
        self.canary = self.place(0, deployment_status=AllocDeploymentStatus(canary=True))
        self.other = self.place(1)
        plan = Plan(eval_id="e", namespace="default", job_id="web", now=factories.NOW, deployment=deployment)
        replica.apply(ApplyPlan(plan=replace(plan, placements=(self.canary, self.other))))

    def place(self, index: int, **changes: object) -> Placement:
        return factories.placement(self.job, on=NODE, index=index, deployment_id=self.id, **changes)

    @property
    def job(self) -> Job:
        return self.replica.state.jobs[KEY]

    @property
    def deployment(self) -> Deployment:
        return self.replica.state.deployments[self.id]

    @property
    def group(self) -> DeploymentState:
        return self.deployment.task_groups["web"]

    def end(self, expected: str, **changes: object) -> SetDeploymentStatus:
        update = DeploymentUpdate(deployment_id=self.id, status=expected, status_description="told")
        return SetDeploymentStatus(update=update, now=LATER, **changes)

    def judge(self, *healthy: str, unhealthy: tuple[str, ...] = ()) -> SetDeploymentAllocHealth:
        return SetDeploymentAllocHealth(deployment_id=self.id, healthy=healthy, unhealthy=unhealthy, now=LATER)


@pytest.fixture
def rollout(replica: Replica) -> Rollout:
    return Rollout(replica)


def test_what_was_decided_for_a_running_deployment_is_stale_for_a_paused_one(
    replica: Replica, rollout: Rollout
) -> None:
    """The watcher fails a deployment for its deadline, and somebody has just paused it: a paused one does not fail."""
    replica.apply(rollout.end(status.DEPLOYMENT_PAUSED))
    late = rollout.end(status.DEPLOYMENT_FAILED, expected_status=status.DEPLOYMENT_RUNNING)
    promote = PromoteDeployment(deployment_id=rollout.id, expected_status=status.DEPLOYMENT_RUNNING)
    assert [replica.reject(command).kind for command in (late, promote)] == ["stale", "stale"]
    assert rollout.deployment.status == status.DEPLOYMENT_PAUSED


def test_a_successful_deployment_makes_its_version_stable(replica: Replica, rollout: Rollout) -> None:
    replica.apply(rollout.end(status.DEPLOYMENT_SUCCESSFUL))
    assert (rollout.deployment.status, rollout.deployment.status_description) == ("successful", "told")
    assert rollout.job.stable
    assert rollout.job.version == 0


def test_an_ended_deployment_never_changes(replica: Replica, rollout: Rollout) -> None:
    replica.apply(rollout.end(status.DEPLOYMENT_FAILED))
    for command in (
        rollout.end("successful"),
        rollout.judge(rollout.other.id),
        PromoteDeployment(deployment_id=rollout.id),
    ):
        rejected = replica.reject(command)
        assert rejected.kind == "conflict"
        assert 'terminal status "failed"' in rejected.message
    assert not rollout.job.stable


def test_a_failed_deployment_stores_the_job_that_it_goes_back_to(replica: Replica, rollout: Rollout) -> None:
    back = factories.job(priority=70)
    evaluation = factories.evaluation(back, triggered_by="deployment-watcher")
    replica.apply(rollout.end(status.DEPLOYMENT_FAILED, job=back, evaluation=evaluation))
    assert (rollout.job.version, rollout.job.priority) == (1, 70)
    assert evaluation.id in replica.state.evals


def test_an_operator_judges_health(replica: Replica, rollout: Rollout) -> None:
    replica.apply(rollout.judge(rollout.canary.id, unhealthy=(rollout.other.id,)))
    assert (rollout.group.healthy_allocs, rollout.group.unhealthy_allocs) == (1, 1)
    assert rollout.group.require_progress_by == LATER + rollout.group.progress_deadline
    assert replica.reject(rollout.judge("stranger")).kind == "not_found"


def test_promotion_needs_healthy_canaries(replica: Replica, rollout: Rollout) -> None:
    rejected = replica.reject(PromoteDeployment(deployment_id=rollout.id, now=LATER))
    assert rejected.message == 'Task group "web" has 0/1 healthy allocations'
    assert replica.reject(PromoteDeployment(deployment_id=rollout.id, groups=("odd",))).kind == "invalid"
    assert replica.reject(PromoteDeployment(deployment_id="odd")).kind == "not_found"


def test_promotion_frees_the_canaries_and_starts_the_deadline_anew(replica: Replica, rollout: Rollout) -> None:
    replica.apply(rollout.judge(rollout.canary.id))
    replica.apply(PromoteDeployment(deployment_id=rollout.id, now=UnixNano(LATER + 7)))
    canary = replica.state.allocs[rollout.canary.id]
    assert rollout.group.promoted
    assert rollout.group.require_progress_by == LATER + 7 + rollout.group.progress_deadline
    assert rollout.deployment.status_description == "Deployment is running"
    assert canary.deployment_status is not None
    assert (canary.deployment_status.canary, canary.deployment_status.healthy) == (False, True)
    assert canary.alloc_modify_index == replica.state.index
    assert replica.reject(PromoteDeployment(deployment_id=rollout.id)).message == "no canaries to promote"


def test_a_job_runs_while_its_deployment_is_active(replica: Replica, rollout: Rollout) -> None:
    assert rollout.job.status == status.JOB_RUNNING


def test_garbage_collection_takes_ended_deployments_only(replica: Replica, rollout: Rollout) -> None:
    replica.apply(DeleteDeployments(deployment_ids=(rollout.id, "gone")))
    assert rollout.id in replica.state.deployments
    replica.apply(rollout.end(status.DEPLOYMENT_CANCELLED), DeleteDeployments(deployment_ids=(rollout.id,)))
    assert rollout.id not in replica.state.deployments


def test_a_deployment_fails_without_a_roll_back_to_what_its_namespace_forbids(
    replica: Replica, rollout: Rollout
) -> None:
    capabilities = NamespaceCapabilities(disabled_task_drivers=("mock_driver",))
    replica.apply(UpsertNamespaces(namespaces=(Namespace(name="default", capabilities=capabilities),)))
    before = rollout.job
    replica.apply(rollout.end(status.DEPLOYMENT_FAILED, job=replace(before, priority=70)))
    assert rollout.deployment.status == status.DEPLOYMENT_FAILED
    assert rollout.deployment.status_description.startswith("told, which its namespace forbids: used task drivers")
    assert rollout.job.version == before.version
