"""Which allocations leave failed devices now: pace, contact, several nodes."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.duties.device_moves import device_moves
from yurt.sdk.value import replace, seconds
from yurt.state import Snapshot
from yurt.structs.alloc import AllocatedDeviceResource, AllocatedResources, AllocDeploymentStatus
from yurt.structs.commands import (
    AllocUpdate,
    ApplyPlan,
    RegisterJob,
    RegisterNode,
    SetDesiredTransitions,
    SetNodeStatus,
    UpdateAllocsFromClient,
)
from yurt.structs.job import Job
from yurt.structs.node import DeviceHealth, Node, NodeDevice, NodeDeviceResource
from yurt.structs.plan import AttributeUpdate, Plan
from yurt.structs.policies import MigrateStrategy
from yurt.structs.resources import RequestedDevice, Resources
from yurt.testing import factories
from yurt.testing.replica import Replica

CARDS = 3


def node_of(name: str, state: str) -> Node:
    """A node whose cards are all in this state."""
    health = DeviceHealth(state=state, reason="" if state == "healthy" else "Xid 79")  # type: ignore[arg-type]
    instances = tuple(NodeDevice(id=f"GPU-{n}", healthy=True, health=health) for n in range(CARDS))
    group = NodeDeviceResource(vendor="nvidia", type="gpu", name="H100", instances=instances)
    made = factories.node(name)
    return replace(made, node_resources=replace(made.node_resources, devices=(group,)))


def service(count: int, *, max_parallel: int = 1) -> Job:
    """A service with a card for each allocation."""
    device = RequestedDevice(name="nvidia/gpu", on_failure="move")
    task = factories.task(resources=Resources(cpu=100, memory_mb=100, devices=(device,)))
    pace = MigrateStrategy(
        max_parallel=max_parallel,
        health_check="task_states",
        healthy_deadline=seconds(300),
        min_healthy_time=seconds(10),
    )
    group = factories.group(count=count, tasks=(task,), update=None, migrate=pace)
    return factories.job("web", task_groups=(group,))


def granted(job: Job, card: int) -> AllocatedResources:
    """The resources of an allocation with a card."""
    found = factories.allocated(job.task_groups[0])
    ((name, task),) = found.tasks.items()
    device = AllocatedDeviceResource(vendor="nvidia", type="gpu", name="H100", device_ids=(f"GPU-{card}",))
    return replace(found, tasks={name: replace(task, devices=(device,))})


def failing(job: Job, *nodes: str) -> Snapshot:
    """The allocations of a healthy service, one on each of these nodes in turn, after all cards have failed."""
    replica = Replica()
    replica.apply(*(RegisterNode(node=node_of(name, "healthy")) for name in sorted(set(nodes))), RegisterJob(job=job))
    health = AllocDeploymentStatus(healthy=True, timestamp=factories.NOW)
    for index, name in enumerate(nodes):
        on = replica.state.nodes[name]
        placed = factories.placement(job, on=on, index=index, id=f"web-{index}", resources=granted(job, index))
        plan = Plan(eval_id="e", namespace="default", job_id="web", placements=(placed,), now=factories.NOW)
        update = AllocUpdate(id=placed.id, node_id=name, client_status="running", deployment_status=health)
        replica.apply(ApplyPlan(plan=plan), UpdateAllocsFromClient(updates=(update,), now=factories.NOW))
    return replica.apply(*(RegisterNode(node=node_of(name, "failed")) for name in sorted(set(nodes))))


def marked(state: Snapshot, name: str, mint_at: Any) -> tuple[list[str], SetDesiredTransitions | None]:
    """The allocations that leave a node now, and the command."""
    command = device_moves(state, state.nodes[name], mint_at())
    return ([] if command is None else sorted(command.transitions)), command


def test_two_failing_nodes_share_the_pace_of_one_service(state_of: Any, mint_at: Any) -> None:
    state = failing(service(3), "n1", "n1", "n2")
    moved, command = marked(state, "n1", mint_at)
    assert moved == ["web-0"]
    state = state_of(command, on=state)
    assert marked(state, "n1", mint_at)[0] == []
    assert marked(state, "n2", mint_at)[0] == []


@pytest.mark.parametrize(("max_parallel", "expected"), [(0, ["web-0"]), (2, ["web-0", "web-1"])])
def test_at_least_one_allocation_leaves_at_a_time(mint_at: Any, max_parallel: int, expected: list[str]) -> None:
    state = failing(service(3, max_parallel=max_parallel), "n1", "n1", "n1")
    assert marked(state, "n1", mint_at)[0] == expected


def test_allocations_of_a_node_out_of_contact_stay(state_of: Any, mint_at: Any) -> None:
    state = failing(service(2), "n1", "n1")
    away = state_of(SetNodeStatus(node_id="n1", status="disconnected", updated_at=1), on=state)
    assert marked(away, "n1", mint_at)[0] == []
    unknown = AttributeUpdate(
        id="web-0", node_id="n1", client_status="unknown", append_state=("unknown", factories.NOW)
    )
    plan = Plan(eval_id="e", namespace="default", job_id="web", attributes=(unknown,), now=factories.NOW)
    back = state_of(ApplyPlan(plan=plan), SetNodeStatus(node_id="n1", status="ready", updated_at=2), on=away)
    assert back.allocs["web-0"].client_status == "unknown"
    assert marked(back, "n1", mint_at)[0] == [], "one of two is out of contact: the other serves alone"
