"""Draining a node: pace, order, deadline, end."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.duties.drain import drain, drain_strategy
from yurt.sdk.value import Duration, seconds
from yurt.state import Snapshot
from yurt.structs.alloc import AllocDeploymentStatus
from yurt.structs.commands import (
    AllocUpdate,
    ApplyPlan,
    RegisterJob,
    RegisterNode,
    SetDesiredTransitions,
    SetNodeDrain,
    SetNodeStatus,
    UpdateAllocsFromClient,
)
from yurt.structs.job import Job
from yurt.structs.node import DrainSpec
from yurt.structs.plan import AttributeUpdate, Plan
from yurt.structs.task import TaskCSIPluginConfig
from yurt.testing import factories


def draining(state_of: Any, *jobs: Job, deadline_s: float = 3600, ignore_system: bool = False) -> Snapshot:
    """A draining node n1 with all allocations of the jobs, running."""
    node = factories.node("n1")
    state = state_of(RegisterNode(node=node))
    for job in jobs:
        count = job.task_groups[0].count
        placements = tuple(factories.placement(job, on=node, index=i, id=f"{job.id}-{i}") for i in range(count))
        plan = Plan(eval_id="e", namespace="default", job_id=job.id, placements=placements, now=factories.NOW)
        health = AllocDeploymentStatus(healthy=True, timestamp=factories.NOW)
        running = tuple(
            AllocUpdate(id=p.id, node_id="n1", client_status="running", deployment_status=health) for p in placements
        )
        state = state_of(
            RegisterJob(job=job),
            ApplyPlan(plan=plan),
            UpdateAllocsFromClient(updates=running, now=factories.NOW),
            on=state,
        )
    spec = DrainSpec(deadline=Duration(seconds(deadline_s)), ignore_system_jobs=ignore_system)
    strategy = drain_strategy(spec, None, now=factories.NOW)
    return state_of(SetNodeDrain(node_id="n1", strategy=strategy), on=state)


def marked(command: Any) -> list[str]:
    assert isinstance(command, SetDesiredTransitions)
    return sorted(command.transitions)


def service(count: int) -> Job:
    return factories.job("web", task_groups=(factories.group(count=count, update=None),))


def ended(state_of: Any, state: Snapshot, *ids: str) -> Snapshot:
    updates = tuple(AllocUpdate(id=i, node_id="n1", client_status="complete") for i in ids)
    return state_of(UpdateAllocsFromClient(updates=updates, now=factories.NOW), on=state)


def test_a_service_group_moves_at_the_pace_of_its_migrate_block(state_of: Any, mint_at: Any) -> None:
    state = draining(state_of, service(3))
    command = drain(state, state.nodes["n1"], mint_at())
    assert marked(command) == ["web-0"]
    assert [e.triggered_by for e in command.evaluations] == ["node-drain"]  # type: ignore[union-attr]
    after = state_of(command, on=state)
    assert drain(after, after.nodes["n1"], mint_at()) is None


def test_allocations_that_have_not_been_judged_yet_do_not_count_as_healthy(state_of: Any, mint_at: Any) -> None:
    state = draining(state_of, service(2))
    placed = factories.placement(service(2), on=factories.node("n2"), index=2, id="web-2")
    plan = Plan(eval_id="e", namespace="default", job_id="web", placements=(placed,), now=factories.NOW)
    update = AllocUpdate(id="web-2", node_id="n2", client_status="running")
    later = [ApplyPlan(plan=plan), UpdateAllocsFromClient(updates=(update,), now=factories.NOW)]
    state = state_of(RegisterNode(node=factories.node("n2")), *later, on=state)

    assert marked(drain(state, state.nodes["n1"], mint_at())) == ["web-0"]


def test_unknown_allocations_do_not_let_others_go(state_of: Any, mint_at: Any) -> None:
    state = draining(state_of, service(2))
    unknown = AttributeUpdate(
        id="web-0", node_id="n1", client_status="unknown", append_state=("unknown", factories.NOW)
    )
    plan = Plan(eval_id="e", namespace="default", job_id="web", attributes=(unknown,), now=factories.NOW)
    cut_off = SetNodeStatus(node_id="n1", status="disconnected", updated_at=1)
    state = state_of(cut_off, ApplyPlan(plan=plan), on=state)

    assert drain(state, state.nodes["n1"], mint_at()) is None


@pytest.mark.parametrize("kind", ["batch", "sysbatch"])
def test_batch_allocations_stay_until_the_deadline_and_are_not_replaced(state_of: Any, mint_at: Any, kind: str) -> None:
    state = draining(state_of, factories.job("work", type=kind))
    assert drain(state, state.nodes["n1"], mint_at(3599)) is None
    command = drain(state, state.nodes["n1"], mint_at(3600))
    assert marked(command) == ["work-0"]
    assert command.transitions["work-0"].migrate_disable_placement  # type: ignore[union-attr]


def test_system_allocations_go_last(state_of: Any, mint_at: Any) -> None:
    state = draining(state_of, service(1), factories.job("sys", type="system"))
    assert marked(drain(state, state.nodes["n1"], mint_at())) == ["web-0"]
    state = ended(state_of, state, "web-0")
    assert marked(drain(state, state.nodes["n1"], mint_at())) == ["sys-0"]


def test_csi_plugins_go_last_whatever_their_job_is(state_of: Any, mint_at: Any) -> None:
    block = TaskCSIPluginConfig(id="nfs", type="node")
    group = factories.group(count=1, update=None, tasks=(factories.task(csi_plugin_config=block),))
    state = draining(state_of, service(1), factories.job("plugin", task_groups=(group,)))
    assert marked(drain(state, state.nodes["n1"], mint_at())) == ["web-0"]
    state = ended(state_of, state, "web-0")
    assert marked(drain(state, state.nodes["n1"], mint_at())) == ["plugin-0"]


def test_ignored_system_allocations_do_not_hold_up_the_end(state_of: Any, mint_at: Any) -> None:
    state = draining(state_of, factories.job("sys", type="system"), ignore_system=True)
    assert isinstance(drain(state, state.nodes["n1"], mint_at()), SetNodeDrain)


def test_the_drain_ends_when_everything_has_stopped(state_of: Any, mint_at: Any) -> None:
    state = ended(state_of, draining(state_of, service(1)), "web-0")
    command = drain(state, state.nodes["n1"], mint_at())
    after = state_of(command, on=state).nodes["n1"]
    assert (after.drain_strategy, after.scheduling_eligibility) == (None, "ineligible")
    assert (after.events[-1].message, dict(after.events[-1].details)) == ("Node drain complete", {})


def test_at_the_deadline_all_are_told_to_go_and_the_event_says_so(state_of: Any, mint_at: Any) -> None:
    state = draining(state_of, service(3))
    assert marked(drain(state, state.nodes["n1"], mint_at(3600))) == ["web-0", "web-1", "web-2"]
    state = ended(state_of, state, "web-0", "web-1", "web-2")
    command = drain(state, state.nodes["n1"], mint_at(3601))
    assert isinstance(command, SetNodeDrain)
    assert command.event is not None
    assert dict(command.event.details) == {"deadline_reached": "true"}


def test_a_deadline_below_zero_forces_at_once_and_zero_never() -> None:
    assert drain_strategy(DrainSpec(deadline=Duration(-1)), None, now=factories.NOW).force_deadline == factories.NOW
    assert drain_strategy(DrainSpec(), None, now=factories.NOW).force_deadline == 0
