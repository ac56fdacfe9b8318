"""Reports of clients on their allocations."""

from __future__ import annotations

import pytest
from yurt.sdk.value import UnixNano
from yurt.structs import status
from yurt.structs.alloc import Allocation, AllocDeploymentStatus, AllocNetworkStatus, TaskState
from yurt.structs.commands import (
    AllocUpdate,
    ApplyPlan,
    EvalSeed,
    RegisterJob,
    RegisterNode,
    SetNodeStatus,
    UpdateAllocsFromClient,
)
from yurt.structs.plan import AllocStop, Plan
from yurt.structs.rules import ENDED_SERVICE_RULES
from yurt.testing import factories
from yurt.testing.replica import Replica

KEY = ("default", "web")
NODE = factories.node(factories.number_id(1, kind=1))
LATER = UnixNano(factories.NOW + 5)
RUNNING = {"web": TaskState(state="running")}
DEAD = {"web": TaskState(state="dead")}


@pytest.fixture
def alloc(replica: Replica) -> Allocation:
    """A placed allocation that is part of a deployment."""
    replica.apply(RegisterNode(node=NODE), RegisterJob(job=factories.job()))
    job = replica.state.jobs[KEY]
    deployment = factories.deployment(job)
    placement = factories.placement(job, on=NODE, deployment_id=deployment.id)
    plan = Plan(eval_id="e", namespace="default", job_id="web", now=factories.NOW)
    replica.apply(ApplyPlan(plan=factories.replace(plan, placements=(placement,), deployment=deployment)))
    return replica.state.allocs[placement.id]


def tell(replica: Replica, alloc: Allocation, client_status: str, **changes: object) -> Allocation:
    update = AllocUpdate(id=alloc.id, node_id=NODE.id, client_status=client_status)
    replica.apply(UpdateAllocsFromClient(updates=(factories.replace(update, **changes),), now=LATER))
    return replica.state.allocs[alloc.id]


def test_a_report_is_stored_and_counted(replica: Replica, alloc: Allocation) -> None:
    network = AllocNetworkStatus(address="10.0.0.1")
    told = tell(replica, alloc, "running", task_states=RUNNING, client_description="up", network_status=network)
    assert (told.client_status, told.client_description, told.task_states) == ("running", "up", RUNNING)
    assert told.network_status == network
    assert (told.modify_index, told.alloc_modify_index, told.modify_time) == (4, 3, LATER)
    group = replica.state.job_summaries[KEY].summary["web"]
    assert (group.starting, group.running) == (0, 1)


def test_a_report_without_task_states_keeps_the_known_ones(replica: Replica, alloc: Allocation) -> None:
    tell(replica, alloc, "running", task_states=RUNNING)
    assert tell(replica, alloc, "running", client_description="still").task_states == RUNNING


@pytest.mark.parametrize("final", ["complete", "failed"])
@pytest.mark.parametrize("late", ["running", "pending", "failed", "complete", "unknown"])
def test_a_late_report_after_the_end_is_left_out(replica: Replica, alloc: Allocation, final: str, late: str) -> None:
    tell(replica, alloc, final, task_states=DEAD)
    told = tell(replica, alloc, late, task_states=RUNNING if late != final else DEAD)
    assert (told.client_status, told.task_states) == (final, DEAD)


def test_a_lost_allocation_stays_lost_but_its_tasks_are_told(replica: Replica, alloc: Allocation) -> None:
    plan = Plan(eval_id="e", namespace="default", job_id="web", now=factories.NOW)
    stop = AllocStop(id=alloc.id, node_id=NODE.id, client_status="lost")
    replica.apply(ApplyPlan(plan=factories.replace(plan, stops=(stop,))))
    told = tell(replica, alloc, "complete", task_states=DEAD)
    assert (told.client_status, told.task_states) == (status.CLIENT_LOST, DEAD)


def test_an_unknown_allocation_becomes_what_its_client_tells(replica: Replica, alloc: Allocation) -> None:
    plan = Plan(eval_id="e", namespace="default", job_id="web", now=factories.NOW)
    stop = AllocStop(id=alloc.id, node_id=NODE.id, desired_status="run", client_status="unknown")
    replica.apply(ApplyPlan(plan=factories.replace(plan, stops=(stop,))))
    told = tell(replica, alloc, "running")
    assert told.client_status == "running"
    assert [one.value for one in told.alloc_states] == ["unknown"]
    group = replica.state.job_summaries[KEY].summary["web"]
    assert (group.unknown, group.running) == (0, 1)


def test_reports_on_strangers_and_of_other_nodes_are_left_out(replica: Replica, alloc: Allocation) -> None:
    told = tell(replica, alloc, "running", node_id="other")
    assert told is alloc
    stranger = AllocUpdate(id="stranger", node_id=NODE.id, client_status="running")
    replica.apply(UpdateAllocsFromClient(updates=(stranger,)))
    assert set(replica.state.allocs.keys()) == {alloc.id}


def test_a_node_causes_no_evaluation_of_what_runs_elsewhere(replica: Replica, alloc: Allocation) -> None:
    seed = EvalSeed(seed="s", now=LATER)
    foreign = AllocUpdate(id=alloc.id, node_id=factories.number_id(2, kind=1), client_status="failed")
    before = set(replica.state.evals.keys())
    replica.apply(UpdateAllocsFromClient(updates=(foreign,), seed=seed, now=LATER))
    assert set(replica.state.evals.keys()) == before
    own = factories.replace(foreign, node_id=NODE.id)
    replica.apply(UpdateAllocsFromClient(updates=(own,), seed=seed, now=LATER))
    assert set(replica.state.evals.keys()) != before


def test_an_unchanged_report_writes_no_allocation(replica: Replica, alloc: Allocation) -> None:
    first = tell(replica, alloc, "running", task_states=RUNNING)
    assert tell(replica, alloc, "running", task_states=RUNNING) is first


def test_health_is_counted_once_and_moves_the_deadline(replica: Replica, alloc: Allocation) -> None:
    healthy = AllocDeploymentStatus(healthy=True, timestamp=LATER)
    told = tell(replica, alloc, "running", deployment_status=healthy)
    again = tell(replica, alloc, "running", deployment_status=AllocDeploymentStatus(healthy=True, timestamp=LATER + 9))
    group = replica.state.deployments[alloc.deployment_id].task_groups["web"]
    assert (group.healthy_allocs, group.unhealthy_allocs) == (1, 0)
    assert group.require_progress_by == LATER + group.progress_deadline
    assert told.deployment_status is not None
    assert told.deployment_status.modify_index == 4
    assert again.deployment_status == told.deployment_status


def test_an_allocation_turns_unhealthy_and_stays_so(replica: Replica, alloc: Allocation) -> None:
    for healthy in (True, False, True):
        tell(replica, alloc, "running", deployment_status=AllocDeploymentStatus(healthy=healthy, timestamp=LATER))
    group = replica.state.deployments[alloc.deployment_id].task_groups["web"]
    assert (group.healthy_allocs, group.unhealthy_allocs) == (0, 1)


def test_the_node_remembers_that_it_reported_since_it_was_missed(replica: Replica, alloc: Allocation) -> None:
    replica.apply(SetNodeStatus(node_id=NODE.id, status="disconnected", updated_at=1))
    replica.apply(SetNodeStatus(node_id=NODE.id, status="initializing", updated_at=2))
    node = replica.state.nodes[NODE.id]
    assert node.last_alloc_update_index < node.last_missed_heartbeat_index
    tell(replica, alloc, "running")
    node = replica.state.nodes[NODE.id]
    assert node.last_alloc_update_index > node.last_missed_heartbeat_index
    assert node.modify_index == node.last_alloc_update_index == replica.state.index, "who waits for the node hears it"
    tell(replica, alloc, "running")
    assert replica.state.nodes[NODE.id].last_alloc_update_index == replica.state.index, "until it is ready"


@pytest.mark.parametrize(
    ("rules", "job_type", "client_status", "count"),
    [
        (ENDED_SERVICE_RULES, "service", "complete", 1),
        (ENDED_SERVICE_RULES - 1, "service", "complete", 0),
        (ENDED_SERVICE_RULES, "service", "running", 0),
        (ENDED_SERVICE_RULES, "batch", "complete", 0),
    ],
)
def test_a_service_is_evaluated_when_an_allocation_ends_that_should_run(
    rules: int, job_type: str, client_status: str, count: int
) -> None:
    """A restored snapshot has such allocations: they ended after it was made."""
    replica = Replica(rules_version=rules)
    replica.apply(RegisterNode(node=NODE), RegisterJob(job=factories.job(type=job_type)))
    placement = factories.placement(replica.state.jobs[KEY], on=NODE)
    plan = Plan(eval_id="e", namespace="default", job_id="web", now=factories.NOW, placements=(placement,))
    replica.apply(ApplyPlan(plan=plan))
    update = AllocUpdate(id=placement.id, node_id=NODE.id, client_status=client_status)
    replica.apply(UpdateAllocsFromClient(updates=(update,), seed=EvalSeed(seed="s", now=LATER), now=LATER))
    found = replica.state.evals.where("job", KEY)
    assert [each.triggered_by for each in found] == ["alloc-stop"] * count
