"""Marks of devices: operators, jobs in a row, what a client has acted on, and moves away from failed devices."""

from __future__ import annotations

import pytest
from yurt.fsm.bookkeeping.devices import requests_of
from yurt.sdk.value import UnixNano, replace
from yurt.structs.alloc import (
    AllocatedDeviceResource,
    AllocatedResources,
    AllocatedTaskResources,
    Allocation,
    TaskState,
)
from yurt.structs.commands import (
    AllocUpdate,
    ApplyPlan,
    EvalSeed,
    RegisterJob,
    RegisterNode,
    SetDeviceEligibility,
    UpdateAllocsFromClient,
)
from yurt.structs.node import DeviceHealth, Node, NodeDevice, NodeDeviceResource, NodeResources
from yurt.structs.plan import Plan
from yurt.structs.policies import Requeue
from yurt.structs.resources import RequestedDevice
from yurt.testing import factories
from yurt.testing.replica import Replica

ID = factories.number_id(1, kind=1)
KEY = "nvidia/gpu/H100/g0"


def device_node(*healths: DeviceHealth | None) -> Node:
    """A node with a card for each health: g0, g1, ..."""
    instances = tuple(
        NodeDevice(id=f"g{at}", healthy=health is None or health.state in ("healthy", "suspect"), health=health)
        for at, health in enumerate(healths)
    )
    group = NodeDeviceResource(vendor="nvidia", type="gpu", name="H100", instances=instances)
    node = factories.node(ID)
    return replace(node, node_resources=replace(node.node_resources or NodeResources(), devices=(group,)))


def register(replica: Replica, *healths: DeviceHealth | None) -> Node:
    replica.apply(RegisterNode(node=device_node(*healths), seed=EvalSeed(seed="s", now=UnixNano(7))))
    return replica.state.nodes[ID]


def card(replica: Replica, at: int = 0) -> NodeDevice:
    return replica.state.nodes[ID].node_resources.devices[0].instances[at]


def out(device: str = "g0") -> SetDeviceEligibility:
    seed = EvalSeed(seed="d", now=UnixNano(9))
    return SetDeviceEligibility(node_id=ID, device=device, is_eligible=False, reason="fan", seed=seed)


def back(device: str = "g0") -> SetDeviceEligibility:
    return SetDeviceEligibility(node_id=ID, device=device, is_eligible=True, seed=EvalSeed(seed="b", now=UnixNano(9)))


def put_alloc(replica: Replica, job_id: str, *, on_failure: str = "", requeue: Requeue | None = None) -> Allocation:
    """A new allocation of a batch job on g0."""
    job = factories.job(job_id, type="batch")
    (group,) = job.task_groups
    (task,) = group.tasks
    device = RequestedDevice(name="nvidia/gpu", on_failure=on_failure)
    task = replace(task, resources=replace(task.resources, devices=(device,)))
    job = replace(job, task_groups=(replace(group, tasks=(task,), requeue=requeue),))
    replica.apply(RegisterJob(job=job))
    job = replica.state.jobs["default", job_id]
    given = AllocatedDeviceResource(vendor="nvidia", type="gpu", name="H100", device_ids=("g0",))
    resources = AllocatedResources(tasks={task.name: AllocatedTaskResources(devices=(given,))})
    placement = factories.placement(job, on=replica.state.nodes[ID], resources=resources)
    plan = Plan(eval_id="e", namespace="default", job_id=job_id, now=factories.NOW)
    replica.apply(ApplyPlan(plan=replace(plan, placements=(placement,))))
    return replica.state.allocs[placement.id]


def end(replica: Replica, alloc: Allocation, client_status: str, *, has_started: bool = True) -> None:
    assert alloc.job is not None
    name = alloc.job.task_groups[0].tasks[0].name
    state = TaskState(state="dead", failed=client_status == "failed", started_at=5 if has_started else 0)
    update = AllocUpdate(id=alloc.id, node_id=ID, client_status=client_status, task_states={name: state})
    replica.apply(UpdateAllocsFromClient(updates=(update,), now=UnixNano(11)))


def test_a_disabled_device_is_out_over_registrations_until_it_is_enabled(replica: Replica) -> None:
    register(replica, DeviceHealth(), DeviceHealth())
    replica.apply(out())
    assert (card(replica).healthy, card(replica).health_description) == (False, "disabled by an operator: fan")
    register(replica, DeviceHealth(), DeviceHealth())
    assert [card(replica, at).healthy for at in range(2)] == [False, True]
    replica.apply(back(KEY))
    assert card(replica).healthy
    (mark,) = requests_of(replica.state.nodes[ID]).values()
    register(replica, DeviceHealth(acknowledged_mark=mark.key), DeviceHealth())
    assert replica.state.nodes[ID].device_marks == {}


def test_a_change_that_changes_nothing_is_rejected(replica: Replica) -> None:
    register(replica, DeviceHealth())

    assert replica.reject(out("none")).kind == "not_found"
    assert replica.reject(back()).kind == "conflict"


def test_of_two_operators_the_second_learns_that_the_device_is_out(replica: Replica) -> None:
    register(replica, DeviceHealth())
    replica.apply(out())
    answer = replica.reject(out())

    assert (answer.kind, answer.message) == ("conflict", f"device {KEY} is disabled already: fan")


def test_an_operator_undoes_only_the_mark_that_they_have_seen(replica: Replica) -> None:
    register(replica, DeviceHealth())
    replica.apply(replace(out(), mark_index=0))
    first = replica.state.nodes[ID].device_marks[KEY].index
    replica.apply(replace(back(), mark_index=first))
    replica.apply(out(KEY))
    now = replica.state.nodes[ID].device_marks[KEY].index
    answer = replica.reject(replace(back(KEY), mark_index=first))

    assert answer.kind == "conflict"
    assert answer.message == (
        f"device {KEY} was changed since you looked at it (mark {first}, now {now}): it is disabled now: fan; "
        "look at the node and decide again"
    )
    assert replica.reject(replace(back(), mark_index=0)).kind == "conflict"
    replica.apply(replace(back(), mark_index=now))
    assert card(replica).healthy


def test_the_mark_of_a_device_counts_while_a_device_that_is_gone_has_the_same_id(replica: Replica) -> None:
    """The device has another name since, for example after an upgrade of its driver."""
    register(replica, DeviceHealth())
    replica.apply(out())
    node = device_node(DeviceHealth())
    (group,) = node.node_resources.devices
    renamed = replace(node.node_resources, devices=(replace(group, name="H100 80GB"),))
    replica.apply(RegisterNode(node=replace(node, node_resources=renamed), seed=EvalSeed(seed="s", now=UnixNano(8))))
    replica.apply(out())
    now = replica.state.nodes[ID].device_marks["nvidia/gpu/H100 80GB/g0"].index

    assert "was changed since you looked" in replica.reject(replace(back(), mark_index=now - 1)).message
    assert "was changed since you looked" in replica.reject(replace(back(KEY), mark_index=now)).message
    replica.apply(replace(back(), mark_index=now))
    assert card(replica).healthy


def test_of_two_devices_with_one_id_none_is_changed(replica: Replica) -> None:
    node = device_node(DeviceHealth())
    (group,) = node.node_resources.devices
    both = replace(node.node_resources, devices=(group, replace(group, name="A100")))
    replica.apply(RegisterNode(node=replace(node, node_resources=both), seed=EvalSeed(seed="s", now=UnixNano(7))))

    assert "is the id of several devices" in replica.reject(replace(out(), mark_index=0)).message


def test_a_failed_device_that_is_enabled_stays_out_until_its_client_has_tested_it(replica: Replica) -> None:
    register(replica, DeviceHealth(state="failed", reason="Xid 79"))
    replica.apply(back())

    assert (card(replica).healthy, card(replica).health_description) == (False, "Xid 79")
    assert list(requests_of(replica.state.nodes[ID])) == [KEY]


def test_devices_of_an_older_agent_are_as_it_says(replica: Replica) -> None:
    register(replica, None)

    assert card(replica).healthy
    assert "upgrade it" in replica.reject(out()).message


def test_a_disabled_device_stays_out_under_an_older_agent_until_it_is_enabled(replica: Replica) -> None:
    register(replica, DeviceHealth())
    replica.apply(out())
    register(replica, None)
    assert (card(replica).healthy, card(replica).health_description) == (False, "disabled by an operator: fan")
    replica.apply(back())
    assert (card(replica).healthy, replica.state.nodes[ID].device_marks) == (True, {})


def test_a_mark_of_a_lower_index_than_an_earlier_one_waits_for_its_client(replica: Replica) -> None:
    register(replica, DeviceHealth(acknowledged_mark="90000/1", state="failed"))
    replica.apply(back())
    register(replica, DeviceHealth(acknowledged_mark="90000/1", state="failed"))

    assert list(requests_of(replica.state.nodes[ID])) == [KEY]


def test_the_mark_of_a_device_that_is_gone_is_dropped_or_removed_by_its_key(replica: Replica) -> None:
    register(replica, DeviceHealth(), DeviceHealth(state="failed"))
    replica.apply(out())
    replica.apply(back("g1"))
    register(replica)
    assert list(replica.state.nodes[ID].device_marks) == [KEY]
    assert replica.reject(out(KEY)).kind == "not_found"
    replica.apply(back(KEY))
    assert replica.state.nodes[ID].device_marks == {}


def test_a_job_that_ends_on_a_device_that_is_gone_leaves_no_mark(replica: Replica) -> None:
    register(replica, DeviceHealth())
    alloc = put_alloc(replica, "late")
    register(replica)
    end(replica, alloc, "failed")

    assert replica.state.nodes[ID].device_marks == {}


def test_marks_name_no_jobs(replica: Replica) -> None:
    register(replica, DeviceHealth())
    end(replica, put_alloc(replica, "secret"), "failed")

    (mark,) = replica.state.nodes[ID].device_marks.values()
    assert len(mark.failed_jobs) == 1
    assert "secret" not in mark.failed_jobs[0]


def test_a_new_reason_for_a_device_that_is_out_evaluates_no_job(replica: Replica) -> None:
    register(replica, DeviceHealth(state="degraded", reason="one"))
    put_alloc(replica, "trainer")
    before = len(replica.state.evals)
    register(replica, DeviceHealth(state="degraded", reason="two"))

    assert len(replica.state.evals) == before


def test_three_different_jobs_that_fail_in_a_row_make_a_device_suspect(replica: Replica) -> None:
    register(replica, DeviceHealth())
    for number in range(3):
        assert card(replica).healthy
        end(replica, put_alloc(replica, f"job-{number}"), "failed")
    assert (card(replica).healthy, card(replica).health_description) == (False, "the last 3 jobs on it failed")
    assert "is suspect" in replica.state.nodes[ID].events[-1].message
    (mark,) = requests_of(replica.state.nodes[ID]).values()
    register(replica, DeviceHealth(acknowledged_mark=mark.key, state="probation"))
    assert replica.state.nodes[ID].device_marks == {}
    assert not card(replica).healthy


def test_a_completed_job_and_tasks_that_never_started_break_no_card(replica: Replica) -> None:
    register(replica, DeviceHealth())
    for number, ended in enumerate(("failed", "failed", "complete", "failed", "failed")):
        end(replica, put_alloc(replica, f"job-{number}"), ended)
    for number in range(6, 9):
        end(replica, put_alloc(replica, f"job-{number}"), "failed", has_started=False)

    assert card(replica).healthy


def test_one_job_that_fails_again_and_again_breaks_no_card(replica: Replica) -> None:
    register(replica, DeviceHealth())
    for _ in range(5):
        end(replica, put_alloc(replica, "same"), "failed")

    assert card(replica).healthy


@pytest.mark.parametrize(
    ("on_failure", "requeue", "moves"),
    [("", None, False), ("move", None, True), ("", Requeue(), True), ("notify", Requeue(), False)],
    ids=["default", "move", "requeue", "notify"],
)
def test_holders_of_a_failed_device_move_as_their_job_says(
    replica: Replica, on_failure: str, requeue: Requeue | None, *, moves: bool
) -> None:
    register(replica, DeviceHealth())
    alloc = put_alloc(replica, "trainer", on_failure=on_failure, requeue=requeue)
    register(replica, DeviceHealth(state="degraded"))
    assert not replica.state.allocs[alloc.id].desired_transition.migrate
    register(replica, DeviceHealth(state="failed", reason="Xid 79"))

    assert bool(replica.state.allocs[alloc.id].desired_transition.migrate) == moves
    jobs = [each.job_id for each in replica.state.evals.values() if each.triggered_by == "node-update"]
    assert "trainer" in jobs
