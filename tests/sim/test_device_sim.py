"""`yurt driver sim` with device plugins: one that is right is clean, and mistakes of a first try are found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from yurt.sdk.device import ClaimedDevices, DeviceClaim, Reservation
from yurt.structs.node import Node, NodeDevice, NodeDeviceResource, NodeResources
from yurt.testing.sim.foreign.command import faults_of, load, reports
from yurt.testing.sim.foreign.plugins import Foreign
from yurt.testing.sim.hardware import GONE, Hardware
from yurt.testing.sim.run import Report


def run(monkeypatch: pytest.MonkeyPatch, name: str, *, seed: int, seconds: float, faults: tuple[str, ...]) -> Report:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    (report,) = reports(load(f"simulated_devices:{name}"), range(seed, seed + 1), active_s=seconds, faults=faults)
    return report


@pytest.mark.timeout(300)
def test_a_device_plugin_that_is_right_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(monkeypatch, "RIGHT", seed=1, seconds=20.0, faults=())
    assert not report.problem
    assert report.counts["start"] > 3 and report.counts["device-breaks"]


@pytest.mark.timeout(300)
def test_a_plugin_that_looks_for_devices_once_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(monkeypatch, "READ_ONCE", seed=1, seconds=5.0, faults=("device-breaks",))
    assert report.problem.startswith("P3 ")


@pytest.mark.timeout(300)
def test_a_plugin_that_chooses_devices_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    report = run(monkeypatch, "BY_COUNT", seed=2, seconds=5.0, faults=("device-breaks",))
    assert report.problem.startswith("P1 ")


def hardware() -> tuple[Hardware, list[str]]:
    found: list[str] = []
    return Hardware("node1", found.append), found


def claim(alloc_id: str, *ids: str) -> DeviceClaim:
    devices = ClaimedDevices(vendor="acme", type="board", name="b1", ids=ids)
    return DeviceClaim(alloc_id=alloc_id, task_name="task", devices=(devices,))


def test_one_device_for_two_tasks_that_run_is_told() -> None:
    made, found = hardware()
    for alloc_id in ("one", "other"):
        made.reserved(claim(alloc_id, "dev-1"), Reservation(), Reservation(), None)
    made.started(("other", "task"), [("one", "task"), ("other", "task")])
    assert found == ["C2 node1: ['dev-1'] are held by two tasks that run: ('other', 'task') and ('one', 'task')"]


def test_a_reservation_of_another_device_is_told() -> None:
    made, found = hardware()
    made.reserved(claim("one", "dev-1"), Reservation(), Reservation(), ["dev-0"])
    assert found == ["P2 node1: the reservation for ('dev-1',) gives ('dev-0',)"]


def test_health_that_the_servers_do_not_know_is_told_and_holders_that_the_plugin_does_not_know() -> None:
    made, _ = hardware()
    made.set_state("dev-1", GONE)
    made.reserved(claim("one", "dev-0"), Reservation(), Reservation(), None)
    known = tuple(NodeDevice(id=each, healthy=True) for each in ("dev-0", "dev-1", "dev-2"))
    node = Node(id="n", node_resources=NodeResources(devices=(NodeDeviceResource(instances=known),)))
    assert made.problems(node, [("one", "task")]) == [
        "P3 node1: dev-1 does not work, and the servers know it as healthy",
        "P4 node1: the plugin got no report that [('one', 'task')] hold devices",
    ]


def test_faults_of_the_driver_are_none_of_a_device_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parent), *sys.path])
    given = load("simulated_devices:RIGHT")
    assert "device-breaks" in faults_of(given, ()) and "driver-fails" not in faults_of(given, ())
    assert "device-breaks" not in faults_of(Foreign(), ())
