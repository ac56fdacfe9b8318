"""The short forms that lists answer with: job, allocation and node stubs, as builtins in the shape of the API."""

from __future__ import annotations

import operator
from typing import Any

from yurt.api.encode import struct_converter, to_wire
from yurt.sdk.value import replace
from yurt.structs.alloc import Allocation, AllocDeploymentStatus, RescheduleTracker, TaskState
from yurt.structs.job import Job
from yurt.structs.node import DriverInfo, Node
from yurt.structs.summary import JobSummary

_ALLOC_KEYS = (
    "ClientDescription", "ClientStatus", "CreateIndex", "CreateTime", "DesiredDescription", "DesiredStatus", "EvalID",
    "FollowupEvalID", "ID", "JobID", "ModifyIndex", "ModifyTime", "Name", "Namespace", "NextAllocation", "NodeID",
    "NodeName", "PreemptedByAllocation", "TaskGroup",
)  # fmt: skip
_alloc_fields = operator.attrgetter(
    "client_description", "client_status", "create_index", "create_time", "desired_description", "desired_status",
    "eval_id", "followup_eval_id", "id", "job_id", "modify_index", "modify_time", "name", "namespace",
    "next_allocation",
    "node_id", "node_name", "preempted_by_allocation", "task_group",
)  # fmt: skip


def job_stub(job: Job, summary: JobSummary | None, meta: bool = False) -> dict[str, Any]:
    """A job in a list."""
    return {
        "CreateIndex": job.create_index,
        "Datacenters": list(job.datacenters) or None,
        "ID": job.id,
        "JobModifyIndex": job.job_modify_index,
        "JobSummary": None if summary is None else to_wire(summary),
        "Meta": dict(job.meta) if meta and job.meta else None,
        "ModifyIndex": job.modify_index,
        "Multiregion": None if job.multiregion is None else to_wire(job.multiregion),
        "Name": job.name,
        "Namespace": job.namespace,
        "NodePool": job.node_pool,
        "ParameterizedJob": job.parameterized_job is not None and not job.dispatched,
        "ParentID": job.parent_id,
        "Periodic": job.periodic is not None,
        "Priority": job.priority,
        "Status": job.status,
        "StatusDescription": job.status_description,
        "Stop": job.stop,
        "SubmitTime": job.submit_time,
        "Type": job.type,
        "Version": job.version,
    }


def alloc_stub(alloc: Allocation, task_states: bool = True, resources: bool = False) -> dict[str, Any]:
    """An allocation in a list; task states and resources only when they are asked for."""
    wire = dict(zip(_ALLOC_KEYS, _alloc_fields(alloc), strict=True))
    job, status, tracker = alloc.job, alloc.deployment_status, alloc.reschedule_tracker
    wire["AllocatedResources"] = to_wire(alloc.allocated_resources) if resources else None
    wire["DeploymentStatus"] = None if status is None else struct_converter(AllocDeploymentStatus)(status)
    wire["JobType"] = job.type if job is not None else ""
    wire["JobVersion"] = job.version if job is not None else 0
    wire["PreemptedAllocations"] = alloc.preempted_allocations or None
    wire["RescheduleTracker"] = None if tracker is None else struct_converter(RescheduleTracker)(tracker)
    wire["TaskStates"] = None
    if task_states and alloc.task_states:
        convert = struct_converter(TaskState)
        wire["TaskStates"] = {name: convert(state) for name, state in alloc.task_states.items()}
    return wire


def node_stub(node: Node, resources: bool = False, os: bool = False) -> dict[str, Any]:
    """A node in a list; resources and operating system only when they are asked for."""
    convert = struct_converter(DriverInfo)
    wire: dict[str, Any] = {
        "Address": node.http_addr.rpartition(":")[0],
        "Attributes": {"os.name": node.attributes.get("os.name", "")} if os else None,
        "CreateIndex": node.create_index,
        "Datacenter": node.datacenter,
        "Drain": node.drain_strategy is not None,
        "Drivers": {name: convert(info) for name, info in node.drivers.items()},
        "ID": node.id,
        "LastDrain": None if node.last_drain is None else to_wire(node.last_drain),
        "ModifyIndex": node.modify_index,
        "Name": node.name,
        "NodeClass": node.node_class,
        "NodePool": node.node_pool,
        "NodeResources": to_wire(node.node_resources) if resources else None,
        "ReservedResources": to_wire(node.reserved_resources) if resources else None,
        "SchedulingEligibility": node.scheduling_eligibility,
        "Status": node.status,
        "StatusDescription": node.status_description,
        "Version": node.attributes.get("nomad.version", ""),
    }
    return wire


def node_wire(node: Node) -> dict[str, Any]:
    """A whole node: without its secret, with the `Drain` flag that older clients read."""
    wire: dict[str, Any] = to_wire(node)
    wire["SecretID"] = ""
    wire["Drain"] = node.drain_strategy is not None
    return wire


class AllocWriter:
    """Writes whole allocations; a job that several of them share is worked out once."""

    def __init__(self) -> None:
        self._jobs: dict[int, tuple[Job, dict[str, Any]]] = {}

    def __call__(self, alloc: Allocation) -> dict[str, Any]:
        """The allocation with its job, and the texts of its task events filled in."""
        wire: dict[str, Any] = to_wire(replace(alloc, job=None))
        wire["Job"] = None if alloc.job is None else self._job(alloc.job)
        for state in (wire["TaskStates"] or {}).values():
            for event in state["Events"] or ():
                event["DisplayMessage"] = event["DisplayMessage"] or event["Message"]
        return wire

    def _job(self, job: Job) -> dict[str, Any]:
        found = self._jobs.get(id(job))
        if found is None:
            found = self._jobs[id(job)] = (job, to_wire(job))
        return found[1]


def alloc_wire(alloc: Allocation) -> dict[str, Any]:
    """One whole allocation."""
    return AllocWriter()(alloc)
