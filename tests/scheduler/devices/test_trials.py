"""Devices on trial after a fault: only short or restartable groups get them."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.fsm import apply
from yurt.scheduler.capacity.ask import ON_TRIAL
from yurt.scheduler.devices.trials import TrialRequest, trial_requests, untried
from yurt.scheduler.explain.device_shortage import device_shortages
from yurt.scheduler.feasibility.device_trials import trial_runs_for
from yurt.scheduler.plan_check import check_plan
from yurt.sdk.value import NANOSECONDS, Duration, replace
from yurt.server.scheduling.unblock_events import gained_capacity
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.job import Job
from yurt.structs.node import DeviceHealth, DeviceTrial, Node, NodeDevice
from yurt.structs.policies import Checkpoint, Requeue
from yurt.structs.resources import RequestedDevice

from tests.scheduler.devices.test_device_placing import H100, _ask, _attempt, _card, _given, _job, _kind, _node, _state

HOUR = 3600 * NANOSECONDS
TRIAL = DeviceTrial(until=1_893_456_000 * NANOSECONDS, run_max=Duration(HOUR))
SHORT = {"max_run_duration": Duration(HOUR)}
LONG = {"max_run_duration": Duration(HOUR + 1)}


def tried(card: NodeDevice, run_max: int = HOUR) -> NodeDevice:
    """The card on trial."""
    trial = replace(TRIAL, run_max=Duration(run_max))
    return replace(card, health=DeviceHealth(state="suspect", trial=trial))


def job_with(*devices: RequestedDevice, **group: Any) -> Job:
    """A batch job whose one group has these fields."""
    made = _job(*devices, type="batch")
    return replace(made, task_groups=(replace(made.task_groups[0], **group),))


def given_on(node: Node, job: Job) -> list[list[str]]:
    """The devices placed on a node for the job."""
    return _given(_attempt(_state([node], job), job))


@pytest.mark.parametrize(
    ("group", "is_given"),
    [
        ({}, False),
        (LONG, False),
        (SHORT, True),
        ({"requeue": Requeue()}, True),
        ({"checkpoint": Checkpoint()}, True),
    ],
)
@pytest.mark.parametrize(
    "request_",
    [
        _ask(),
        _ask(all_of_node=True),
        _ask(share="mps", memory_mb=1000),
        RequestedDevice(first_available=(_ask("nvidia/gpu/none"), _ask())),
    ],
    ids=["whole", "all", "share", "alternatives"],
)
def test_only_short_or_restartable_groups_get_a_card_on_trial(
    group: dict[str, Any], is_given: bool, request_: RequestedDevice
) -> None:
    node = _node(1, _kind(H100, [tried(_card("GPU-0"))]))

    given = given_on(node, job_with(request_, **group))

    assert [each.split("::")[0] for ids in given for each in ids] == (["GPU-0"] if is_given else [])


def test_a_long_group_gets_the_other_cards_of_the_node() -> None:
    node = _node(1, _kind(H100, [tried(_card("GPU-0")), _card("GPU-1")]))

    assert given_on(node, job_with(_ask(), **LONG)) == [["GPU-1"]]
    assert given_on(node, job_with(_ask(count=2), **LONG)) == []
    assert given_on(node, job_with(_ask(count=2), **SHORT)) == [["GPU-0", "GPU-1"]]


def test_metrics_and_why_not_name_the_trial() -> None:
    node, job = _node(1, _kind(H100, [tried(_card("GPU-0"))])), job_with(_ask())
    state = _state([node], job)

    (metrics,) = _attempt(state, job).outcome.evaluation.failed_tg_allocs.values()
    requests = trial_requests(job.task_groups[0], trial_runs_for(state, job.task_groups[0]))
    (short,) = device_shortages(node, (), requests)

    assert metrics.dimension_exhausted == {ON_TRIAL: 1}
    assert short.text.endswith(
        "; GPU-0 is on trial until 2030-01-01T00:00:00Z: "
        "only groups with max_run_duration up to 1h, requeue or checkpoint"
    )


def test_a_card_that_is_taken_is_not_blamed_on_its_trial() -> None:
    card = tried(_card("GPU-0"))
    node, job = _node(1, _kind(H100, [card])), job_with(_ask(count=2))

    (metrics,) = _attempt(_state([node], job), job).outcome.evaluation.failed_tg_allocs.values()

    assert ON_TRIAL not in metrics.dimension_exhausted


@pytest.mark.parametrize("later", [tried(_card("GPU-0")), _card("GPU-0", healthy=False)], ids=["trial", "failed"])
def test_a_plan_made_before_the_report_does_not_place_on_the_card(later: NodeDevice) -> None:
    node, job = _node(1, _kind(H100, [_card("GPU-0")])), job_with(_ask(), **LONG)
    before = _state([node], job)
    plan = _attempt(before, job).plan
    assert check_plan(before, plan).accepted.placements

    after = registered(before, _node(1, _kind(H100, [later])))
    result = check_plan(after, plan)

    assert not result.accepted.placements
    (reason,) = result.rejected_nodes.values()
    assert reason.startswith("device GPU-0 is ")


def test_a_plan_of_a_short_group_is_accepted_on_a_card_that_is_on_trial_since() -> None:
    node, job = _node(1, _kind(H100, [_card("GPU-0")])), job_with(_ask(), **SHORT)
    before = _state([node], job)
    plan = _attempt(before, job).plan

    result = check_plan(registered(before, _node(1, _kind(H100, [tried(_card("GPU-0"))]))), plan)

    assert len(result.accepted.placements) == 1


def registered(state: Snapshot, node: Node) -> Snapshot:
    """The state after the node reported again."""
    return apply(state, c.RegisterNode(node=node), index=state.index + 1).state


def test_the_end_of_a_trial_wakes_evaluations() -> None:
    card = _card("GPU-0", state="suspect")
    before, after = _node(1, _kind(H100, [tried(card)])), _node(1, _kind(H100, [card]))

    assert gained_capacity(before, after)
    assert not gained_capacity(after, after)


def test_without_trials_requests_are_those_of_the_job() -> None:
    job = job_with(_ask(), **LONG)
    group = job.task_groups[0]
    state = _state([_node(1, _kind(H100, [_card("GPU-0", state="suspect")]))], job)

    ((_, request),) = trial_requests(group, trial_runs_for(state, group))

    assert request is group.tasks[0].resources.devices[0]


def test_many_runs_make_few_requests() -> None:
    node = _node(1, _kind(H100, [tried(_card("GPU-0")), tried(_card("GPU-1"), 2 * HOUR)]))
    jobs = [job_with(_ask(), max_run_duration=Duration(minutes * 60 * NANOSECONDS)) for minutes in range(1, 300)]
    state = _state([node], jobs[0])

    requests = {trial_requests(job.task_groups[0], trial_runs_for(state, job.task_groups[0]))[0][1] for job in jobs}

    assert {each.run if isinstance(each, TrialRequest) else 0 for each in requests} == {0, 2 * HOUR, 1 << 63}
    assert {untried(each) for each in requests} == {_ask()}
