"""MIG instances that nodes create: profile, place, exact bookings, reasons, and no overlap in any order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.scheduler.devices.bookings import NOTHING, Booked, bookings, instance_key
from yurt.scheduler.devices.offers import grant_devices
from yurt.scheduler.devices.overbooking import overbooked
from yurt.scheduler.devices.partitions import best_start, booked_slices, share_at
from yurt.scheduler.explain.device_shortage import device_shortages
from yurt.sdk.mig import MigProfile, parse_profiles, profiles_text
from yurt.sdk.value import replace
from yurt.state.usage import device_key
from yurt.structs.alloc import AllocatedDeviceResource
from yurt.structs.node import Attribute, Node, NodeDevice, NodeDeviceResource
from yurt.structs.resources import RequestedDevice
from yurt.testing import factories

H100 = (
    MigProfile(name="1g.10gb", memory_mb=9856, compute=14, size=1, starts=(0, 1, 2, 3, 4, 5, 6)),
    MigProfile(name="1g.20gb", memory_mb=20096, compute=14, size=2, starts=(0, 2, 4, 6)),
    MigProfile(name="2g.20gb", memory_mb=20096, compute=28, size=2, starts=(0, 2, 4)),
    MigProfile(name="3g.40gb", memory_mb=40448, compute=42, size=4, starts=(0, 4)),
    MigProfile(name="4g.40gb", memory_mb=40448, compute=57, size=4, starts=(0,)),
    MigProfile(name="7g.80gb", memory_mb=81008, compute=100, size=8, starts=(0,)),
)


def _node(cards: int = 1, profiles: tuple[MigProfile, ...] = H100, sharing: str = "mps,slice,mig") -> Node:
    attributes = {
        "memory": Attribute(int_val=81_559, unit="MiB"),
        "memory_reserved": Attribute(int_val=551, unit="MiB"),
        "sharing": Attribute(string_val=sharing),
        "mig_profiles": Attribute(string_val=profiles_text(profiles)),
    }
    instances = tuple(NodeDevice(id=f"GPU-{number}", healthy=True) for number in range(cards))
    kind = NodeDeviceResource(vendor="nvidia", type="gpu", name="H100", instances=instances, attributes=attributes)
    made = factories.node(factories.number_id(1, kind=1))
    return replace(made, node_resources=replace(made.node_resources, devices=(kind,)))


def _mig(memory_mb: int, count: int = 1) -> RequestedDevice:
    return RequestedDevice(name="nvidia/gpu", count=count, share="mig", memory_mb=memory_mb)


def _keys(devices: list[AllocatedDeviceResource]) -> list[str]:
    return [device_key(device, each) for device in devices for each in device.device_ids]


def _grant(node: Node, in_use: list[str], *requests: RequestedDevice) -> list[AllocatedDeviceResource] | None:
    found = grant_devices(node, in_use, [("task", request) for request in requests])
    return None if found is None else [grant.device for grant in found.devices]


def test_an_instance_of_the_smallest_profile_with_the_memory_is_booked_at_its_place() -> None:
    granted = _grant(_node(), [], _mig(30_000))
    assert granted is not None

    (device,) = granted
    assert (device.name, device.share, device.memory_mb, device.compute) == ("H100", "mig", 40_448, 42)
    assert device.device_ids == ("GPU-0::4",), "the place that leaves 4g.40gb its only one"


@pytest.mark.parametrize(
    ("memory_mb", "part", "number"), [(9000, 140, 7), (10_000, 247, 4), (40_000, 496, 2), (80_000, 1000, 1)]
)
def test_an_instance_counts_by_the_larger_of_its_parts_and_all_as_no_more_than_the_card(
    memory_mb: int, part: int, number: int
) -> None:
    granted = _grant(_node(), [], *[_mig(memory_mb)] * number)
    assert granted is not None
    assert [device.part_milli for device in granted] == [part] * number
    assert part * number <= 1000


def test_a_card_takes_as_many_instances_as_the_hardware() -> None:
    node = _node()
    granted = _grant(node, [], *[_mig(40_000)] * 2)
    assert granted is not None and len(_keys(granted)) == 2

    assert _grant(node, _keys(granted), _mig(5_000)) is None
    assert _grant(node, [], _mig(5_000, count=7)) is not None
    assert _grant(node, [], _mig(5_000, count=8)) is None, "seven compute slices"


def test_several_instances_are_of_one_profile_and_may_be_on_several_cards() -> None:
    granted = _grant(_node(cards=2), [], _mig(40_000, count=3))
    assert granted is not None

    assert {device.memory_mb for device in granted} == {40_448}
    assert len({each.partition("::")[0] for device in granted for each in device.device_ids}) == 2


def test_a_split_card_is_filled_before_a_free_one_is_split() -> None:
    node = _node(cards=2)
    first = _grant(node, [], _mig(5_000))
    assert first is not None
    second = _grant(node, _keys(first), _mig(20_000))
    assert second is not None

    assert {each.partition("::")[0] for device in (*first, *second) for each in device.device_ids} == {"GPU-0"}


def test_a_card_is_whole_or_split_or_shared_otherwise() -> None:
    node = _node()
    split = _grant(node, [], _mig(5_000))
    whole = _grant(node, [], RequestedDevice(name="nvidia/gpu", count=1))
    assert split is not None and whole is not None

    assert _grant(node, _keys(split), RequestedDevice(name="nvidia/gpu", count=1)) is None
    assert _grant(node, _keys(split), replace(_mig(5_000), share="slice")) is None
    assert _grant(node, _keys(whole), _mig(5_000)) is None


def test_a_card_is_split_only_where_its_node_offers_it() -> None:
    node = _node(sharing="mps,slice")

    assert _grant(node, [], _mig(5_000)) is None
    (lack,) = device_shortages(node, [], [("task", _mig(5_000))])
    assert lack.text == "no nvidia/gpu is split into MIG instances"


def test_reasons_name_the_largest_profile_and_the_instances_that_can_be_had() -> None:
    taken = _grant(_node(), [], _mig(40_000))
    assert taken is not None
    (too_large,) = device_shortages(_node(), [], [("task", _mig(90_000))])
    (too_many,) = device_shortages(_node(), _keys(taken), [("task", _mig(40_000, count=2))])

    assert too_large.text == "no MIG profile has 90000 MiB, the largest has 81008"
    assert too_many.text == "2 MIG instances of 40000 MiB asked, 1 can be had"


def test_the_applier_refuses_instances_that_overlap_or_are_of_no_profile() -> None:
    node = _node()
    (kind,) = node.node_resources.devices
    key = instance_key(kind, "GPU-0")

    def reason(*shares: str) -> str:
        in_use = [f"{key}::{share}" for share in shares]
        return overbooked(node, in_use, in_use[-1:])

    assert reason("0|mig|40448|42", "4|mig|40448|42") == ""
    assert reason("0|mig|40448|42", "3|mig|9856|14") == "device oversubscribed"
    assert reason("1|mig|40448|42") == "device oversubscribed", "no place of the profile"
    assert reason("0|mig|12345|14") == "device oversubscribed", "no profile"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 90_000)), max_size=25))
def test_instances_never_overlap_and_a_free_place_of_a_fitting_profile_is_used(steps: list[tuple[bool, int]]) -> None:
    node, in_use = _node(), list[str]()
    (kind,) = node.node_resources.devices
    key = instance_key(kind, "GPU-0")
    for frees, number in steps:
        if frees and in_use:
            in_use.pop(number % len(in_use))
            continue
        booked = bookings(in_use).get(key, NOTHING)
        granted = _grant(node, in_use, _mig(number))
        can = [p for p in H100 if p.memory_mb >= number and best_start(H100, p, booked) is not None]
        assert (granted is not None) == bool(can)
        in_use += _keys(granted or [])
        assert overbooked(node, in_use, in_use) == ""


def test_bookings_that_are_no_instances_take_no_further_ones() -> None:
    strange = Booked(shares=(replace(share_at(H100[0], 0), memory_mb=1),))

    assert booked_slices(H100, strange) is None
    assert best_start(H100, H100[0], strange) is None


def test_the_text_of_profiles_is_read_back_and_strange_entries_are_left_out() -> None:
    assert parse_profiles(profiles_text(reversed(H100))) == H100
    assert parse_profiles("x;1g:9:14:1;2g:1:200:1:0;3g:1:1:0:0;ok:5:10:1:0") == (
        MigProfile(name="ok", memory_mb=5, compute=10, size=1, starts=(0,)),
    )
