"""What a recorded evaluation may hold: nulls, zero times, old forms of resources and blocks, tables of no interest."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.value import seconds
from yurt.testing.factories import number_id
from yurt.testing.rows.old_records import AT, AT_NS, ZERO, made_at, old_alloc, old_job, old_node, old_record
from yurt.testing.rows.recorded_evaluations import load, moment_of, run, snapshot_of

NODE = number_id(1, kind=1)


def test_a_file_of_records_is_read_packed_or_not(tmp_path: Path) -> None:
    lines = "\n".join([json.dumps(old_record()), "", json.dumps(old_record())])
    (tmp_path / "cases.jsonl").write_text(lines)
    (tmp_path / "cases.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    assert len(load(tmp_path / "cases.jsonl")) == len(load(tmp_path / "cases.jsonl.gz")) == 2
    assert load(tmp_path / "none") == []


def test_nulls_are_defaults_texts_of_others_stay_and_the_class_is_computed_anew() -> None:
    state = snapshot_of(old_record())
    (node,) = state.nodes.values()
    assert node.attributes == {"kernel.name": "linux", "built": AT} and node.meta == {} and node.events == ()
    assert node.computed_class not in ("", "v1:7") and node.drivers["exec"].update_time == 0
    (job,) = state.jobs.values()
    assert job.task_groups[0].tasks[0].config == {"started": AT} and job.task_groups[0].update is None


def test_resources_of_old_forms_are_counted() -> None:
    kept = {"CPU": 100, "MemoryMB": 10, "DiskMB": 5, "Networks": [{"ReservedPorts": [{"Label": "ssh", "Value": 22}]}]}
    offered = {"CPU": 1000, "MemoryMB": 500, "DiskMB": 90, "Networks": None}
    old = old_node(NodeResources=None, ReservedResources=None, Resources=offered, Reserved=kept)
    whole = old_alloc(Resources={"CPU": 700, "MemoryMB": 50, "DiskMB": 20}, TaskResources=None)
    by_task = {**whole, "TaskResources": {"web": {"CPU": 700, "MemoryMB": 50}}, "SharedResources": {"DiskMB": 20}}
    for alloc in (whole, by_task):
        record = old_record(nodes=[old], allocs=[alloc], jobs=[old_job(Count=2)])
        state = snapshot_of(record)
        (node,) = state.nodes.values()
        assert (node.node_resources.cpu.cpu_shares, node.node_resources.disk.disk_mb) == (1000, 90)
        assert node.reserved_resources.networks.reserved_host_ports == "22"
        (ended,) = run(record)["evals"]
        assert ended["FailedTGAllocs"]["web"].dimension_exhausted == {"cpu": 1}


def test_an_allocation_has_the_job_of_its_table_and_the_transitions_that_are_set() -> None:
    marked = old_alloc(
        DesiredTransition={"Migrate": None, "Reschedule": True},
        AllocStates=[{"Field": 0, "Value": "lost", "Time": AT}],
    )
    (alloc,) = snapshot_of(old_record(allocs=[marked])).allocs.values()
    assert alloc.job is not None and alloc.job.id == "web"
    assert alloc.desired_transition.reschedule and not alloc.desired_transition.migrate
    assert [(state.field, state.value, state.time) for state in alloc.alloc_states] == [("ClientStatus", "lost", AT_NS)]


def test_what_a_group_does_without_its_client_and_how_a_system_job_is_updated_stand_where_they_do_today() -> None:
    (job,) = snapshot_of(old_record(jobs=[old_job(StopAfterClientDisconnect=5)])).jobs.values()
    disconnect = job.task_groups[0].disconnect
    assert disconnect is not None and disconnect.stop_on_client_after == 5 and disconnect.replace
    rolling = {**old_job("system"), "Update": {"MaxParallel": 2, "Stagger": seconds(30)}}
    (job,) = snapshot_of(old_record(jobs=[rolling])).jobs.values()
    assert job.task_groups[0].update is not None and job.task_groups[0].update.max_parallel == 2


@pytest.mark.parametrize(
    ("changes", "now"),
    [
        ({"plans": [{"NodeAllocation": {NODE: [{"ID": "new", "CreateTime": AT_NS}]}}]}, AT_NS),
        ({"create_evals": [{"CreateTime": AT_NS, "WaitUntil": ZERO}]}, AT_NS),
        ({"create_evals": [{"CreateTime": 0, "WaitUntil": AT}]}, AT_NS - seconds(3)),
    ],
)
def test_the_moment_is_told_by_what_was_made(changes: dict[str, Any], now: int) -> None:
    record = {**old_record(jobs=[old_job(ReschedulePolicy={"Delay": seconds(3)})]), **changes}
    assert moment_of(record) == now


def test_the_moment_is_ten_seconds_after_the_last_end() -> None:
    ended = old_alloc(TaskStates={"web": {"State": "dead", "FinishedAt": AT}, "side": {"FinishedAt": ZERO}})
    record = old_record(allocs=[ended])
    assert moment_of(record) == AT_NS + seconds(10)
    (alloc,) = snapshot_of(record).allocs.values()
    assert alloc.task_states["web"].finished_at == alloc.modify_time == AT_NS


def test_what_is_looked_at_later_lay_ahead_of_the_evaluation() -> None:
    ended = old_alloc(ClientStatus="failed", TaskStates={"web": {"State": "dead", "FinishedAt": AT}})
    jobs = [old_job(ReschedulePolicy={"Delay": seconds(2)})]
    soon = {"create_evals": [{"CreateTime": 0, "WaitUntil": "2026-11-21T00:07:30.5Z"}]}
    late = {"create_evals": [{"CreateTime": 0, "WaitUntil": "2026-11-21T00:08:00.5Z"}]}
    assert moment_of({**old_record(jobs=jobs, allocs=[ended]), **soon}) == AT_NS + seconds(4)
    assert moment_of({**old_record(jobs=jobs, allocs=[ended]), **late}) == AT_NS + seconds(10)


def test_an_allocation_that_only_its_making_dates_failed_long_ago() -> None:
    failed = old_alloc(ClientStatus="failed", CreateTime=AT_NS, ModifyTime=0)
    policy = {"Attempts": 1, "Interval": seconds(900), "Delay": seconds(5), "DelayFunction": "constant"}
    record = old_record(nodes=[old_node(), old_node(2)], jobs=[old_job(ReschedulePolicy=policy)], allocs=[failed])
    (plan,) = run(made_at(record, AT_NS + seconds(1)))["plans"]
    (stopped,) = plan["NodeUpdate"][NODE]
    assert stopped["DesiredDescription"] == "alloc was rescheduled because it failed"


@pytest.mark.parametrize(
    ("attribute", "drivers", "placed"),
    [
        ("1", None, True),
        ("0", None, False),
        ("1", {"exec": {"Detected": True, "Healthy": False}}, False),
        ("0", {"exec": {"Detected": True, "Healthy": True}}, True),
    ],
)
def test_a_driver_that_only_an_attribute_tells_of_is_there(attribute: str, drivers: Any, placed: bool) -> None:
    attributes = {"kernel.name": "linux", "driver.exec": attribute, "driver.exec.version": "7"}
    answer = run(old_record(nodes=[old_node(Attributes=attributes, Drivers=drivers)]))
    assert bool(answer["plans"]) is placed


def test_the_scheduler_is_the_one_of_the_record_whatever_type_the_job_has() -> None:
    record = old_record(nodes=[old_node(), old_node(2)], jobs=[old_job()])
    (plan,) = run({**record, "scheduler": "*scheduler.SystemScheduler"})["plans"]
    assert len(plan["NodeAllocation"]) == 2


def test_an_empty_plan_is_submitted_only_for_its_annotations() -> None:
    ignored = old_record(nodes=[], jobs=[old_job(Count=0)])
    assert run(ignored)["plans"] == []
    assert len(run(old_record(nodes=[], jobs=[old_job(Count=0)], eval={"AnnotatePlan": True}))["plans"]) == 1


def test_what_an_evaluation_told_before_is_passed_over() -> None:
    told = {"DesiredTGUpdates": {"web": {"Place": 1}}, "PreemptedAllocs": [{"ID": "a", "JobID": "web"}]}
    before = {"ID": "before", "JobID": "web", "TriggeredBy": "job-register", "PlanAnnotations": told}
    record = old_record(evals=[before], eval={"PlanAnnotations": told})
    assert len(snapshot_of(record).evals) == len(run(record)["plans"]) == 1


def test_refused_plans_are_tried_again_and_what_they_would_place_is_queued() -> None:
    refused = {**old_record(jobs=[old_job(Count=2)]), "rejects_plans": True}
    answer = run(refused)
    (ended,) = answer["evals"]
    assert len(answer["plans"]) == 5
    assert (ended["Status"], ended["QueuedAllocations"]) == ("failed", {"web": 2})
    (blocked,) = answer["create_evals"]
    assert (blocked["TriggeredBy"], blocked["Type"]) == ("max-plan-attempts", "")


def test_the_kind_of_scheduler_says_what_a_purged_job_was() -> None:
    record = {**old_record(jobs=[], allocs=[old_alloc()]), "scheduler": "*scheduler.SystemScheduler"}
    (plan,) = run(record)["plans"]
    (stopped,) = plan["NodeUpdate"][NODE]
    assert (stopped["DesiredStatus"], stopped["ClientStatus"]) == ("stop", "running")


@pytest.mark.parametrize("asked", [{}, {"AccessMode": "multi-node-single-writer", "AttachmentMode": "file-system"}])
def test_a_csi_volume_offers_its_own_modes_and_those_that_a_request_leaves_open(asked: dict[str, str]) -> None:
    plugin = {"PluginID": "disk", "Healthy": True, "NodeInfo": {"ID": NODE, "MaxVolumes": 2}}
    own = {"Namespace": "default", "PluginID": "disk", "AccessMode": "multi-node-single-writer"}
    volumes = [{**own, "ID": f"data[{index}]", "AttachmentMode": "file-system", "ReadAllocs": {}} for index in (0, 1)]
    request = {"Type": "csi", "Name": "data", "Source": "data", "PerAlloc": True, **asked}
    tables: dict[str, Any] = {
        "nodes": [old_node(CSINodePlugins={"disk": plugin})],
        "jobs": [old_job(Count=3, Volumes={"data": request})],
    }
    answer = run(old_record(**tables, csi_volumes=volumes, csi_plugins=[{"ID": "disk"}]))
    (ended,) = answer["evals"]
    assert ended["QueuedAllocations"] == {"web": 1}
    assert ended["FailedTGAllocs"]["web"].constraint_filtered == {"missing CSI Volume data[2]": 1}
