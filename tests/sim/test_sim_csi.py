"""CSI volumes in simulated clusters: the checks see what they are for, and clusters with a CSI plugin are clean."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from yurt.client.csi.messages import message_class, methods
from yurt.sdk.driver import TaskHandle
from yurt.sdk.value import replace
from yurt.state import Change, Snapshot, Tables
from yurt.structs.alloc import Allocation
from yurt.structs.commands import AnyCommand, DeleteVolumes, PutHostVolume, UpsertVolumes
from yurt.structs.volumes.csi import CSIVolume
from yurt.structs.volumes.host import HostVolume
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories
from yurt.testing.sim.csi.checks import (
    problem_of_csi,
    problems_at_rest,
    second_publication,
    unmounted_below,
    without_volume,
)
from yurt.testing.sim.csi.plugin import CsiFaults, CsiNodes, Mount
from yurt.testing.sim.driver import SimHost, SimTaskRun
from yurt.testing.sim.loop import SimLoop, run_on
from yurt.testing.sim.plan import draw
from yurt.testing.sim.run import Report, report_text, run_plan

WRITER, WRITERS = "single-node-writer", "multi-node-multi-writer"
VOLUME = CSIVolume(id="data", external_id="at-data", plugin_id="storage")
NODE = factories.node()
TARGET = "/state/csi/p/storage/allocs/a/0123"
REGISTER = UpsertVolumes(volumes=(VOLUME,))
DELETE = DeleteVolumes(keys=(("default", "data"),))


def _alloc(name: str, **changes: Any) -> Allocation:
    request = VolumeRequest(name="data", type="csi", source="data", access_mode=changes.pop("mode", WRITER))
    group = factories.group(volumes={"data": replace(request, read_only=changes.pop("read_only", False))})
    return factories.alloc(factories.job(name, task_groups=(group,)), on=NODE, id=name, **changes)


def _state(*allocs: Allocation, has_volume: bool = True) -> Snapshot:
    edit = Snapshot.empty().edit(1)
    edit.put(Tables.nodes, NODE.id, NODE)
    if has_volume:
        edit.put(Tables.csi_volumes, ("default", "data"), VOLUME)
    for alloc in allocs:
        edit.put(Tables.allocs, alloc.id, alloc)
    return edit.commit()


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ({}, {}, "C2"),
        ({"desired_status": "stop"}, {}, "C2"),
        ({"mode": WRITERS}, {}, "C2"),
        ({"mode": WRITERS}, {"mode": WRITERS}, ""),
        ({"read_only": True}, {}, ""),
        ({"client_status": "complete"}, {}, ""),
    ],
)
def test_a_single_writer_is_placed_alone(first: dict[str, Any], second: dict[str, Any], problem: str) -> None:
    there, new = _alloc("a", **first), _alloc("b", **second)
    change = Change("allocs", new.id, None, new)
    assert problem_of_csi(_state(there), _state(there, new), REGISTER, (change,))[:2] == problem


def test_a_placement_needs_a_registered_volume() -> None:
    new = _alloc("a")
    before, state = _state(has_volume=False), _state(new, has_volume=False)
    assert problem_of_csi(before, state, REGISTER, (Change("allocs", "a", None, new),)).startswith("C3")


@pytest.mark.parametrize(
    ("command", "alloc", "problem"),
    [
        (DELETE, _alloc("a"), "D9"),
        (DELETE, _alloc("a", client_status="complete"), ""),
        (PutHostVolume(volume=HostVolume(id="v")), _alloc("a", client_status="complete"), "D9"),
    ],
    ids=["used", "unused", "by another command"],
)
def test_a_volume_is_deleted_by_request_while_nobody_uses_it(
    command: AnyCommand, alloc: Allocation, problem: str
) -> None:
    gone = (Change("csi_volumes", ("default", "data"), VOLUME, None),)
    assert problem_of_csi(_state(alloc), _state(alloc, has_volume=False), command, gone)[:2] == problem


def _mount(alloc_id: str, mode: str = WRITER, *, is_writer: bool = True) -> Mount:
    return Mount("at-data", alloc_id, mode, is_writer)


@pytest.mark.parametrize(
    ("other", "status", "problem"),
    [
        (_mount("a"), "running", "C2"),
        (_mount("a"), "complete", "C2"),
        (_mount("a"), "lost", ""),
        (_mount("a", is_writer=False), "running", ""),
        (_mount("b"), "running", ""),
    ],
    ids=["a writer", "one that is reported as ended", "one that is lost", "a reader", "its own"],
)
def test_a_single_writer_is_mounted_alone(other: Mount, status: str, problem: str) -> None:
    loop = SimLoop(1)
    nodes = CsiNodes(loop, 1)
    loop.close()
    one, two = nodes.add("node1"), nodes.add("node2")
    two.mounts[TARGET] = other
    state = _state(_alloc("a", client_status=status), _alloc("b"))
    assert second_publication(state, nodes, one, _mount("b"))[:2] == problem


def _host() -> tuple[SimHost, SimTaskRun, CsiNodes]:
    loop = SimLoop(1)
    nodes, host = CsiNodes(loop, 1), SimHost(loop, "10.0.1.1", 1)
    loop.close()
    host.csi = nodes.add("node1")
    run = SimTaskRun("a", "main", "default", "job", TaskHandle(driver="sim", task_id="a", pid=1), 0.0, (TARGET,))
    host.runs["a"] = run
    return host, run, nodes


def test_a_task_has_its_volume_from_its_start_to_its_end() -> None:
    host, run, nodes = _host()
    assert without_volume(host, run).startswith("C3 a of job")
    nodes.nodes[0].mounts[TARGET] = _mount("a")
    assert without_volume(host, run) == ""
    assert unmounted_below(host, TARGET).startswith("D9")
    assert unmounted_below(host, "/other") == ""


def test_at_rest_mounts_and_claims_are_those_of_living_allocations_and_nobody_waits_for_nothing() -> None:
    _, _, nodes = _host()
    node = nodes.nodes[0]
    node.mounts[TARGET], node.staged["/staging"] = _mount("a"), "at-data"
    running = _state(_alloc("a", client_status="running"))
    assert problems_at_rest(running, nodes, [NODE.id]) == []
    ended = _state(_alloc("a", client_status="complete"))
    assert problems_at_rest(ended, nodes, [NODE.id]) == ["at-data is mounted on node1 for a, which has ended"]
    node.mounts.clear()
    assert problems_at_rest(ended, nodes, [NODE.id]) == ["at-data is staged on node1 for no allocation"]
    node.staged.clear()
    assert problems_at_rest(_state(_alloc("a")), nodes, [NODE.id]) == ["a of a waits for data, which nobody else uses"]


def test_a_failed_call_may_have_mounted_the_volume_and_goes_on_without_its_caller(tmp_path: Path) -> None:
    loop = SimLoop(1)
    nodes = CsiNodes(loop, 1)
    node = nodes.add("node1")
    node.stages, node.faults = False, CsiFaults(fails=1.0)
    node.serve("unix:///volumes/csi.sock", {"/volumes": str(tmp_path)}, lambda: True)
    method = methods("Node")["NodePublishVolume"]
    mode = message_class("VolumeCapability.AccessMode")
    capability = message_class("VolumeCapability")(access_mode=mode(mode=mode.Mode.Value("SINGLE_NODE_WRITER")))
    publish = method.request(volume_id="at-data", target_path="/volumes/allocs/a/v", volume_capability=capability)

    async def fails_until_mounted() -> int:
        for number in range(1, 30):
            with pytest.raises(grpc.aio.AioRpcError):
                await nodes.ask(str(tmp_path / "csi.sock"), method.path, publish, 10.0)
            if node.mounts:
                return number
        return 0

    assert run_on(loop, fails_until_mounted())
    assert node.mounts == {str(tmp_path / "allocs/a/v"): _mount("a")}


FEATURES = ("service", "batch", "update", "stop", "purge", "alloc-stop", "drain", *("csi",) * 3)
FAULTS = ("kill-client", "power-client", "csi-fails")
SIZES: dict[str, Any] = {"servers": 3, "clients": 4, "users": 3, "active_s": 30.0, "user_pause_s": 0.5}
PLAN = draw(2, **SIZES, features=FEATURES, faults=FAULTS, fault_pause_s=4.0)
"""Without the claims of purged jobs it failed by C2."""


@pytest.fixture(scope="module")
def report() -> Report:
    return run_plan(PLAN)


@pytest.mark.timeout(300)
def test_a_cluster_with_csi_volumes_is_clean(report: Report) -> None:
    assert not report.problem, report_text(report)
    assert report.coverage["command UpsertVolumes"] > 4 and report.coverage["command DeleteVolumes"]
    assert sum(line.split()[2] == "mount" for line in report.transcript) > 4


@pytest.mark.timeout(300)
def test_its_digest_is_the_same_in_another_process(report: Report) -> None:
    program = (
        "import sys, msgspec\n"
        "from yurt.testing.sim.plan import Plan\n"
        "from yurt.testing.sim.run import run_plan\n"
        "print(run_plan(msgspec.json.decode(sys.argv[1], type=Plan)).digest)\n"
    )
    command = [sys.executable, "-c", program, msgspec.json.encode(PLAN).decode()]
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == report.digest
