"""Devices on trial after a fault: only short or restartable groups get them."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.fsm import ApplyResult, apply
from yurt.scheduler.capacity.ask import ON_TRIAL
from yurt.scheduler.devices.trials import TrialRequest, trial_requests, untried
from yurt.scheduler.explain.device_shortage import device_shortages
from yurt.scheduler.feasibility.device_trials import trial_runs_for
from yurt.scheduler.plan_check import check_plan
from yurt.sdk.mig import profiles_text
from yurt.sdk.value import NANOSECONDS, Duration, replace
from yurt.server.scheduling.unblock_events import gained_capacity
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.alloc import AllocatedResources
from yurt.structs.job import Job
from yurt.structs.node import DeviceHealth, DeviceTrial, Node, NodeDevice
from yurt.structs.plan import AllocStop, Placement, Plan
from yurt.structs.policies import Checkpoint, Gang, Requeue
from yurt.structs.resources import RequestedDevice
from yurt.structs.rules import DEVICE_CHECK_RULES, DEVICE_PART_RULES, RULES_VERSION
from yurt.testing import factories

from tests.scheduler.devices.test_device_placing import H100, _ask, _attempt, _card, _given, _job, _kind, _node, _state
from tests.scheduler.devices.test_partitions import H100 as MIG_H100

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


CHANGED = {
    "trial": ([tried(_card("GPU-0"))], "device GPU-0 is on trial until 2030-01-01T00:00:00Z: "),
    "failed": ([_card("GPU-0", healthy=False)], "device GPU-0 is not healthy"),
    "vanished": ([_card("GPU-1")], f"device nvidia/gpu/{H100}/GPU-0 is no longer there"),
}
"""The cards that a node reports after a plan was made for its card GPU-0, and the reason for refusing the plan."""


@pytest.mark.parametrize("share", ["", "mps"])
@pytest.mark.parametrize(("later", "reason"), CHANGED.values(), ids=CHANGED)
def test_a_plan_made_before_the_report_does_not_place_on_the_card(
    later: list[NodeDevice], reason: str, share: str
) -> None:
    state, plan = planned(LONG, share)
    assert check_plan(state, plan).accepted.placements

    result = check_plan(registered(state, *later), plan)

    assert not result.accepted.placements
    (refusal,) = result.rejected_nodes.values()
    assert refusal.startswith((reason, "device oversubscribed") if share else reason)


def test_a_plan_of_a_short_group_is_accepted_on_a_card_that_is_on_trial_since() -> None:
    state, plan = planned(SHORT)

    result = check_plan(registered(state, tried(_card("GPU-0"))), plan)

    assert len(result.accepted.placements) == 1


@pytest.mark.parametrize("share", ["", "mps"])
@pytest.mark.parametrize(("later", "reason"), CHANGED.values(), ids=CHANGED)
def test_apply_refuses_a_plan_whose_card_changed_after_the_check(
    later: list[NodeDevice], reason: str, share: str
) -> None:
    state, plan = planned(LONG, share)
    command = c.ApplyPlan(plan=plan, checked_at=state.index)

    changed = registered(state, *later)
    refused = stepped(changed, command)

    assert isinstance(refused.result, c.Rejected) and refused.result.kind == "stale"
    assert reason in refused.result.message and refused.result.message.startswith('node "')
    assert not refused.state.allocs
    later_check = stepped(changed, replace(command, checked_at=changed.index))
    assert isinstance(later_check.result, c.Applied), "what the check saw is the check's to refuse"


PROFILES = {"sharing": "mps,mig", "mig_profiles": profiles_text(MIG_H100)}
LESS: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "profiles": ("mig", PROFILES, {"sharing": "mps,mig"}, "device oversubscribed"),
    "mode mig": ("mig", PROFILES, {**PROFILES, "sharing": "mps"}, "is no longer shared in mode mig"),
    "mode mps": ("mps", {}, {"sharing": "slice"}, "device GPU-0 is no longer shared in mode mps"),
    "memory": ("mps", {}, {"memory": (1500, "MiB")}, "device memory oversubscribed"),
}
"""The mode of a share, the facts of its card, those that its node reports after the plan was made, and the refusal."""


@pytest.mark.parametrize(("share", "facts", "later", "reason"), LESS.values(), ids=LESS)
def test_a_share_of_a_card_that_has_less_by_now_is_refused_by_the_plan_check_and_by_apply(
    share: str, facts: dict[str, Any], later: dict[str, Any], reason: str
) -> None:
    state, plan = planned(LONG, share, **facts)
    command = c.ApplyPlan(plan=plan, checked_at=state.index)
    assert check_plan(state, plan).accepted.placements
    changed = registered(state, _card("GPU-0"), **later)

    (refusal,) = check_plan(changed, plan).rejected_nodes.values()
    refused = stepped(changed, command)

    assert reason in refusal or refusal == "device oversubscribed"
    assert isinstance(refused.result, c.Rejected) and refused.result.kind == "stale"
    assert reason in refused.result.message and not refused.state.allocs
    assert isinstance(stepped(changed, command, DEVICE_PART_RULES).result, c.Applied)


def test_apply_counts_the_shares_that_stay_on_a_changed_card_and_not_those_that_the_plan_stops() -> None:
    state, plan = planned(LONG, "mps")
    (placement,) = plan.placements
    before = stepped(state, c.ApplyPlan(plan=plan)).state
    other = replace(placement, id=factories.number_id(7, kind=2), resources=numbered(placement, 1))
    next_to_it = replace(plan, placements=(other,))
    instead = replace(next_to_it, stops=(AllocStop(id=placement.id, node_id=placement.node_id),))
    # 1500 MiB without the 500 that the driver keeps: one of the two shares of 1000 MiB.
    changed = registered(before, _card("GPU-0"), memory=(1500, "MiB"), memory_reserved=(500, "MiB"))

    added = stepped(changed, c.ApplyPlan(plan=next_to_it, checked_at=before.index))
    replaced = stepped(changed, c.ApplyPlan(plan=instead, checked_at=before.index))

    assert isinstance(added.result, c.Rejected) and "device memory oversubscribed" in added.result.message
    assert isinstance(replaced.result, c.Applied) and other.id in replaced.state.allocs


def numbered(placement: Placement, number: int) -> AllocatedResources:
    """The resources of a placement with another share of the card GPU-0."""
    (task,) = placement.resources.tasks
    had = placement.resources.tasks[task]
    devices = tuple(replace(each, device_ids=(f"GPU-0::{number}",)) for each in had.devices)
    return replace(placement.resources, tasks={task: replace(had, devices=devices)})


@pytest.mark.parametrize("rules", [DEVICE_PART_RULES, DEVICE_CHECK_RULES])
def test_apply_looks_at_devices_again_only_under_the_rules_that_brought_it(rules: int) -> None:
    state, plan = planned(LONG)

    late = stepped(registered(state, tried(_card("GPU-0"))), c.ApplyPlan(plan=plan, checked_at=state.index), rules)

    assert isinstance(late.result, c.Rejected) == (rules == DEVICE_CHECK_RULES)


def test_apply_accepts_the_group_that_may_have_the_card_and_other_cards_of_the_node() -> None:
    state, plan = planned(SHORT)
    late = stepped(registered(state, tried(_card("GPU-0"))), c.ApplyPlan(plan=plan, checked_at=state.index))
    assert isinstance(late.result, c.Applied)
    state, plan = planned(LONG)
    changed = registered(state, _card("GPU-0"), tried(_card("GPU-1")))
    other = stepped(changed, c.ApplyPlan(plan=plan, checked_at=state.index))
    assert isinstance(other.result, c.Applied)


def test_a_gang_is_refused_whole_when_the_card_of_one_member_vanishes_after_the_check() -> None:
    nodes = [_node(number, _kind(H100, [_card(f"GPU-{number}")])) for number in (1, 2)]
    job = job_with(_ask(), count=2, gang=Gang(min=2))
    state = _state(nodes, job)
    plan = _attempt(state, job).plan
    assert len(check_plan(state, plan).accepted.placements) == 2

    lost = stepped(state, c.RegisterNode(node=_node(2, _kind(H100, [])))).state
    late = stepped(lost, c.ApplyPlan(plan=plan, checked_at=state.index))

    assert isinstance(late.result, c.Rejected) and "GPU-2 is no longer there" in late.result.message
    assert not late.state.allocs, "no member runs without the others"


def planned(group: dict[str, Any], share: str = "", **facts: Any) -> tuple[Snapshot, Plan]:
    """A state, and the plan for a job with this group on the card GPU-0 of its node, which has these attributes."""
    request = _ask(share=share, memory_mb=1000) if share else _ask()
    job = job_with(request, **group)
    state = _state([_node(1, _kind(H100, [_card("GPU-0")], **facts))], job)
    return state, _attempt(state, job).plan


def stepped(state: Snapshot, command: c.AnyCommand, rules: int = RULES_VERSION) -> ApplyResult:
    """The result of one command under these rules."""
    return apply(state, replace(command, rules_version=rules), index=state.index + 1)


def registered(state: Snapshot, *cards: NodeDevice, **facts: Any) -> Snapshot:
    """The state after the node reported again, now with these cards, which have these attributes."""
    return stepped(state, c.RegisterNode(node=_node(1, _kind(H100, cards, **facts)))).state


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
