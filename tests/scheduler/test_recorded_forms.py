"""What a recorded evaluation may hold: nulls, zero times, old forms of resources and blocks, tables of no interest."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.value import seconds
from yurt.testing.recorded import load, moment_of, run, snapshot_of

ZERO = "0001-01-01T00:00:00Z"
AT = "2026-11-21T00:07:24.5Z"
AT_NS = 1_795_219_644_500_000_000
NODE_ID = "00000001-0000-4000-8000-000000000001"
ALLOC_ID = "00000002-0000-4000-8000-000000000001"


def _node(**changes: Any) -> dict[str, Any]:
    node = {
        "ID": NODE_ID, "Name": "one", "Datacenter": "dc1", "Status": "ready", "SchedulingEligibility": "eligible",
        "Attributes": {"kernel.name": "linux", "built": AT, "none": None}, "Meta": None, "Links": None,
        "NodeResources": {"Cpu": {"CpuShares": 1000}, "Memory": {"MemoryMB": 1000}, "Disk": {"DiskMB": 1000}},
        "Drivers": {"exec": {"Detected": True, "Healthy": True, "Attributes": None, "UpdateTime": ZERO}},
        "ComputedClass": "v1:7", "DrainStrategy": None, "Events": [{"Timestamp": ZERO, "Details": None}], "Unknown": 7,
    }  # fmt: skip
    return {**node, **changes}


def _job(type: str = "service", **group: Any) -> dict[str, Any]:
    task = {"Name": "web", "Driver": "exec", "Config": {"started": AT}, "Resources": {"CPU": 300, "MemoryMB": 100}}
    web = {"Name": "web", "Count": 1, "Tasks": [task], "EphemeralDisk": {"SizeMB": 10}, "Update": None, **group}
    return {
        "ID": "web", "Name": "web", "Namespace": "default", "Type": type, "Priority": 50, "Datacenters": ["dc1"],
        "TaskGroups": [web], "Constraints": None, "Payload": None, "SubmitTime": 0, "CreateIndex": 1, "Version": 0,
        "Update": {"MaxParallel": 2, "Stagger": 30_000_000_000},
    }  # fmt: skip


def _alloc(**changes: Any) -> dict[str, Any]:
    alloc = {
        "ID": ALLOC_ID, "Name": "web.web[0]", "Namespace": "default", "JobID": "web", "TaskGroup": "web", "Job": None,
        "NodeID": NODE_ID, "DesiredStatus": "run", "ClientStatus": "running", "AllocatedResources": None,
        "DesiredTransition": {"Migrate": None, "Reschedule": True}, "CreateTime": 0, "AllocStates": None,
    }  # fmt: skip
    return {**alloc, **changes}


def _record(*, eval: dict[str, Any] | None = None, **tables: Any) -> dict[str, Any]:
    evaluation = {"ID": "e", "Namespace": "default", "JobID": "web", "TriggeredBy": "job-register", "WaitUntil": ZERO}
    return {
        "test": "one", "scheduler": "*scheduler.GenericScheduler", "rejects_plans": False,
        "eval": {"Type": "", "Status": "pending", "Priority": 50, **evaluation, **(eval or {})},
        "state": {"tables": {"nodes": [_node()], "jobs": [_job()], "index": [{"Key": "x"}], **tables}, "config": None},
        "plans": None, "evals": None, "create_evals": None, "reblock_evals": None, "error": "<nil>",
    }  # fmt: skip


def test_a_file_of_records_is_read_packed_or_not(tmp_path: Path) -> None:
    lines = "\n".join([json.dumps(_record()), "", json.dumps(_record())])
    (tmp_path / "cases.jsonl").write_text(lines)
    (tmp_path / "cases.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    assert len(load(tmp_path / "cases.jsonl")) == len(load(tmp_path / "cases.jsonl.gz")) == 2
    assert load(tmp_path / "none") == []


def test_nulls_are_defaults_texts_of_others_stay_and_the_class_is_computed_anew() -> None:
    state = snapshot_of(_record())
    (node,) = state.nodes.values()
    assert node.attributes == {"kernel.name": "linux", "built": AT} and node.meta == {} and node.events == ()
    assert node.computed_class not in ("", "v1:7") and node.drivers["exec"].update_time == 0
    (job,) = state.jobs.values()
    assert job.task_groups[0].tasks[0].config == {"started": AT} and job.task_groups[0].update is None


def test_resources_of_old_forms_are_counted() -> None:
    kept = {"CPU": 100, "MemoryMB": 10, "DiskMB": 5, "Networks": [{"ReservedPorts": [{"Label": "ssh", "Value": 22}]}]}
    offered = {"CPU": 1000, "MemoryMB": 500, "DiskMB": 90, "Networks": None}
    old = _node(NodeResources=None, ReservedResources=None, Resources=offered, Reserved=kept)
    whole = _alloc(Resources={"CPU": 700, "MemoryMB": 50, "DiskMB": 20}, TaskResources=None)
    by_task = {**whole, "TaskResources": {"web": {"CPU": 700, "MemoryMB": 50}}, "SharedResources": {"DiskMB": 20}}
    for alloc in (whole, by_task):
        record = _record(nodes=[old], allocs=[alloc], jobs=[_job(Count=2)])
        state = snapshot_of(record)
        (node,) = state.nodes.values()
        assert (node.node_resources.cpu.cpu_shares, node.node_resources.disk.disk_mb) == (1000, 90)
        assert node.reserved_resources.networks.reserved_host_ports == "22"
        (ended,) = run(record)["evals"]
        assert ended["FailedTGAllocs"]["web"].dimension_exhausted == {"cpu": 1}


def test_an_allocation_has_the_job_of_its_table_and_the_transitions_that_are_set() -> None:
    (alloc,) = snapshot_of(
        _record(allocs=[_alloc(AllocStates=[{"Field": 0, "Value": "lost", "Time": AT}])])
    ).allocs.values()
    assert alloc.job is not None and alloc.job.id == "web"
    assert alloc.desired_transition.reschedule and not alloc.desired_transition.migrate
    assert [(state.field, state.value, state.time) for state in alloc.alloc_states] == [("ClientStatus", "lost", AT_NS)]


def test_what_a_group_does_without_its_client_and_how_a_system_job_is_updated_stand_where_they_do_today() -> None:
    (job,) = snapshot_of(_record(jobs=[_job(StopAfterClientDisconnect=5)])).jobs.values()
    disconnect = job.task_groups[0].disconnect
    assert disconnect is not None and disconnect.stop_on_client_after == 5 and disconnect.replace
    (job,) = snapshot_of(_record(jobs=[_job("system")])).jobs.values()
    assert job.task_groups[0].update is not None and job.task_groups[0].update.max_parallel == 2


@pytest.mark.parametrize(
    ("changes", "now"),
    [
        ({"plans": [{"NodeAllocation": {NODE_ID: [{"ID": "new", "CreateTime": AT_NS}]}}]}, AT_NS),
        ({"create_evals": [{"CreateTime": AT_NS, "WaitUntil": ZERO}]}, AT_NS),
        ({"create_evals": [{"CreateTime": 0, "WaitUntil": AT}]}, AT_NS - seconds(3)),
    ],
)
def test_the_moment_is_told_by_what_was_made(changes: dict[str, Any], now: int) -> None:
    record = {**_record(jobs=[_job(ReschedulePolicy={"Delay": seconds(3)})]), **changes}
    assert moment_of(record) == now


def test_the_moment_is_ten_seconds_after_the_last_end() -> None:
    ended = _alloc(TaskStates={"web": {"State": "dead", "FinishedAt": AT}, "side": {"FinishedAt": ZERO}})
    record = _record(allocs=[ended])
    assert moment_of(record) == AT_NS + seconds(10)
    (alloc,) = snapshot_of(record).allocs.values()
    assert alloc.task_states["web"].finished_at == alloc.modify_time == AT_NS


def test_an_empty_plan_is_submitted_only_for_its_annotations() -> None:
    ignored = _record(nodes=[], jobs=[_job(Count=0)])
    assert run(ignored)["plans"] == []
    assert len(run(_record(nodes=[], jobs=[_job(Count=0)], eval={"AnnotatePlan": True}))["plans"]) == 1


def test_refused_plans_are_tried_again_and_what_they_would_place_is_queued() -> None:
    refused = {**_record(jobs=[_job(Count=2)]), "rejects_plans": True}
    answer = run(refused)
    (ended,) = answer["evals"]
    assert len(answer["plans"]) == 5
    assert (ended["Status"], ended["QueuedAllocations"]) == ("failed", {"web": 2})
    (blocked,) = answer["create_evals"]
    assert (blocked["TriggeredBy"], blocked["Type"]) == ("max-plan-attempts", "")


def test_the_kind_of_scheduler_says_what_a_purged_job_was() -> None:
    record = {**_record(jobs=[], allocs=[_alloc()]), "scheduler": "*scheduler.SystemScheduler"}
    (plan,) = run(record)["plans"]
    (stopped,) = plan["NodeUpdate"][NODE_ID]
    assert (stopped["DesiredStatus"], stopped["ClientStatus"]) == ("stop", "running")


@pytest.mark.parametrize("asked", [{}, {"AccessMode": "multi-node-single-writer", "AttachmentMode": "file-system"}])
def test_a_csi_volume_offers_its_own_modes_and_those_that_a_request_leaves_open(asked: dict[str, str]) -> None:
    plugin = {"PluginID": "disk", "Healthy": True, "NodeInfo": {"ID": NODE_ID, "MaxVolumes": 2}}
    own = {"Namespace": "default", "PluginID": "disk", "AccessMode": "multi-node-single-writer"}
    volumes = [{**own, "ID": f"data[{index}]", "AttachmentMode": "file-system", "ReadAllocs": {}} for index in (0, 1)]
    request = {"Type": "csi", "Name": "data", "Source": "data", "PerAlloc": True, **asked}
    tables = {"nodes": [_node(CSINodePlugins={"disk": plugin})], "jobs": [_job(Count=3, Volumes={"data": request})]}
    answer = run(_record(**tables, csi_volumes=volumes, csi_plugins=[{"ID": "disk"}]))
    (ended,) = answer["evals"]
    assert ended["QueuedAllocations"] == {"web": 1}
    assert ended["FailedTGAllocs"]["web"].constraint_filtered == {"missing CSI Volume data[2]": 1}
