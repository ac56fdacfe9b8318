"""The short forms that lists answer with: job, allocation and node stubs, as builtins in the shape of the API."""

from __future__ import annotations

import base64
import hashlib
import operator
from collections import ChainMap
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from yurt.api.encode import WireView, encode_builtins, struct_converter, to_wire
from yurt.sdk.value import duration_text, replace
from yurt.structs.alloc import (
    AllocatedTaskResources,
    Allocation,
    AllocDeploymentStatus,
    AllocNetworkStatus,
    IdleState,
    RescheduleTracker,
    TaskState,
)
from yurt.structs.cluster import DEFAULT_NODE_IDENTITY_TTL, Namespace, NodePool
from yurt.structs.job import Job
from yurt.structs.node import DriverInfo, Node
from yurt.structs.resources import Resources
from yurt.structs.summary import JobSummary

NO_NETWORK: Final = AllocNetworkStatus()
"""The network status of an allocation without a network of its own."""
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
    """An allocation in a list; task states and resources only on request."""
    wire = dict(zip(_ALLOC_KEYS, _alloc_fields(alloc), strict=True))
    job, status, tracker = alloc.job, alloc.deployment_status, alloc.reschedule_tracker
    wire["AllocatedResources"] = None
    if resources:
        wire["AllocatedResources"] = to_wire(alloc.allocated_resources) | {"TaskLifecycles": _lifecycles(alloc)}
    wire["DeploymentStatus"] = None if status is None else struct_converter(AllocDeploymentStatus)(status)
    wire["JobType"] = job.type if job is not None else ""
    wire["JobVersion"] = job.version if job is not None else 0
    wire["PreemptedAllocations"] = alloc.preempted_allocations or None
    wire["RescheduleTracker"] = None if tracker is None else struct_converter(RescheduleTracker)(tracker)
    if alloc.idle is not None:
        wire["Idle"] = struct_converter(IdleState)(alloc.idle)
    wire["TaskStates"] = None
    if task_states and alloc.task_states:
        convert = struct_converter(TaskState)
        wire["TaskStates"] = {name: convert(state) for name, state in alloc.task_states.items()}
    return wire


def node_stub(node: Node, resources: bool = False, os: bool = False) -> dict[str, Any]:
    """A node in a list; resources and operating system only on request."""
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


def _whole_alloc(alloc: Allocation) -> Mapping[str, Any]:
    job = alloc.job
    of_stub = {"JobType": "", "JobVersion": 0} if job is None else {"JobType": job.type, "JobVersion": job.version}
    return ChainMap(of_stub, cast("dict[str, Any]", WireView(alloc)))


def _whole_node(node: Node) -> Mapping[str, Any]:
    of_stub = {
        "Address": node.http_addr.rpartition(":")[0],
        "Drain": node.drain_strategy is not None,
        "SecretID": "",
        "Version": node.attributes.get("nomad.version", ""),
    }
    return ChainMap(of_stub, cast("dict[str, Any]", WireView(node)))


WHOLE: Final[Mapping[Callable[..., Any], Callable[[Any], Mapping[str, Any]]]] = {
    alloc_stub: _whole_alloc,
    job_stub: WireView,
    node_stub: _whole_node,
}
"""What filters see of the rows that a list writes in these short forms."""


def node_wire(node: Node) -> dict[str, Any]:
    """A whole node: without its secret, with the fields that older clients read."""
    wire: dict[str, Any] = to_wire(node)
    wire["SecretID"] = ""
    wire["Drain"] = node.drain_strategy is not None
    if (drain := wire["DrainStrategy"]) is not None:
        wire["DrainStrategy"] = drain | drain.pop("DrainSpec")  # in Go one struct embeds the other
    has, kept = node.node_resources, node.reserved_resources
    wire["Resources"] = to_wire(
        Resources(
            cpu=has.cpu.cpu_shares, memory_mb=has.memory.memory_mb, disk_mb=has.disk.disk_mb, networks=has.networks
        )
    )
    wire["Reserved"] = to_wire(
        Resources(cpu=kept.cpu.cpu_shares, memory_mb=kept.memory.memory_mb, disk_mb=kept.disk.disk_mb)
    )
    return wire


def pool_wire(pool: NodePool) -> dict[str, Any]:
    """A node pool: with the lifetime of identities as a text, and a hash of the fields that operators set."""
    wire: dict[str, Any] = to_wire(pool)
    wire["NodeIdentityTTL"] = duration_text(pool.node_identity_ttl or DEFAULT_NODE_IDENTITY_TTL)
    decided = ("Description", "Meta", "Name", "SchedulerConfiguration", "BatchQueue")
    wire["Hash"] = content_hash([wire[name] for name in decided if name in wire])
    return wire


def namespace_wire(namespace: Namespace) -> dict[str, Any]:
    """A namespace, with a hash of the fields that operators set."""
    wire: dict[str, Any] = to_wire(namespace)
    wire["Hash"] = content_hash({name: value for name, value in wire.items() if not name.endswith("Index")})
    return wire


def content_hash(wire: Any) -> str:
    """The base64 hash of the content; equal content has equal hashes."""
    return base64.b64encode(hashlib.blake2b(encode_builtins(wire), digest_size=32).digest()).decode()


def allocation_wire(alloc: Allocation) -> dict[str, Any]:
    """An allocation without its job, with the fields that older clients read and the texts of its events."""
    wire: dict[str, Any] = to_wire(alloc if alloc.job is None else replace(alloc, job=None))
    for state in (wire["TaskStates"] or {}).values():
        for event in state["Events"] or ():
            event["DisplayMessage"] = event["DisplayMessage"] or event["Message"]
    resources = alloc.allocated_resources
    wire["AllocatedResources"]["TaskLifecycles"] = _lifecycles(alloc)
    if alloc.network_status is None and alloc.task_states:
        # Nomad's clients report one for an allocation in the network of its host as well, and readers use it unasked.
        wire["NetworkStatus"] = to_wire(NO_NETWORK)
    shared, tasks = resources.shared, {name: _task_resources(task) for name, task in resources.tasks.items()}
    wire["SharedResources"] = to_wire(Resources(cpu=0, memory_mb=0, disk_mb=shared.disk_mb, networks=shared.networks))
    wire["TaskResources"] = {name: to_wire(task) for name, task in tasks.items()}
    wire["Resources"] = to_wire(
        Resources(
            cpu=sum(task.cpu for task in tasks.values()),
            memory_mb=sum(task.memory_mb for task in tasks.values()),
            memory_max_mb=sum(task.memory_max_mb for task in tasks.values()),
            disk_mb=shared.disk_mb,
            networks=(*shared.networks, *(each for task in tasks.values() for each in task.networks)),
        )
    )
    return wire


def _task_resources(task: AllocatedTaskResources) -> Resources:
    return Resources(
        cpu=task.cpu.cpu_shares,
        memory_mb=task.memory.memory_mb,
        memory_max_mb=task.memory.memory_max_mb,
        networks=task.networks,
    )


def _lifecycles(alloc: Allocation) -> dict[str, Any]:
    """The lifecycle of each task; null for one of the main tasks."""
    group = None if alloc.job is None else alloc.job.group(alloc.task_group)
    found = {task.name: task.lifecycle for task in group.tasks} if group is not None else {}
    return {name: to_wire(found.get(name)) for name in alloc.allocated_resources.tasks}


class AllocWriter:
    """Writes whole allocations; a job that several of them share is converted once."""

    def __init__(self) -> None:
        self._jobs: dict[int, tuple[Job, dict[str, Any]]] = {}

    def __call__(self, alloc: Allocation) -> dict[str, Any]:
        """The allocation with its job, and the texts of its task events filled in."""
        wire = allocation_wire(alloc)
        wire["Job"] = None if alloc.job is None else self._job(alloc.job)
        return wire

    def _job(self, job: Job) -> dict[str, Any]:
        found = self._jobs.get(id(job))
        if found is None:
            found = self._jobs[id(job)] = (job, to_wire(job))
        return found[1]


def alloc_wire(alloc: Allocation) -> dict[str, Any]:
    """One whole allocation."""
    return AllocWriter()(alloc)
