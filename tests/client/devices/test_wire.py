"""Devices in the shapes of the API, and what drivers can give: pure steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.api.encode import to_wire
from yurt.client.devices.claims import claim_of, reachable
from yurt.client.devices.manager import merged, summary
from yurt.client.devices.wire import attribute, claimed, device_stats, node_group, stat_value
from yurt.sdk.device import (
    DeviceFingerprint,
    DeviceGroup,
    DeviceInstance,
    DeviceProcess,
    DeviceUse,
    Quantity,
    Reservation,
    Stat,
    device_of,
)
from yurt.sdk.driver import Capabilities, DeviceNode, Mount
from yurt.sdk.errors import DriverError
from yurt.sdk.value import UnixNano, replace
from yurt.structs.alloc import AllocatedDeviceResource, AllocatedResources, AllocatedTaskResources, Allocation
from yurt.structs.node import Attribute, DeviceHealth
from yurt.structs.rpc import StatValue
from yurt.testing.fakes import FakeDriver


def test_values_keep_their_kind_and_unit() -> None:
    values = [Quantity(value=80, unit="GiB"), 3, 1.5, "Enabled", True]

    assert [attribute(each) for each in values] == [
        Attribute(int_val=80, unit="GiB"), Attribute(int_val=3), Attribute(float_val=1.5),
        Attribute(string_val="Enabled"), Attribute(bool_val=True),
    ]  # fmt: skip


def test_a_group_looks_the_same_whatever_the_order_of_its_instances() -> None:
    one, two = DeviceInstance(id="b", is_healthy=False, reason="Xid 79"), DeviceInstance(id="a", pci_bus_id="01:00.0")
    group = DeviceGroup(vendor="v", type="t", name="n", instances=(one, two))

    def health_of(key: str) -> DeviceHealth:
        return DeviceHealth(state="failed", reason="Xid 79") if key == "v/t/n/b" else DeviceHealth()

    shown = node_group(group, health_of)

    assert shown == node_group(replace(group, instances=(two, one)), health_of)
    instances = [{k: v for k, v in each.items() if k != "Health"} for each in to_wire(shown)["Instances"]]
    assert instances == [
        {"HealthDescription": "", "Healthy": True, "ID": "a", "Locality": {"PciBusID": "01:00.0"}},
        {"HealthDescription": "Xid 79", "Healthy": False, "ID": "b", "Locality": None},
    ]
    assert [each["Health"]["State"] for each in to_wire(shown)["Instances"]] == ["healthy", "failed"]


def test_figures_are_written_as_nomads_with_zeros_and_without_what_is_unset() -> None:
    use = DeviceUse(
        at=UnixNano(0),
        summary=Stat(value=0, of=81559, unit="MiB", description="UsedMemory / TotalMemory"),
        stats={"Power usage": Stat(value=71.5, of=700, unit="W"), "Mode": Stat(value="on")},
        processes=(DeviceProcess(pid=7, memory_bytes=3 << 20),),
    )
    shown = to_wire(device_stats(use))

    assert shown["Summary"] == {
        "IntNumeratorVal": 0, "IntDenominatorVal": 81559, "Unit": "MiB", "Desc": "UsedMemory / TotalMemory",
    }  # fmt: skip
    assert shown["Stats"]["Attributes"] == {
        "Power usage": {"FloatNumeratorVal": 71.5, "FloatDenominatorVal": 700.0, "Unit": "W"},
        "Mode": {"StringVal": "on"},
    }
    assert shown["Stats"]["Nested"]["Memory by process"]["Attributes"]["7"]["IntNumeratorVal"] == 3


@given(st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()))
def test_a_figure_has_exactly_one_kind(value: bool | int | float | str) -> None:
    found = stat_value(Stat(value=value))
    kinds = [found.bool_val, found.string_val, found.int_numerator_val, found.float_numerator_val]

    assert [each for each in kinds if each is not None] == [value]
    assert isinstance(found, StatValue)


def test_a_booking_of_a_share_is_a_claim_on_the_device() -> None:
    booked = AllocatedDeviceResource(
        vendor="nvidia", type="gpu", name="H100", device_ids=("GPU-1::7",), share="slice", memory_mb=20480, compute=30
    )
    alloc = Allocation(allocated_resources=AllocatedResources(tasks={"t": AllocatedTaskResources(devices=(booked,))}))

    assert claimed(booked).ids == ("GPU-1",)
    assert claim_of(alloc, "t").devices[0].memory_mb == 20480
    assert claim_of(alloc, "other").devices == ()
    assert device_of("GPU-2") == "GPU-2"


def driver(isolation: str, **able: bool) -> FakeDriver:
    made = FakeDriver()
    made.capabilities = Capabilities(fs_isolation=isolation, **able)
    return made


NODES = Reservation(env={"X": "1"}, nodes=(DeviceNode(host_path="/dev/x"),))


def test_a_task_without_isolation_gets_variables_alone() -> None:
    assert reachable(NODES, driver("none")) == Reservation(env={"X": "1"})
    same = Mount(host_path="/run/x", task_path="/run/x")
    assert reachable(replace(NODES, mounts=(same,)), driver("none")) == Reservation(env={"X": "1"})
    with pytest.raises(DriverError, match="isolates no file system"):
        reachable(replace(NODES, mounts=(replace(same, task_path="/y"),)), driver("none"))


def test_a_driver_that_isolates_must_be_able_to_give_devices() -> None:
    assert reachable(NODES, driver("chroot", devices=True)) == NODES
    assert reachable(Reservation(env={"X": "1"}), driver("image")) == Reservation(env={"X": "1"})
    with pytest.raises(DriverError, match="cannot give devices"):
        reachable(NODES, driver("image"))


def test_devices_of_two_plugins_go_by_a_way_that_both_offer() -> None:
    one = Reservation(env={"A": "1"}, nodes=(DeviceNode(host_path="/dev/a"),), cdi_devices=("v/a=0",))
    two = Reservation(env={"B": "2"}, nodes=(DeviceNode(host_path="/dev/b"),))

    assert merged([one, two]) == Reservation(env={"A": "1", "B": "2"}, nodes=(*one.nodes, *two.nodes))
    assert merged([one, Reservation(env={"C": "3"})]).cdi_devices == ("v/a=0",)


def test_a_plugin_is_summed_up_in_a_line() -> None:
    two = (DeviceInstance(id="a"), DeviceInstance(id="b", is_healthy=False, reason="x"))
    group = DeviceGroup(vendor="v", type="t", name="H100", instances=two)

    assert summary(DeviceFingerprint(groups=(group,))) == (True, "2 x H100 (1 unhealthy)")
    assert summary(DeviceFingerprint(description="no driver", fix="load it")) == (False, "no driver; load it")
