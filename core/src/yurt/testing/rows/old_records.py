"""Complete records of evaluations in the old format, in which a test changes a few fields.

See `yurt.testing.rows.recorded_evaluations`. Names are those of the records, and nulls stand where a record has nulls.
"""

from __future__ import annotations

from typing import Any, Final

from yurt.sdk.value import seconds
from yurt.testing.factories import number_id

Data = dict[str, Any]
ZERO: Final = "0001-01-01T00:00:00Z"
AT: Final = "2026-11-21T00:07:24.5Z"
AT_NS: Final = 1_795_219_644_500_000_000
"""`AT` in nanoseconds: when an evaluation of these records runs."""
MIGRATE: Final[Data] = {"Migrate": True, "Reschedule": None, "ForceReschedule": None}
DRAIN: Final[Data] = {"Deadline": seconds(60), "IgnoreSystemJobs": False, "ForceDeadline": ZERO, "StartedAt": AT}


def old_node(number: int = 1, **changes: Any) -> Data:
    """A ready Linux node with the exec driver: 1000 MHz, 1000 MiB of memory and of disk, no network."""
    node = {
        "ID": number_id(number, kind=1), "Name": "one", "Datacenter": "dc1", "Status": "ready",
        "SchedulingEligibility": "eligible",
        "Attributes": {"kernel.name": "linux", "built": AT, "none": None}, "Meta": None, "Links": None,
        "NodeResources": {"Cpu": {"CpuShares": 1000}, "Memory": {"MemoryMB": 1000}, "Disk": {"DiskMB": 1000}},
        "Drivers": {"exec": {"Detected": True, "Healthy": True, "Attributes": None, "UpdateTime": ZERO}},
        "ComputedClass": "v1:7", "DrainStrategy": None, "Events": [{"Timestamp": ZERO, "Details": None}], "Unknown": 7,
    }  # fmt: skip
    return {**node, **changes}


def leaving(number: int = 1, **changes: Any) -> Data:
    """A node that is being drained."""
    return old_node(number, **{"DrainStrategy": DRAIN, "SchedulingEligibility": "ineligible", **changes})


def old_job(type: str = "service", **group: Any) -> Data:
    """A job with one group `web` of one task that asks for 300 MHz and 100 MiB; the changes apply to the group."""
    task = {"Name": "web", "Driver": "exec", "Config": {"started": AT}, "Resources": {"CPU": 300, "MemoryMB": 100}}
    web = {"Name": "web", "Count": 1, "Tasks": [task], "EphemeralDisk": {"SizeMB": 10}, "Update": None, **group}
    return {
        "ID": "web", "Name": "web", "Namespace": "default", "Type": type, "Priority": 50, "Datacenters": ["dc1"],
        "TaskGroups": [web], "Constraints": None, "Payload": None, "SubmitTime": 0, "CreateIndex": 1, "Version": 0,
        "Update": {"MaxParallel": 0, "Stagger": 0},
    }  # fmt: skip


def newer(job: Data, *, config: Data | None = None, **group: Any) -> Data:
    """The job's next version with this task config, which replaces allocations, and with changes to its group."""
    web = {**job["TaskGroups"][0], **group}
    if config is not None:
        web["Tasks"] = [{**task, "Config": config} for task in web["Tasks"]]
    return {**job, "TaskGroups": [web], "Version": job["Version"] + 1, "Status": "running"}


def old_alloc(index: int = 0, node: int = 1, **changes: Any) -> Data:
    """A running allocation of `old_job` on the node of that number, with the resources that the job asks for."""
    alloc = {
        "ID": number_id(index + 1, kind=2), "Name": f"web.web[{index}]", "Namespace": "default", "JobID": "web",
        "TaskGroup": "web", "Job": None, "NodeID": number_id(node, kind=1), "DesiredStatus": "run",
        "ClientStatus": "running", "AllocatedResources": None, "CreateTime": 0, "AllocStates": None,
        "DesiredTransition": {"Migrate": None, "Reschedule": None, "ForceReschedule": None},
        "TaskResources": {"web": {"CPU": 300, "MemoryMB": 100}}, "SharedResources": {"DiskMB": 10},
    }  # fmt: skip
    return {**alloc, **changes}


def old_record(*, eval: Data | None = None, **tables: Any) -> Data:
    """The evaluation of `old_job`'s registration on one node; the changes replace tables of the state."""
    evaluation = {"ID": "e", "Namespace": "default", "JobID": "web", "TriggeredBy": "job-register", "WaitUntil": ZERO}
    return {
        "test": "one", "scheduler": "*scheduler.GenericScheduler", "rejects_plans": False,
        "eval": {"Type": "", "Status": "pending", "Priority": 50, **evaluation, **(eval or {})},
        "state": {
            "tables": {"nodes": [old_node()], "jobs": [old_job()], "index": [{"Key": "x"}], **tables}, "config": None,
        },
        "plans": None, "evals": None, "create_evals": None, "reblock_evals": None, "error": "<nil>",
    }  # fmt: skip


def made_at(record: Data, at: int = AT_NS) -> Data:
    """The record with a placement created at `at`, which dates the evaluation."""
    return {**record, "plans": [{"NodeAllocation": {"n": [{"ID": "new", "CreateTime": at}]}}]}
