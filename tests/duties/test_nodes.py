"""A node's status machine, and the evaluations that its changes cause."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.duties.nodes import (
    granted_status,
    heartbeat_ttl_s,
    missed_heartbeat_status,
    set_status,
)
from yurt.fsm.eval_triggers import evals_for_node, registration_needs_evals, transition_needs_evals
from yurt.sdk.value import replace, seconds
from yurt.structs.commands import (
    AllocUpdate,
    ApplyPlan,
    RegisterJob,
    RegisterNode,
    SetNodeStatus,
    UpdateAllocsFromClient,
)
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.plan import Plan
from yurt.structs.policies import DisconnectStrategy
from yurt.testing import factories


def running_on(node: Node, job: Job) -> list[Any]:
    placed = factories.placement(job, on=node, id=f"alloc-{job.id}")
    plan = Plan(eval_id="e", namespace=job.namespace, job_id=job.id, placements=(placed,), now=factories.NOW)
    update = AllocUpdate(id=placed.id, node_id=node.id, client_status="running")
    return [
        RegisterNode(node=node),
        RegisterJob(job=job),
        ApplyPlan(plan=plan),
        UpdateAllocsFromClient(updates=(update,), now=factories.NOW),
    ]


def test_heartbeats_stretch_with_the_number_of_nodes_and_are_staggered() -> None:
    assert heartbeat_ttl_s(1, minimum_s=10, per_second=50, draw=0.0) == 10
    assert heartbeat_ttl_s(5000, minimum_s=10, per_second=50, draw=0.5) == 150


def test_a_fresh_node_becomes_ready(state_of: Any) -> None:
    node = factories.node(status="initializing")
    state = state_of(RegisterNode(node=node))
    assert granted_status(state, state.nodes[node.id], "ready") == "ready"


def test_a_node_is_kept_initializing_until_it_has_reported_on_its_allocations(state_of: Any) -> None:
    node = factories.node()
    state = state_of(*running_on(node, factories.job()))
    state = state_of(SetNodeStatus(node_id=node.id, status="down", updated_at=1), on=state)
    assert granted_status(state, state.nodes[node.id], "ready") == "initializing"
    state = state_of(SetNodeStatus(node_id=node.id, status="initializing", updated_at=2), on=state)
    assert granted_status(state, state.nodes[node.id], "ready") == "initializing"
    update = AllocUpdate(id="alloc-web", node_id=node.id, client_status="running")
    state = state_of(UpdateAllocsFromClient(updates=(update,), now=factories.NOW), on=state)
    assert granted_status(state, state.nodes[node.id], "ready") == "ready"


def test_a_disconnected_node_goes_through_initializing(state_of: Any) -> None:
    node = factories.node()
    state = state_of(RegisterNode(node=node), SetNodeStatus(node_id=node.id, status="disconnected", updated_at=1))
    assert granted_status(state, state.nodes[node.id], "ready") == "initializing"


@pytest.mark.parametrize(("lost_after", "expected"), [(0, "down"), (60, "disconnected")])
def test_a_lost_node_is_disconnected_when_an_allocation_may_outlive_it(
    state_of: Any, mint_at: Any, lost_after: int, expected: str
) -> None:
    group = factories.group(disconnect=DisconnectStrategy(lost_after=seconds(lost_after), replace=True))
    node = factories.node()
    state = state_of(*running_on(node, factories.job(task_groups=(group,))))
    assert missed_heartbeat_status(state, state.nodes[node.id], mint_at().now) == expected


def test_an_initializing_node_that_is_lost_goes_down(state_of: Any, mint_at: Any) -> None:
    node = factories.node(status="initializing")
    state = state_of(RegisterNode(node=node))
    assert missed_heartbeat_status(state, state.nodes[node.id], mint_at().now) == "down"


@pytest.mark.parametrize(
    ("before", "after", "needed"),
    [
        ("initializing", "ready", True),
        ("down", "ready", True),
        ("ready", "down", True),
        ("ready", "disconnected", True),
        ("disconnected", "initializing", True),
        ("down", "initializing", False),
        ("ready", "ready", False),
    ],
)
def test_which_transitions_make_jobs_look_again(before: str, after: str, needed: bool) -> None:
    assert transition_needs_evals(before, after) is needed


def test_new_attributes_make_jobs_look_again_and_a_new_time_does_not() -> None:
    node = factories.node()
    assert not registration_needs_evals(node, replace(node, status_updated_at=5))
    assert registration_needs_evals(node, replace(node, meta={"rack": "r1"}))


def test_a_nodes_evaluations_are_one_per_job_and_one_per_system_job_that_it_is_for(state_of: Any, mint_at: Any) -> None:
    node = factories.node()
    system = factories.job("sys", type="system")
    elsewhere = factories.job("far", type="system", datacenters=("dc9",))
    stopped = factories.job("off", type="system", stop=True)
    state = state_of(
        *running_on(node, factories.job("web")),
        *(RegisterJob(job=job) for job in (system, elsewhere, stopped, factories.job("idle"))),
    )
    made = evals_for_node(state, state.nodes[node.id], mint_at(), trigger="node-update")
    assert sorted((e.job_id, e.type, e.node_id) for e in made) == [
        ("sys", "system", node.id),
        ("web", "service", node.id),
    ]


def test_a_lost_node_is_marked_with_an_event_and_its_jobs_are_evaluated(state_of: Any, mint_at: Any) -> None:
    node = factories.node()
    state = state_of(*running_on(node, factories.job()))
    command = set_status(state, state.nodes[node.id], "down", mint_at(), event="Node heartbeat missed")
    after = state_of(command, on=state)
    assert after.nodes[node.id].events[-1].message == "Node heartbeat missed"
    assert [e.triggered_by for e in after.evals.values()] == ["node-update"]
