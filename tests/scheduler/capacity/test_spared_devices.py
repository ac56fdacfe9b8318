"""Devices of a node that a reservation leaves to long jobs, whichever devices these get there."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.fsm import apply
from yurt.scheduler.capacity.ask import GroupAsk
from yurt.scheduler.capacity.pool_capacity import PendingAllocs, PoolCapacity
from yurt.scheduler.devices.bookings import bookings
from yurt.scheduler.devices.offers import Stock, capacity_for_share, grant_devices
from yurt.sdk.mig import MigProfile, profiles_text
from yurt.sdk.value import replace
from yurt.state import Snapshot
from yurt.structs.alloc import AllocatedDeviceResource
from yurt.structs.cluster import NodePool
from yurt.structs.commands import AnyCommand, ApplyPlan, RegisterJob, RegisterNode, UpsertNodePools
from yurt.structs.constraint import Constraint
from yurt.structs.node import Attribute, Node, NodeDevice, NodeDeviceResource
from yurt.structs.plan import Plan
from yurt.structs.resources import DeviceTopology, RequestedDevice, Resources
from yurt.testing import factories

POOL = "gpu"
SHARED = {"memory": Attribute(int_val=40_000, unit="MiB"), "sharing": Attribute(string_val="slice")}
H100 = (
    MigProfile(name="1g.10gb", memory_mb=9856, compute=14, size=1, starts=(0, 1, 2, 3, 4, 5, 6)),
    MigProfile(name="3g.40gb", memory_mb=40448, compute=42, size=4, starts=(0, 4)),
    MigProfile(name="7g.80gb", memory_mb=81008, compute=100, size=8, starts=(0,)),
)
SPLIT = {
    "memory": Attribute(int_val=81_559, unit="MiB"),
    "sharing": Attribute(string_val="mig"),
    "mig_profiles": Attribute(string_val=profiles_text(H100)),
}


def kind(name: str, count: int, attributes: dict[str, Attribute] | None = None) -> NodeDeviceResource:
    cards = tuple(NodeDevice(id=f"{name}-{number}", healthy=True) for number in range(count))
    return NodeDeviceResource(vendor="nvidia", type="gpu", name=name, instances=cards, attributes=attributes or {})


def devices(name: str = "nvidia/gpu", count: int = 1, **changes: Any) -> RequestedDevice:
    return RequestedDevice(name=name, count=count, **changes)


def mig(memory_mb: int) -> RequestedDevice:
    return devices(share="mig", memory_mb=memory_mb)


def ask(*requests: RequestedDevice) -> GroupAsk:
    made = factories.job("asks", type="batch", node_pool=POOL).task_groups[0]
    task = replace(made.tasks[0], resources=Resources(cpu=1, memory_mb=1, devices=requests))
    return GroupAsk(replace(made, tasks=(task,), count=1), with_memory_max=False)


def node_of(*kinds: NodeDeviceResource, max_allocs: int = 0) -> Node:
    made = factories.node(factories.number_id(1, kind=1), node_pool=POOL, node_max_allocs=max_allocs)
    return replace(made, node_resources=replace(made.node_resources, devices=kinds))


def capacity_of(node: Node, in_use: tuple[tuple[NodeDeviceResource, NodeDevice], ...] = ()) -> PoolCapacity:
    """The capacity of a pool with one node, where other allocations use some devices."""
    state = Snapshot.empty()
    job = factories.job("runs", type="batch", node_pool=POOL)
    commands: list[AnyCommand] = [
        UpsertNodePools(pools=(NodePool(name=POOL),), now=factories.NOW),
        RegisterNode(node=node),
    ]
    for command in (*commands, RegisterJob(job=job)):
        state = apply(state, command, index=state.index + 1).state
    stored, found = state.jobs[job.key], factories.allocated(job.task_groups[0])
    for of, each in in_use:
        granted = AllocatedDeviceResource(vendor=of.vendor, type=of.type, name=of.name, device_ids=(each.id,))
        tasks = {name: replace(task, devices=(granted,)) for name, task in found.tasks.items()}
        placement = factories.placement(stored, on=node, resources=replace(found, tasks=tasks))
        plan = Plan(eval_id="", namespace=job.namespace, job_id=job.id, placements=(placement,), now=factories.NOW)
        state = apply(state, ApplyPlan(plan=plan), index=state.index + 1).state
    return PoolCapacity(state, POOL)


def alloc_of(one: GroupAsk) -> list[PendingAllocs]:
    """The demands of a job with one allocation."""
    return [PendingAllocs(one, 1, 1)]


def reserve(capacity: PoolCapacity, *requests: RequestedDevice) -> None:
    assert capacity.take([PendingAllocs(ask(*requests), 1, 1)])


def test_a_job_for_all_devices_does_not_fit_beside_a_reservation() -> None:
    capacity = capacity_of(node_of(kind("h100", 8)))
    reserve(capacity, devices(count=5))
    assert not capacity.fits_on_each([0], alloc_of(ask(devices(all_of_node=True))))
    assert capacity.fits_on_each([0], alloc_of(ask(devices(count=3))))


def test_the_groups_of_a_job_fit_together_or_not_at_all() -> None:
    capacity = capacity_of(node_of(kind("h100", 8)))
    reserve(capacity, devices(count=5))
    two, one = (PendingAllocs(ask(devices(count=count)), 1, 1) for count in (2, 1))
    assert capacity.fits_on_each([0], [two, one])
    assert not capacity.fits_on_each([0], [two, two])


def test_a_job_for_all_devices_leaves_none_to_further_jobs() -> None:
    capacity = capacity_of(node_of(kind("h100", 8), kind("l4", 2)))
    reserve(capacity, devices("nvidia/gpu/l4"))
    everything = ask(devices("nvidia/gpu/h100", all_of_node=True))
    assert capacity.fits_on_each([0], alloc_of(everything))
    capacity.use_on([0], alloc_of(everything))
    assert not capacity.fits_on_each([0], alloc_of(ask(devices("nvidia/gpu/h100"))))
    assert capacity.fits_on_each([0], alloc_of(ask(devices("nvidia/gpu/l4"))))


def test_a_job_for_any_model_does_not_fit_beside_a_reservation_of_one() -> None:
    capacity = capacity_of(node_of(kind("h100", 4), kind("l4", 4)))
    reserve(capacity, devices("nvidia/gpu/h100", count=4))
    assert not capacity.fits_on_each([0], alloc_of(ask(devices())))
    assert not capacity.fits_on_each([0], alloc_of(ask(devices(first_available=(devices("nvidia/gpu/l4"), devices())))))
    assert capacity.fits_on_each([0], alloc_of(ask(devices("nvidia/gpu/l4", count=4))))


@pytest.mark.parametrize(
    "request_",
    [
        devices(count=2, topology=DeviceTopology(nvlink="require")),
        devices(constraints=(Constraint(l_target="${device.model}", r_target="h100", operand="="),)),
        devices(share="slice", memory_mb=1000),
        RequestedDevice(first_available=(devices(),)),
    ],
)
def test_numbers_say_nothing_of_requests_that_not_every_device_meets(request_: RequestedDevice) -> None:
    beside, reserved = (capacity_of(node_of(kind("h100", 8, SHARED))) for _ in range(2))
    reserve(beside, devices())
    assert not beside.fits_on_each([0], alloc_of(ask(request_)))
    reserved.use_on([0], alloc_of(ask(request_)))
    assert not reserved.fits_on_each([0], alloc_of(ask(devices())))


def test_a_share_on_another_node_does_not_matter() -> None:
    first = node_of(kind("h100", 8, SHARED))
    second = replace(first, id=factories.number_id(2, kind=1), name="second")
    state = Snapshot.empty()
    pools = UpsertNodePools(pools=(NodePool(name=POOL),), now=factories.NOW)
    for command in (pools, RegisterNode(node=first), RegisterNode(node=second)):
        state = apply(state, command, index=state.index + 1).state
    capacity = PoolCapacity(state, POOL)
    capacity.use_on([0], alloc_of(ask(devices(share="slice", memory_mb=1000))))
    capacity.use_on([1], alloc_of(ask(devices(count=4))))
    assert capacity.fits_on_each([1], alloc_of(ask(devices(count=4))))
    assert not capacity.fits_on_each([0, 1], alloc_of(ask(devices(count=4))))


def test_a_reservation_keeps_its_place_among_the_allocations_of_a_node() -> None:
    capacity = capacity_of(node_of(kind("h100", 8), max_allocs=2))
    reserve(capacity, devices())
    one = ask(devices())
    assert capacity.fits_on_each([0], alloc_of(one))
    capacity.use_on([0], alloc_of(one))
    assert not capacity.fits_on_each([0], alloc_of(one))


@pytest.mark.parametrize(("memory_mb", "places"), [(9_000, 14), (40_000, 4), (80_000, 2), (90_000, 0)])
def test_mig_instances_are_counted_by_the_places_of_their_profiles(memory_mb: int, places: int) -> None:
    """Two cards that are split, one that is not."""
    capacity = capacity_of(node_of(kind("h100", 2, SPLIT), kind("l4", 1)))
    assert capacity.total_places(ask(mig(memory_mb))) == places
    assert int(capacity.places(ask(mig(memory_mb))).sum()) == places


@pytest.mark.parametrize(("taken", "large", "small"), [(0, 4, 14), (1, 2, 7), (2, 0, 0)])
def test_a_whole_card_takes_all_places_for_mig_instances(taken: int, large: int, small: int) -> None:
    node = node_of(kind("h100", 2, SPLIT))
    cards = node.node_resources.devices[0]
    running = capacity_of(node, tuple((cards, each) for each in cards.instances[:taken]))
    planned = capacity_of(node)
    if taken:
        reserve(planned, devices(count=taken))
    for capacity in (running, planned):
        assert [int(capacity.places(ask(mig(size))).sum()) for size in (40_000, 9_000)] == [large, small]


def test_taken_mig_instances_leave_the_other_places() -> None:
    capacity = capacity_of(node_of(kind("h100", 1, SPLIT)))
    for left in (1, 0):
        reserve(capacity, mig(40_000))
        assert int(capacity.places(ask(mig(40_000))).sum()) == left
    assert int(capacity.places(ask(devices())).sum()) == 0


NAMES = st.sampled_from(("gpu", "nvidia/gpu", "nvidia/gpu/h100", "nvidia/gpu/l4"))
PLAIN = st.builds(devices, NAMES, st.integers(1, 3))
REQUESTS = st.one_of(
    PLAIN,
    PLAIN,
    PLAIN,
    st.builds(devices, NAMES, all_of_node=st.just(True)),
    st.builds(devices, NAMES, share=st.just("slice"), memory_mb=st.sampled_from((1_000, 30_000))),
    st.builds(RequestedDevice, first_available=st.tuples(PLAIN, PLAIN)),
)
ALIKE = st.builds(devices, st.just("nvidia/gpu"), st.integers(1, 2))
ASKS = st.one_of(st.lists(ALIKE, min_size=1, max_size=1), st.lists(REQUESTS, min_size=1, max_size=2))
JOBS = st.lists(st.tuples(ASKS, st.integers(1, 2)), min_size=1, max_size=4)


def choices(node: Node, in_use: frozenset[str], request: RequestedDevice) -> Iterator[frozenset[str]]:
    """All devices in use after an allocation with this request got any that it may have."""
    for other in request.first_available:
        yield from choices(node, in_use, other)
    stock = Stock(node, in_use)
    items = stock.matching(request)
    if request.share:
        booked = bookings(in_use)
        for item in items:
            left = capacity_for_share(stock, request, item)
            if left is not None and left[0] >= request.memory_mb:
                number = booked[item.key].next_number() if item.key in booked else "0"
                yield in_use | {f"{item.key}::{number}|slice|{request.memory_mb}|0"}
        return
    free = [item.key for item in items if stock.is_free(item)]
    if request.all_of_node:
        if items and len(free) == len(items):
            yield in_use | {*free}
        return
    for keys in combinations(free, request.count):
        yield in_use | {*keys}


@settings(max_examples=300, deadline=None)
@given(
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.sets(st.integers(0, 5), max_size=2),
    ASKS,
    JOBS,
)
def test_what_long_jobs_leave_suffices_for_the_reservation_wherever_they_land(
    cards: tuple[int, int],
    used: set[int],
    reserved: list[RequestedDevice],
    jobs: list[tuple[list[RequestedDevice], int]],
) -> None:
    node = node_of(kind("h100", cards[0], SHARED), kind("l4", cards[1], SHARED))
    pairs = [(of, each) for of in node.node_resources.devices for each in of.instances]
    running = tuple(pair for number, pair in enumerate(pairs) if number in used)
    in_use = frozenset(f"nvidia/gpu/{of.name}/{each.id}" for of, each in running)
    wanted = [("task", request) for request in reserved]
    capacity = capacity_of(node, running)
    if grant_devices(node, in_use, wanted) is None or not capacity.take([PendingAllocs(ask(*reserved), 1, 1)]):
        return
    states = {in_use}
    for requests, number in jobs:
        demands = [PendingAllocs(ask(*requests), number, 1)]
        if not capacity.fits_on_each([0], demands):
            continue
        capacity.use_on([0], demands)
        for request in requests * number:
            # A job that cannot land here, or only in part, takes nothing: what was possible before remains possible.
            states |= {after for before in states for after in choices(node, before, request)}
    for after in states:
        assert grant_devices(node, after, wanted) is not None, (reserved, jobs, sorted(after))
