"""Host volumes in simulated clusters: the checks see what they are for, and clusters with volumes are clean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.driver import TaskHandle
from yurt.sdk.value import replace
from yurt.state import Change, Snapshot, Tables
from yurt.structs.alloc import Allocation
from yurt.structs.node import HostVolumeInfo
from yurt.structs.volumes.host import HostVolume, HostVolumeCapability, TaskGroupHostVolumeClaim
from yurt.structs.volumes.request import VolumeRequest
from yurt.testing import factories
from yurt.testing.sim.driver import SimHost, SimTaskRun
from yurt.testing.sim.loop import SimLoop
from yurt.testing.sim.plan import draw
from yurt.testing.sim.run import Report, report_text, run_plan
from yurt.testing.sim.volumes.checks import missing_mount, problem_of_volumes, second_writer

SINGLE, MULTI = "single-node-single-writer", "single-node-multi-writer"
NODE = replace(factories.node(), host_volumes={"data": HostVolumeInfo(path="/data", id="v")})


def _volume(**changes: Any) -> HostVolume:
    offered = tuple(HostVolumeCapability(access_mode=mode, attachment_mode="file-system") for mode in (SINGLE, MULTI))
    known = {"id": "v", "name": "data", "node_id": NODE.id, "host_path": "/data", "state": "ready"}
    return HostVolume(**{**known, "requested_capabilities": offered, **changes})


def _alloc(name: str, **changes: Any) -> Allocation:
    asked = VolumeRequest(name="data", type="host", source="data", access_mode=changes.pop("mode", MULTI))
    group = factories.group(volumes={"data": replace(asked, read_only=changes.pop("read_only", False))})
    return factories.alloc(factories.job(name, task_groups=(group,)), on=NODE, id=name, **changes)


def _state(volume: HostVolume | None, *allocs: Allocation) -> Snapshot:
    edit = Snapshot.empty().edit(1)
    edit.put(Tables.nodes, NODE.id, NODE)
    if volume is not None:
        edit.put(Tables.host_volumes, volume.id, volume)
    for alloc in allocs:
        edit.put(Tables.allocs, alloc.id, alloc)
    return edit.commit()


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ({"mode": SINGLE}, {}, "C2"),
        ({}, {"mode": SINGLE}, "C2"),
        ({}, {}, ""),
        ({"mode": SINGLE, "desired_status": "stop"}, {"mode": SINGLE}, ""),
        ({"mode": SINGLE, "client_status": "failed"}, {"mode": SINGLE}, ""),
        ({"mode": SINGLE}, {"mode": "", "read_only": True}, ""),
    ],
)
def test_a_single_writer_is_alone(first: dict[str, Any], second: dict[str, Any], problem: str) -> None:
    there, new = _alloc("a", **first), _alloc("b", **second)
    before, state = _state(_volume(), there), _state(_volume(), there, new)
    change = Change("allocs", new.id, None, new)
    assert problem_of_volumes(before, state, (change,))[:2] == problem


@pytest.mark.parametrize("changes", [{"state": "unavailable"}, {"namespace": "ops"}])
def test_a_placement_needs_a_ready_volume_of_its_namespace(changes: dict[str, Any]) -> None:
    new = _alloc("a")
    before, state = _state(_volume(**changes)), _state(_volume(**changes), new)
    assert problem_of_volumes(before, state, (Change("allocs", new.id, None, new),)).startswith("C3")


def test_a_volume_that_is_used_or_claimed_is_not_deleted() -> None:
    gone = (Change("host_volumes", "v", _volume(), None),)
    user, ended = _alloc("a"), _alloc("a", client_status="complete")
    assert problem_of_volumes(_state(_volume(), user), _state(None, user), gone).startswith("D9")
    assert problem_of_volumes(_state(_volume(), ended), _state(None, ended), gone) == ""
    edit = _state(None).edit(2)
    claim = TaskGroupHostVolumeClaim(
        id="c", namespace="default", job_id="a", task_group_name="web", alloc_id="a", alloc_name="a.web[0]",
        volume_id="v", volume_name="data",
    )  # fmt: skip
    edit.put(Tables.host_volume_claims, "c", claim)
    assert problem_of_volumes(_state(_volume()), edit.commit(), gone).startswith("D9")


def _run(name: str) -> SimTaskRun:
    handle = TaskHandle(driver="sim", task_id=name, pid=1)
    return SimTaskRun(name, "main", "default", "job", handle, 0.0, mounted=("/data",), written=("/data",))


def test_hosts_show_two_writers_and_deleted_folders() -> None:
    loop = SimLoop(1)
    host = SimHost(loop, "10.0.1.1", 1)
    loop.close()
    host.runs = {name: _run(name) for name in ("a", "b")}
    state = _state(_volume(), _alloc("a"), _alloc("b", mode=SINGLE))
    assert second_writer(state, host, host.runs["a"]).startswith("C2")
    ending = _state(_volume(), _alloc("a"), _alloc("b", mode=SINGLE, desired_status="stop"))
    assert second_writer(ending, host, host.runs["a"]).startswith("C2")
    assert second_writer(ending, host, host.runs["b"]) == ""  # it started before it was asked to stop
    assert missing_mount(state, [host], exists=lambda _: False).startswith("D9 a of")
    assert missing_mount(state, [host], exists=lambda _: True) == ""


FEATURES = ("service", "batch", "system", "update", "stop", "alloc-stop", *("volumes",) * 3)


SIZES: dict[str, Any] = {"servers": 3, "clients": 3, "users": 3, "active_s": 20.0, "user_pause_s": 1.0}
PLAN = draw(10, **SIZES, features=FEATURES, faults=("resign", "cut-server", "kill-client"), schedulers=2)


@pytest.fixture(scope="module")
def report() -> Report:
    return run_plan(PLAN)


@pytest.mark.timeout(300)
def test_a_cluster_with_volumes_is_clean(report: Report) -> None:
    assert not report.problem, report_text(report)
    assert report.coverage["command PutHostVolume"] > 4


@pytest.mark.timeout(300)
def test_the_folder_of_a_run_does_not_change_its_digest(
    report: Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.testing.sim.run.MEMORY", tmp_path)
    assert run_plan(PLAN).digest == report.digest
