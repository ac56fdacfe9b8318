"""Devices in placement: kinds, counts, alternatives, pinning, topology, shares, and that nothing is given twice."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler import explain
from yurt.scheduler.attempts import Attempt
from yurt.scheduler.devices.bookings import COMPUTE_MAX, Share, bookings, parted
from yurt.sdk.value import replace
from yurt.state import Snapshot, Tables
from yurt.state.usage import is_using, usage_of
from yurt.structs import commands as c
from yurt.structs.cluster import PreemptionConfig, SchedulerConfiguration
from yurt.structs.constraint import Affinity, Constraint
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Attribute, DeviceHealth, DeviceState, Node, NodeDevice, NodeDeviceResource
from yurt.structs.resources import DeviceTopology, NUMAResource, RequestedDevice, Resources
from yurt.testing import factories
from yurt.testing.nightly import cases

H100, A100 = "NVIDIA H100", "NVIDIA A100"
CARD_MB, KEPT_MB = 81_920, 1_024


def _attributes(**values: Any) -> dict[str, Attribute]:
    made = {}
    for name, value in values.items():
        if isinstance(value, tuple):
            made[name] = Attribute(int_val=value[0], unit=value[1])
        else:
            made[name] = Attribute(int_val=value) if isinstance(value, int) else Attribute(string_val=value)
    return made


def _card(name: str, *, healthy: bool = True, state: DeviceState = "healthy", **attributes: Any) -> NodeDevice:
    health = DeviceHealth(state=state if healthy else "failed")
    return NodeDevice(id=name, healthy=healthy, attributes=_attributes(**attributes), health=health)


def _kind(name: str, cards: Sequence[NodeDevice], **attributes: Any) -> NodeDeviceResource:
    facts = {"memory": (CARD_MB, "MiB"), "memory_reserved": (KEPT_MB, "MiB"), "sharing": "mps,slice", **attributes}
    return NodeDeviceResource(
        vendor="nvidia", type="gpu", name=name, instances=tuple(cards), attributes=_attributes(**facts)
    )


def _hgx(count: int = 8) -> NodeDeviceResource:
    """Cards joined by a switch, half on each of two NUMA nodes."""
    ids = [f"GPU-{number}" for number in range(count)]
    half = max(1, count // 2)
    cards = [
        _card(
            one,
            numa_node=number // half,
            cpu_affinity=f"{4 * (number // half)}-{4 * (number // half) + 3}",
            nvlink_peers=",".join(other for other in ids if other != one),
        )
        for number, one in enumerate(ids)
    ]
    return _kind(H100, cards)


def _pairs(count: int = 4) -> NodeDeviceResource:
    """Cards of which each two are joined by a bridge."""
    cards = [_card(f"GPU-{number}", numa_node=0, nvlink_peers=f"GPU-{number ^ 1}") for number in range(count)]
    return _kind(A100, cards)


def _node(number: int, *kinds: NodeDeviceResource, cores: int = 0) -> Node:
    made = factories.node(factories.number_id(number, kind=1))
    has = made.node_resources
    cpu = replace(has.cpu, reservable_cpu_cores=tuple(range(cores)), total_cpu_cores=cores or 4)
    return replace(made, node_resources=replace(has, devices=kinds, cpu=cpu))


def _ask(name: str = "nvidia/gpu", count: int = 1, **changes: Any) -> RequestedDevice:
    return RequestedDevice(name=name, count=count, **changes)


def _job(*devices: RequestedDevice, count: int = 1, job_id: str = "web", cores: int = 0, **changes: Any) -> Job:
    numa = changes.pop("numa", None)
    asked = Resources(cpu=0 if cores else 1, cores=cores, memory_mb=16, devices=devices, numa=numa)
    group = factories.group(count=count, tasks=(factories.task(resources=asked),), update=None)
    return factories.job(job_id, task_groups=(group,), **changes)


def _with(state: Snapshot, *made: c.AnyCommand) -> Snapshot:
    for command in made:
        state = apply(state, command, index=state.index + 1).state
    return state


def _state(nodes: Sequence[Node], *jobs: Job) -> Snapshot:
    made: list[c.AnyCommand] = [c.RegisterNode(node=node) for node in nodes]
    return _with(Snapshot.empty(), *made, *(c.RegisterJob(job=job) for job in jobs))


def _attempt(state: Snapshot, job: Job, seed: int = 1) -> Attempt:
    evaluation = Evaluation(id=f"eval-{job.id}", job_id=job.id, type=job.type, triggered_by="job-register")
    return scheduler.attempt(state, evaluation, now=factories.NOW, seed=seed)


def _given(attempt: Attempt) -> list[list[str]]:
    """The instances of each placement."""
    return [
        [each for task in placement.resources.tasks.values() for device in task.devices for each in device.device_ids]
        for placement in attempt.plan.placements
    ]


def _after(state: Snapshot, *jobs: Job) -> Snapshot:
    """The state with these jobs registered and placed, one after another."""
    for job in jobs:
        state = _with(state, c.RegisterJob(job=job))
        state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
    return state


def _lacks(state: Snapshot, job: Job) -> list[str]:
    (group,) = explain.why_not(state, job, now=factories.NOW, seed=1).groups
    return [short.text for miss in group.near_misses for short in miss.shortfalls]


# -- names, counts, alternatives, pinning ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "placed"),
    [("gpu", 1), ("nvidia/gpu", 1), (f"nvidia/gpu/{H100}", 1), ("amd/gpu", 0), ("nvidia/gpu/H", 0), ("fpga", 0)],
)
def test_a_device_is_asked_for_by_type_vendor_and_name(name: str, placed: int) -> None:
    job = _job(_ask(name))
    assert len(_given(_attempt(_state([_node(1, _hgx(2))], job), job))) == placed


def test_a_count_is_met_by_one_model_where_one_has_enough_and_by_several_where_the_model_is_open() -> None:
    two, three = _kind(H100, [_card("H-0"), _card("H-1")]), _kind(A100, [_card(f"A-{n}") for n in range(3)])
    state = _state([_node(1, two, three)])
    assert _given(_attempt(_with(state, c.RegisterJob(job=_job(_ask(count=3)))), _job())) == [["A-0", "A-1", "A-2"]]
    four = _job(_ask(count=4))
    (placement,) = _attempt(_with(state, c.RegisterJob(job=four)), four).plan.placements
    devices = placement.resources.tasks["web"].devices
    assert {device.name: len(device.device_ids) for device in devices} == {H100: 2, A100: 2}
    pinned = _job(_ask(f"nvidia/gpu/{A100}", count=4))
    assert _given(_attempt(_with(state, c.RegisterJob(job=pinned)), pinned)) == []


def test_a_suspect_card_is_given_last_on_its_node_whole_and_shared() -> None:
    kind = _kind(H100, [_card("a", state="suspect"), _card("b"), _card("c")])
    state = _state([_node(1, kind)])
    whole = _job(_ask(), count=3)
    assert _given(_attempt(_with(state, c.RegisterJob(job=whole)), whole)) == [["b"], ["c"], ["a"]]
    pair = _job(_ask(count=2))
    assert _given(_attempt(_with(state, c.RegisterJob(job=pair)), pair)) == [["b", "c"]]
    half = _job(_ask(share="mps", memory_mb=40_000), count=5)
    found = [ids[0].split("::")[0] for ids in _given(_attempt(_with(state, c.RegisterJob(job=half)), half))]
    assert found == ["b", "b", "c", "c", "a"]


def test_a_node_that_would_give_a_suspect_card_scores_lower() -> None:
    nodes = [_node(n, _kind(H100, [_card(f"s{n}", state="suspect")])) for n in range(1, 6)]
    nodes.append(_node(6, _kind(H100, [_card("sound"), _card("s6", state="suspect")])))
    job = _job(_ask(), count=3)
    found = _given(_attempt(_state(nodes, job), job, seed=5))

    assert found[0] == ["sound"] and all(ids[0].startswith("s") for ids in found[1:])


def test_affinities_may_outweigh_a_suspect_card() -> None:
    """The score of a node is a mean of terms: a suspect card lowers it and excludes nothing."""
    suspect = replace(_node(1, _kind(H100, [_card("suspect", state="suspect")])), node_class="near")
    sound = _node(2, _kind(H100, [_card("sound")]))
    job = _job(_ask())
    rules = [Affinity(l_target="${node.class}", r_target="near", operand=each, weight=weight)
             for each, weight in (("=", 100), ("!=", -100))]  # fmt: skip
    near = replace(job, affinities=tuple(rules))
    assert _given(_attempt(_state([suspect, sound], job), job)) == [["sound"]]
    assert _given(_attempt(_state([suspect, sound], near), near)) == [["suspect"]]


def test_all_of_a_node_are_its_healthy_ones_and_none_may_be_taken() -> None:
    kind = _kind(H100, [_card("a"), _card("b", healthy=False), _card("c")])
    job, one = _job(_ask(all_of_node=True)), _job(_ask(), job_id="one")
    state = _state([_node(1, kind)], job)
    assert _given(_attempt(state, job)) == [["a", "c"]]
    taken = _after(state, one)
    assert _given(_attempt(taken, job)) == []
    assert _lacks(taken, job) == ["1 of its 2 nvidia/gpu are taken, all are asked for"]


def test_the_first_alternative_that_a_node_can_give_is_taken_and_nodes_with_the_first_are_preferred() -> None:
    choices = (_ask(f"nvidia/gpu/{H100}"), _ask(f"nvidia/gpu/{A100}", count=2))
    job = _job(_ask(first_available=choices), count=3)
    nodes = [_node(n, _kind(A100, [_card(f"A{n}{i}") for i in range(2)])) for n in (1, 2)]
    nodes.append(_node(3, _kind(H100, [_card("H")])))
    found = _given(_attempt(_state(nodes, job), job))
    assert found[0] == ["H"] and sorted(map(len, found)) == [1, 2, 2]
    more = _job(_ask(first_available=choices), count=4)
    (text, *_) = _lacks(_after(_state(nodes), _job(_ask(all_of_node=True), count=3, job_id="x")), more)
    assert text.startswith("none of 2 alternatives fits, the first: ")


@pytest.mark.parametrize("target", ["${device.ids}", "${device.id}"])
def test_a_device_is_pinned_by_its_id(target: str) -> None:
    operand = "set_contains_any" if target == "${device.ids}" else "="
    rule = Constraint(l_target=target, operand=operand, r_target="GPU-5")
    job = _job(_ask(constraints=(rule,)), count=2)
    attempt = _attempt(_state([_node(1, _hgx())], job), job)
    assert _given(attempt) == [["GPU-5"]]
    assert attempt.outcome.created[0].escaped_computed_class


@pytest.mark.parametrize(
    ("left", "operand", "right", "is_met"),
    [
        ("${device.attr.memory}", ">=", "80 GiB", True),
        ("${device.attr.memory}", ">", "80GiB", False),
        ("${device.attr.memory}", ">=", "85 GB", True),
        ("${device.attr.memory}", ">=", "86 GB", False),
        ("${device.attr.cores_clock}", ">=", "1.5 GHz", True),
        ("${device.attr.cores_clock}", "<", "1 GHz", False),
        ("${device.attr.power}", "<=", "0.7kW", True),
        ("${device.attr.power}", "<", "1 MW", True),
        ("${device.attr.power}", ">", "1 mW", True),
        ("${device.attr.memory}", "<", "1 PiB", True),
        ("${device.attr.memory}", ">", "70", False),
        ("${device.attr.memory}", ">", "1 GHz", False),
        ("${device.attr.memory}", "!=", "1 GHz", True),
        ("${device.attr.power}", "=", "700 B", False),
        ("${device.attr.numa_node}", "=", "1", True),
        ("${device.attr.numa_node}", "=", "2", False),
        ("${device.model}", "regexp", "H1..$", True),
        ("${device.attr.missing}", "is_set", "", False),
    ],
)
def test_constraints_compare_attributes_with_their_units(left: str, operand: str, right: str, is_met: bool) -> None:
    card = _card("GPU-0", numa_node=1)
    kind = _kind(H100, [card], cores_clock=(1980, "MHz"), power=(700, "W"))
    job = _job(_ask(constraints=(Constraint(l_target=left, operand=operand, r_target=right),)))
    assert bool(_given(_attempt(_state([_node(1, kind)], job), job))) is is_met


def test_affinities_choose_the_kind_and_the_node() -> None:
    wish = Affinity(l_target="${device.attr.memory}", operand=">=", r_target="100 GiB", weight=80)
    small, large = _kind(A100, [_card("a")]), _kind(H100, [_card("h")], memory=(143_000, "MiB"))
    job = _job(_ask(affinities=(wish,)))
    found = _attempt(_state([_node(1, small), _node(2, small, large)], job), job)
    assert _given(found) == [["h"]]
    assert found.plan.placements[0].metrics is not None
    assert found.plan.placements[0].metrics.score_meta_data[0].scores["devices"] == 1.0


def test_an_affinity_for_devices_that_is_not_met_counts_as_nothing_in_the_mean() -> None:
    wish = Affinity(l_target="${device.model}", operand="=", r_target=H100, weight=80)
    job = _job(_ask(affinities=(wish,)))
    large = factories.group(tasks=(factories.task(resources=Resources(cpu=3900, memory_mb=8000)),))
    other = factories.job("other", task_groups=(large,))
    used = factories.alloc(other, on=_node(1), client_status="running")
    edit = _state([_node(1, _kind(A100, [_card("a")])), _node(2, _kind(H100, [_card("h")]))], job).edit(100)
    edit.put(Tables.allocs, used.id, used)
    found = _attempt(edit.commit(), job)
    assert _given(found) == [["h"]]
    metrics = found.plan.placements[0].metrics
    assert metrics is not None
    (_, full) = metrics.score_meta_data
    assert full.scores["binpack"] > 0.9 and full.scores["devices"] == 0.0
    assert full.norm_score == pytest.approx(full.scores["binpack"] / 2, abs=1e-9)


def test_two_requests_of_which_one_is_choosy_both_find_theirs() -> None:
    kinds = (_kind(H100, [_card("h")]), _kind(A100, [_card("a")]))
    job = _job(_ask(), _ask(f"nvidia/gpu/{H100}"))
    assert sorted(_given(_attempt(_state([_node(1, *kinds)], job), job))[0]) == ["a", "h"]


# -- topology ----------------------------------------------------------------------------------------------------------


def test_two_devices_are_a_bridged_pair_and_one_comes_from_a_broken_pair() -> None:
    node = _node(1, _pairs())
    state = _after(_state([node]), _job(_ask(), job_id="a"), _job(_ask(count=2), job_id="b"), _job(_ask(), job_id="c"))
    found = {alloc.job_id: usage_of(alloc).devices for alloc in state.allocs.values()}
    names = {job_id: sorted(key.rpartition("/")[2] for key in keys) for job_id, keys in found.items()}
    assert names == {"a": ["GPU-0"], "b": ["GPU-2", "GPU-3"], "c": ["GPU-1"]}


def test_what_is_required_is_met_or_the_job_waits_and_says_what_lacks() -> None:
    linked = _job(_ask(count=3, topology=DeviceTopology(nvlink="require")))
    state = _state([_node(1, _pairs())], linked)
    assert _given(_attempt(state, linked)) == []
    halves = _job(_ask(count=5, topology=DeviceTopology(numa="require")))
    state = _state([_node(1, _hgx())], halves)
    assert _given(_attempt(state, halves)) == []
    taken = _after(_state([_node(1, _pairs())]), _job(_ask(count=1), _ask(), job_id="x"))
    pair = _job(_ask(count=2, topology=DeviceTopology(nvlink="require")))
    assert _given(_attempt(_with(taken, c.RegisterJob(job=pair)), pair)) == [["GPU-2", "GPU-3"]]
    one = _job(_ask(f"nvidia/gpu/{A100}"), _ask(f"nvidia/gpu/{A100}"), job_id="x")
    both = _kind(A100, [_card("a", nvlink_peers="b"), _card("b", nvlink_peers="a"), _card("c", nvlink_peers="d"),
                        _card("d", nvlink_peers="c")])  # fmt: skip
    rule = Constraint(l_target="${device.ids}", operand="set_contains_any", r_target="a,c")
    pinned = _job(*(replace(r, constraints=(rule,)) for r in one.task_groups[0].tasks[0].resources.devices), job_id="x")
    crossed = _after(_state([_node(1, both)]), pinned)
    assert _lacks(crossed, pair) == ["no 2 of its 2 free nvidia/gpu are joined by NVLink, at most 1"]


def test_a_node_where_devices_lie_together_is_preferred() -> None:
    apart = _kind(A100, [_card("a", numa_node=0), _card("b", numa_node=1)])
    together = _kind(A100, [_card("c", numa_node=0, nvlink_peers="d"), _card("d", numa_node=0, nvlink_peers="c")])
    job = _job(_ask(count=2))
    for order in ((1, 2), (2, 1)):
        nodes = [_node(order[0], apart), _node(order[1], together)]
        assert _given(_attempt(_state(nodes, job), job)) == [["c", "d"]]


def test_reserved_cores_are_those_near_the_devices() -> None:
    rule = Constraint(l_target="${device.attr.numa_node}", operand="=", r_target="1")
    job = _job(_ask(constraints=(rule,)), cores=2)
    (placement,) = _attempt(_state([_node(1, _hgx(), cores=8)], job), job).plan.placements
    assert placement.resources.tasks["web"].cpu.reserved_cores == (4, 5)
    strict = _job(_ask(constraints=(rule,)), cores=5, numa=NUMAResource(affinity="require"))
    attempt = _attempt(_state([_node(1, _hgx(), cores=8)], strict), strict)
    assert not attempt.plan.placements
    assert attempt.outcome.evaluation.failed_tg_allocs["web"].dimension_exhausted == {"cores": 1}


# -- shares ------------------------------------------------------------------------------------------------------------


def _share(memory_mb: int, mode: str = "mps", **changes: Any) -> RequestedDevice:
    return _ask(share=mode, memory_mb=memory_mb, **changes)


def test_a_share_is_an_instance_of_its_own_and_shares_fill_a_device_before_the_next() -> None:
    job = _job(_share(20_480, compute=30), count=4)
    (first, *_), found = _attempt(_state([_node(1, _hgx(2))], job), job).plan.placements, None
    found = _given(_attempt(_state([_node(1, _hgx(2))], job), job))
    assert found == [["GPU-0::0"], ["GPU-0::1"], ["GPU-0::2"], ["GPU-1::0"]]
    device = first.resources.tasks["web"].devices[0]
    assert (device.share, device.memory_mb, device.compute) == ("mps", 20_480, 30)


def test_one_device_has_one_mode_and_is_never_shared_and_whole() -> None:
    mps, slices = _job(_share(1_000), job_id="mps"), _job(_share(1_000, "slice"), job_id="slice")
    whole = _job(_ask(count=2), job_id="whole")
    state = _after(_state([_node(1, _hgx(2))]), mps, slices)
    modes = {alloc.job_id: _devices(alloc) for alloc in state.allocs.values()}
    assert modes == {"mps": ["GPU-0"], "slice": ["GPU-1"]}
    assert _lacks(state, whole) == ["2 nvidia/gpu short (2 asked, 0 free)"]
    other = _after(_state([_node(1, _hgx(1))]), mps)
    assert _lacks(other, slices) == ["every nvidia/gpu is taken whole or shared otherwise"]


def _devices(alloc: Any) -> list[str]:
    return sorted(parted(key)[0].rpartition("/")[2] for key in usage_of(alloc).devices)


def test_memory_is_booked_against_what_the_driver_leaves_and_the_shortfall_is_told() -> None:
    big, more = _job(_share(CARD_MB - KEPT_MB - 4_096), job_id="big"), _job(_share(8_192))
    state = _after(_state([_node(1, _hgx(1))]), big)
    assert _given(_attempt(_with(state, c.RegisterJob(job=more)), more)) == []
    assert _lacks(state, more) == ["GPU memory 4096 MiB short (8192 asked, 4096 free)"]
    (group,) = explain.why_not(state, more, now=factories.NOW, seed=1).groups
    assert group.smallest_change is not None and group.smallest_change.places == 1
    text = 'lower the memory of device "nvidia/gpu" in task "web" from 8192 to 4096 MiB'
    assert group.smallest_change.text == text
    fits = _job(_share(4_096))
    assert _given(_attempt(_with(state, c.RegisterJob(job=fits)), fits)) == [["GPU-0::1"]]


def test_compute_adds_up_to_a_hundred_percent() -> None:
    state = _after(_state([_node(1, _hgx(1))]), _job(_share(100, compute=80), job_id="most"))
    assert _lacks(state, _job(_share(100, compute=30))) == ["GPU compute 10 % short (30 asked, 20 free)"]
    free = _job(_share(100))
    assert _given(_attempt(_with(state, c.RegisterJob(job=free)), free)) == [["GPU-0::1"]]


def test_a_device_that_cannot_be_shared_in_a_mode_is_not() -> None:
    for sharing, instead in (("slice", "the node shares them by slice"), ("", "the node gives them only as a whole")):
        kind = _kind(H100, [_card("a")], sharing=sharing)
        assert _lacks(_state([_node(1, kind)]), _job(_share(100))) == [f"no nvidia/gpu can be shared by mps; {instead}"]


def test_mig_instances_are_the_smallest_that_fit_and_are_booked_whole() -> None:
    small = _kind("H100 MIG 1g", [_card(f"MIG-s{n}", mig_parent="GPU-9") for n in range(2)], memory=(9_728, "MiB"),
                  memory_reserved=(0, "MiB"), sharing="mig")  # fmt: skip
    large = _kind("H100 MIG 3g", [_card("MIG-l", mig_parent="GPU-9")], memory=(40_192, "MiB"), sharing="mig",
                  memory_reserved=(0, "MiB"))  # fmt: skip
    job = _job(_share(9_000, "mig"), count=3)
    placements = _attempt(_state([_node(1, large, small, _hgx(1))], job), job).plan.placements
    devices = [placement.resources.tasks["web"].devices[0] for placement in placements]
    assert [device.device_ids for device in devices] == [("MIG-s0",), ("MIG-s1",), ("MIG-l",)]
    assert {device.share for device in devices} == {""}
    assert _lacks(_state([_node(1, small)]), _job(_share(20_000, "mig"))) == [
        "no MIG instance has 20000 MiB, the largest has 9728"
    ]
    whole = _job(_ask())
    assert _given(_attempt(_state([_node(1, small, _hgx(1))], whole), whole)) == [["GPU-0"]]


def test_less_important_jobs_make_room_by_device_alone() -> None:
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
    state = _with(_state([_node(1, _hgx(2))]), c.SetSchedulerConfiguration(configuration=config))
    idle = factories.job("idle", priority=10)
    holders = (_job(_share(60_000), job_id="share", priority=20), _job(_ask(), job_id="whole", priority=30))
    state = _after(state, idle, *holders)
    urgent = _job(_share(60_000), job_id="urgent", priority=90)
    plan = _attempt(_with(state, c.RegisterJob(job=urgent)), urgent).plan
    assert [state.allocs[stop.id].job_id for stop in plan.preemptions] == ["share"]
    both = _job(_ask(count=2), job_id="urgent", priority=90)
    plan = _attempt(_with(state, c.RegisterJob(job=both)), both).plan
    assert sorted(state.allocs[stop.id].job_id for stop in plan.preemptions) == ["share", "whole"]


# -- nothing is given twice --------------------------------------------------------------------------------------------


def test_two_plans_that_were_made_side_by_side_never_book_the_same_share_or_too_much() -> None:
    one, two = _job(_share(50_000), job_id="one"), _job(_share(50_000), job_id="two")
    state = _state([_node(1, _hgx(1))], one, two)
    first, second = _attempt(state, one).plan, _attempt(state, two).plan
    late = _with(state, c.ApplyPlan(plan=first))
    assert scheduler.check_plan(late, second).rejected_nodes[_node(1).id] == "device oversubscribed"
    small, other = _job(_share(40_000), job_id="one"), _job(_share(41_000), job_id="two")
    state = _state([_node(1, _hgx(1))], small, other)
    moved = _with_ids(_attempt(state, other).plan, "GPU-0::7")
    late = _with(state, c.ApplyPlan(plan=_attempt(state, small).plan))
    assert scheduler.check_plan(late, moved).rejected_nodes[_node(1).id] == "device memory oversubscribed"
    whole = _job(_ask(), job_id="two")
    state = _state([_node(1, _hgx(1))], whole)
    late, plan = _after(state, small), _attempt(state, whole).plan
    assert scheduler.check_plan(late, plan).rejected_nodes[_node(1).id] == "device oversubscribed"


def _with_ids(plan: Any, device_id: str) -> Any:
    (placement,) = plan.placements
    task = placement.resources.tasks["web"]
    moved = replace(task, devices=(replace(task.devices[0], device_ids=(device_id,)),))
    return replace(plan, placements=(replace(placement, resources=replace(placement.resources, tasks={"web": moved})),))


def _random_request(random: Random) -> RequestedDevice:
    kind = random.randrange(8)
    if kind < 4:
        memory = random.choice((1_000, 9_000, 20_000, 39_999, 60_000))
        compute = random.choice((0, 0, 20, 45, 70))
        return _share(memory, random.choice(("mps", "mps", "slice")), compute=compute, count=random.choice((1, 1, 2)))
    if kind == 4:
        return _ask(all_of_node=True)
    if kind == 5:
        return _share(random.choice((5_000, 20_000)), "mig")
    return _ask(random.choice(("gpu", "nvidia/gpu", f"nvidia/gpu/{A100}")), count=random.choice((1, 2, 3)))


def _random_node(random: Random, number: int) -> Node:
    parts = [_card(f"MIG-{n}", mig_parent="GPU-9") for n in range(3)]
    mig = _kind("MIG 1g", parts, memory=(10_000, "MiB"), memory_reserved=(0, "MiB"), sharing="mig")
    kinds = [_hgx(random.choice((1, 2, 4))), _pairs(2) if random.random() < 0.5 else mig]
    renamed = [
        replace(kind, instances=tuple(replace(each, id=f"{each.id}-{at}") for each in kind.instances))
        for at, kind in enumerate(kinds)
    ]
    return _node(number, *renamed)


def _assert_within_capacity(state: Snapshot) -> None:
    for node in state.nodes.values():
        in_use = [key for alloc in state.allocs_of_node(node.id) if is_using(alloc) for key in usage_of(alloc).devices]
        assert len(in_use) == len(set(in_use)), "an instance was given twice"
        for booked in bookings(in_use).values():
            assert not (booked.is_whole and booked.shares)
            assert len(booked.modes) <= 1 and booked.compute <= COMPUTE_MAX
            assert booked.memory_mb <= CARD_MB - KEPT_MB
            assert len({share.number for share in booked.shares}) == len(booked.shares)


@pytest.mark.parametrize("block", range(4))
def test_bookings_never_pass_capacity_over_random_plans_stops_and_stale_snapshots(block: int) -> None:
    for number in range(cases(500) // 4):
        random = Random(block * 1_000_003 + number)
        state = _state([_random_node(random, n) for n in range(random.choice((1, 2)))])
        old = state
        for step in range(8):
            job = _job(_random_request(random), job_id=f"j{step}", count=random.choice((1, 2, 3)))
            state = _with(state, c.RegisterJob(job=job))
            base = state if random.random() < 0.6 else _with(old, c.RegisterJob(job=job))
            old = state
            plan = _attempt(base, job, seed=number).plan
            plan = replace(plan, placements=tuple(replace(p, job_version=0) for p in plan.placements))
            state = _with(state, c.ApplyPlan(plan=scheduler.check_plan(state, plan).accepted))
            live = [alloc for alloc in state.allocs.values() if is_using(alloc)]
            if live and random.random() < 0.3:
                gone = random.choice(sorted(live, key=lambda alloc: alloc.id))
                update = c.AllocUpdate(id=gone.id, node_id=gone.node_id, client_status="complete")
                state = _with(state, c.UpdateAllocsFromClient(updates=(update,)))
            _assert_within_capacity(state)


def test_a_held_share_is_read_back_as_it_was_written() -> None:
    assert parted("nvidia/gpu/H100/GPU-1::3|mps|2048|30") == ("nvidia/gpu/H100/GPU-1", Share("3", "mps", 2048, 30))
    with_part = parted("nvidia/gpu/A|B/GPU-1::3|mps|2048|30|300")
    assert with_part == ("nvidia/gpu/A|B/GPU-1", Share("3", "mps", 2048, 30))
    assert parted("nvidia/gpu/A|B/GPU-1") == ("nvidia/gpu/A|B/GPU-1", None)


def test_what_begins_and_ends_before_anybody_looks_leaves_its_devices_and_ports() -> None:
    """The columns count the changes of several commands at once."""
    state = _state([_node(1, _hgx(2))])
    assert not state.columns.in_use
    for number in range(2):
        job = _job(_ask(count=2), job_id=f"short-{number}")
        state = _with(state, c.RegisterJob(job=job))
        state = _with(state, c.ApplyPlan(plan=_attempt(state, job).plan))
        (alloc,) = (each for each in state.allocs.values() if each.job_id == job.id)
        done = c.AllocUpdate(id=alloc.id, node_id=alloc.node_id, client_status="complete")
        state = _with(state, c.UpdateAllocsFromClient(updates=(done,)))
    assert not state.columns.in_use


def test_an_update_in_place_keeps_an_instance_whose_card_is_no_longer_split() -> None:
    (plain,) = [_hgx(1)]
    profiles = Attribute(string_val="1g.10gb:9856:14:1:0,1,2,3,4,5,6")
    split = {**plain.attributes, "sharing": Attribute(string_val="mig"), "mig_profiles": profiles}
    job = _job(_share(9_000, "mig"))
    state = _after(_state([_node(1, replace(plain, attributes=split))]), job)
    changed = replace(job, priority=job.priority + 1)
    state = _with(state, c.RegisterJob(job=changed))
    plan = _attempt(state, changed).plan
    late = _with(state, c.RegisterNode(node=_node(1, plain)))

    assert plan.in_place or plan.placements
    assert not scheduler.check_plan(late, plan).rejected_nodes
