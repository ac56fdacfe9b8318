"""Loads evaluations recorded elsewhere, runs them through the scheduler, and writes the result in the same format.

A record is one JSON object: `scheduler`, `eval`, `state` (`tables` and `config`), what came out (`plans`, `evals`,
`create_evals`, `reblock_evals`, `error`) and `rejects_plans`. Field names are those of Nomad's structs, times are
RFC 3339 texts or nanoseconds, durations nanoseconds. Records may be old: resources may stand in the forms that came
before `NodeResources` and `AllocatedResources`, and what a disconnected client does in fields of its own.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from yurt import scheduler
from yurt.api.times import parse_rfc3339
from yurt.fsm.node_class import computed_class
from yurt.scheduler.attempts import Attempt
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.state import Tables
from yurt.state.store import Snapshot
from yurt.state.tables import AnyTable
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import SchedulerConfiguration
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.plan import AllocStop, Outcome
from yurt.structs.predicates import eval_type
from yurt.structs.status import EVAL_BLOCKED, JOB_SERVICE, JOB_SYSBATCH, JOB_SYSTEM
from yurt.structs.volumes.csi import ATTACHMENT_MODES, CSIVolume, CSIVolumeCapability

Data = dict[str, Any]
T = TypeVar("T")
SEED: Final = 7
INDEX: Final = 1_000_000
"""The index of a loaded state, above those of its rows."""
LATEST: Final = 1_795_219_700 * NANOSECONDS
"""The time of an evaluation that nothing dates."""
FREE: Final = frozenset({"Meta", "Env", "Config", "Attributes", "Details", "Links", "Parameters", "Context", "Payload"})
"""Fields whose texts are anybody's: a text in them is never a time."""
KILL_TIMEOUT: Final = 5 * NANOSECONDS
DRIVER: Final = "driver."


def load(path: Path) -> list[Data]:
    """The records of a JSON lines file, gzip-compressed or not; empty when the file does not exist."""
    if not path.exists():
        return []
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return [json.loads(line) for line in text.splitlines() if line.strip()]


# -- the state ---------------------------------------------------------------------------------------------------------


def snapshot_of(record: Data) -> Snapshot:
    """The state of a recorded evaluation; tables that schedulers do not read are skipped."""
    edit = Snapshot.empty().edit(INDEX)
    tables = record["state"].get("tables") or {}
    jobs: dict[tuple[str, str], Job] = {}
    is_for_system = _type_of(record) != JOB_SERVICE
    for table in ("job_versions", "job_version", "jobs"):
        for data in tables.get(table) or []:
            job = _job(data)
            if is_for_system and job.id == record["eval"].get("JobID") and job.type not in (JOB_SYSTEM, JOB_SYSBATCH):
                job = replace(job, type=_type_of(record))
            jobs[job.key] = job
            edit.put(Tables.job_versions, (*job.key, job.version), job)
            if table == "jobs":
                edit.put(Tables.jobs, job.key, job)
    for data in tables.get("allocs") or []:
        alloc = _alloc(data)
        own = alloc.job or jobs.get((alloc.namespace, alloc.job_id))
        edit.put(Tables.allocs, alloc.id, replace(alloc, job=own))
    for node in map(_node, tables.get("nodes") or []):
        edit.put(Tables.nodes, node.id, node)
    for volume in map(_csi_volume, tables.get("csi_volumes") or []):
        edit.put(Tables.csi_volumes, (volume.namespace, volume.id), volume)
    for evaluation in map(_evaluation, tables.get("evals") or []):
        edit.put(Tables.evals, evaluation.id, evaluation)
    for name, schema in PLAIN.items():
        assert schema.key_of is not None
        for data in tables.get(name) or []:
            row = _value(data, schema.codec.row_type)
            edit.put(schema, schema.key_of(row), row)
    config = _value(record["state"].get("config") or {}, SchedulerConfiguration)
    edit.put(Tables.scheduler_configurations, "", config)
    return edit.commit()


def _node(data: Data) -> Node:
    """A node; its computed class is recalculated because a record may have changed its inputs."""
    data = _plain(data)
    if not data.get("NodeResources"):
        offered = data.get("Resources") or {}
        data["NodeResources"] = {
            "Cpu": {"CpuShares": offered.get("CPU", 0)},
            "Memory": {"MemoryMB": offered.get("MemoryMB", 0)},
            "Disk": {"DiskMB": offered.get("DiskMB", 0)},
            "Networks": offered.get("Networks", []),
        }
    if not data.get("ReservedResources"):
        kept = data.get("Reserved") or {}
        ports = [port["Value"] for network in kept.get("Networks", []) for port in network.get("ReservedPorts", [])]
        data["ReservedResources"] = {
            "Cpu": {"CpuShares": kept.get("CPU", 0)},
            "Memory": {"MemoryMB": kept.get("MemoryMB", 0)},
            "Disk": {"DiskMB": kept.get("DiskMB", 0)},
            "Networks": {"ReservedHostPorts": ",".join(map(str, ports))},
        }
    data.pop("Events", None)
    data["Drivers"] = {**_fingerprinted(data.get("Attributes") or {}), **(data.get("Drivers") or {})}
    if "SchedulingEligibility" not in data:
        is_leaving = data.get("Drain") or data.get("DrainStrategy")
        data["SchedulingEligibility"] = "ineligible" if is_leaving else "eligible"
    node = msgspec.convert(data, Node, strict=False)
    return replace(node, computed_class=computed_class(node))


def _fingerprinted(attributes: Mapping[str, str]) -> Data:
    """Drivers that a record shows in attributes only, as nodes did before they had `Drivers`."""
    named = ((key.removeprefix(DRIVER), value) for key, value in attributes.items() if key.startswith(DRIVER))
    found = ((name, value.lower() in ("1", "t", "true")) for name, value in named if "." not in name)
    return {name: {"Detected": is_there, "Healthy": is_there} for name, is_there in found}


def _job(data: Data) -> Job:
    return msgspec.convert(_modern_job(_plain(data)), Job, strict=False)


def _modern_job(data: Data) -> Data:
    """The job with moved blocks in their present places: disconnect behaviour, updates of system jobs."""
    update = data.get("Update") or {}
    for group in data.get("TaskGroups") or []:
        lost_after = group.get("MaxClientDisconnect") or 0
        stop_after = group.get("StopAfterClientDisconnect") or 0
        if not group.get("Disconnect") and (lost_after or stop_after):
            group["Disconnect"] = {"LostAfter": lost_after, "StopOnClientAfter": stop_after, "Replace": True}
        is_system = data.get("Type") in (JOB_SYSTEM, JOB_SYSBATCH)
        if is_system and not group.get("Update") and update.get("MaxParallel"):
            group["Update"] = update
    return data


def _alloc(data: Data) -> Allocation:
    """An allocation; the create time is moved back when a record shows an end before it.

    One that nothing but its making dates ended before anything: its last change is what counts then, and that is 0.
    """
    data = _plain(data)
    states = data.get("TaskStates") or {}
    for state in states.values():
        state.pop("Events", None)
        # Some recordings write "start", which no client reports, for a task that has started.
        if state.get("State") == "start":
            state["State"] = "running"
    for state in data.get("AllocStates") or []:
        state["Field"] = "ClientStatus"
    transition = data.get("DesiredTransition") or {}
    data["DesiredTransition"] = {name: bool(value) for name, value in transition.items()}
    if data.get("Job"):
        data["Job"] = _modern_job(data["Job"])
    if not data.get("AllocatedResources"):
        data["AllocatedResources"] = _allocated(data)
    ends = [int(state["FinishedAt"]) for state in states.values() if state.get("FinishedAt")]
    changed = int(data.get("ModifyTime") or 0)
    data["CreateTime"] = min([int(data.get("CreateTime") or 0), *(ends or [changed])])
    data["ModifyTime"] = max([changed, *ends])
    return msgspec.convert(data, Allocation, strict=False)


def _allocated(data: Data) -> Data:
    """An allocation's resources, read from the old formats: by task, or as one sum."""
    shared, whole = data.get("SharedResources") or {}, data.get("Resources") or {}
    by_task = data.get("TaskResources") or {"": {**whole, "DiskMB": 0}}
    tasks = {
        name: {
            "Cpu": {"CpuShares": resources.get("CPU", 0)},
            "Memory": {"MemoryMB": resources.get("MemoryMB", 0), "MemoryMaxMB": resources.get("MemoryMaxMB", 0)},
            "Networks": resources.get("Networks", []),
        }
        for name, resources in by_task.items()
    }
    disk = shared.get("DiskMB") or whole.get("DiskMB") or 0
    return {"Tasks": tasks, "Shared": {"DiskMB": disk, "Networks": shared.get("Networks", [])}}


def _csi_volume(data: Data) -> CSIVolume:
    """A volume that offers its own access modes and, as old requests do, those that requests leave open."""
    own = CSIVolumeCapability(
        access_mode=data.get("AccessMode") or "", attachment_mode=data.get("AttachmentMode") or ""
    )
    open_modes = tuple(CSIVolumeCapability(attachment_mode=mode) for mode in ("", *ATTACHMENT_MODES))
    volume = _value(data, CSIVolume)
    offered = (*volume.requested_capabilities, own, *open_modes)
    return replace(volume, requested_capabilities=offered)


def _evaluation(data: Data) -> Evaluation:
    """An evaluation without its recorded results, which the next attempt computes again."""
    # Some recordings leave the type empty; the scheduler takes it from the job.
    given = {name: value for name, value in data.items() if name != "Type" or value}
    return _value({**given, "PlanAnnotations": None}, Evaluation)


PLAIN: Final[Mapping[str, AnyTable]] = {
    "deployments": Tables.deployments,
    "deployment": Tables.deployments,
    "host_volumes": Tables.host_volumes,
    "node_pools": Tables.node_pools,
    "namespaces": Tables.namespaces,
}
"""Tables whose rows stand in the records as they are."""


def _value(data: Data, kind: type[T]) -> T:
    return msgspec.convert(_plain(data), kind, strict=False)


def _plain(value: Any, *, is_free: bool = False) -> Any:
    """A copy without null values, with times as nanoseconds (0: never)."""
    if isinstance(value, dict):
        return {key: _plain(entry, is_free=is_free or key in FREE) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_plain(entry, is_free=is_free) for entry in value if entry is not None]
    if not isinstance(value, str) or is_free or not value[:4].isdigit():
        return value
    try:
        return max(0, parse_rfc3339(value))
    except ValueError:
        return value


# -- the moment --------------------------------------------------------------------------------------------------------


def moment_of(record: Data) -> UnixNano:
    """The time of the evaluation: of the rows that it made, else ten seconds after the last end, else before the
    delayed evaluations that it made.
    """
    known = {alloc["ID"] for alloc in record["state"]["tables"].get("allocs") or []}
    made = [int(alloc.get("CreateTime") or 0) for alloc in _written(record) if alloc["ID"] not in known]
    made.extend(int(later.get("CreateTime") or 0) for later in record.get("create_evals") or [])
    if any(made):
        return UnixNano(next(filter(None, made)))
    ends = [
        int(_plain(state).get("FinishedAt") or 0)
        for alloc in record["state"]["tables"].get("allocs") or []
        for state in (alloc.get("TaskStates") or {}).values()
    ]
    ended = max(ends, default=0)
    waits = [at for later in record.get("create_evals") or [] if (at := int(_plain(later).get("WaitUntil") or 0))]
    ahead = min(waits, default=LATEST)
    if ended and (not waits or ended + 10 * NANOSECONDS < ahead):
        return UnixNano(ended + 10 * NANOSECONDS)
    return UnixNano(ahead - _delay(record) if waits else LATEST)


def _written(record: Data) -> Iterator[Data]:
    for plan in record.get("plans") or []:
        for allocs in (plan.get("NodeAllocation") or {}).values():
            yield from allocs


def _delay(record: Data) -> int:
    """The delay before the first recorded group is replaced: its stop after a disconnect, else its reschedule delay."""
    for job in record["state"]["tables"].get("jobs") or []:
        for group in job.get("TaskGroups") or []:
            if group.get("StopAfterClientDisconnect"):
                return int(group["StopAfterClientDisconnect"]) + KILL_TIMEOUT
            return int((group.get("ReschedulePolicy") or {}).get("Delay") or 0)
    return 0


# -- the evaluation ----------------------------------------------------------------------------------------------------


def run(record: Data) -> Data:
    """Run the recorded evaluation through this scheduler; returns the result in the format of the records."""
    snapshot, now = snapshot_of(record), moment_of(record)
    evaluation = _evaluation(record["eval"])
    recorded_type = record["eval"].get("Type") or ""
    job = snapshot.jobs.get((evaluation.namespace, evaluation.job_id))
    evaluation = replace(evaluation, type=eval_type(job) if job is not None else evaluation.type)
    if record.get("rejects_plans"):
        plans, outcome = _refused(snapshot, evaluation, now)
    else:
        attempt = scheduler.attempt(snapshot, evaluation, now=now, seed=SEED)
        outcome = attempt.outcome
        is_submitted = evaluation.annotate_plan or not attempt.plan.is_empty
        plans = [_plan(attempt, snapshot)] if is_submitted else []
    return {
        "state": record["state"],
        "plans": plans,
        "evals": [] if outcome.reblock is not None else [_ended(outcome.evaluation)],
        "create_evals": [
            {**_ended(made), "Type": recorded_type if made.status == EVAL_BLOCKED else made.type}
            for made in outcome.created
        ],
        "reblock_evals": [_ended(outcome.reblock)] if outcome.reblock is not None else [],
        "error": "<nil>",
    }


def _type_of(record: Data) -> str:
    name = str(record.get("scheduler", ""))
    if "SysBatch" in name:
        return JOB_SYSBATCH
    return JOB_SYSTEM if "System" in name else JOB_SERVICE


def _refused(snapshot: Snapshot, evaluation: Evaluation, now: UnixNano) -> tuple[list[Data], Outcome]:
    """Attempts whose plans are all refused, and the resulting evaluation with every placement queued."""
    plans = []
    for number in range(scheduler.max_attempts(evaluation.type)):
        attempt = scheduler.attempt(snapshot, evaluation, now=now, seed=SEED, attempt=number)
        plans.append(_plan(attempt, snapshot))
    queued = dict(attempt.outcome.evaluation.queued_allocations)
    for placement in attempt.plan.placements:
        queued[placement.task_group] = queued.get(placement.task_group, 0) + 1
    last = Outcome(evaluation=replace(attempt.outcome.evaluation, queued_allocations=queued))
    return plans, scheduler.exhausted(evaluation, seed=SEED, now=now, snapshot_index=snapshot.index, last=last)


def _plan(attempt: Attempt, snapshot: Snapshot) -> Data:
    plan = attempt.plan
    placed: dict[str, list[Data]] = {}
    for placement in plan.placements:
        status = placement.deployment_status
        row = {
            "ID": placement.id,
            "Name": placement.name,
            "TaskGroup": placement.task_group,
            "DesiredStatus": "run",
            "PreviousAllocation": placement.previous_allocation,
            "DeploymentStatus": {"Canary": status.canary} if status is not None else None,
        }
        placed.setdefault(placement.node_id, []).append(row)
    changes = [(update.id, update.node_id) for update in plan.in_place]
    stopped = {stop.id for stop in plan.stops}
    changes.extend((update.id, update.node_id) for update in plan.attributes if update.id not in stopped)
    for alloc_id, node_id in dict.fromkeys(changes):
        alloc = snapshot.allocs[alloc_id]
        row = {"ID": alloc.id, "Name": alloc.name, "TaskGroup": alloc.task_group, "DesiredStatus": alloc.desired_status}
        status = alloc.deployment_status
        row["DeploymentStatus"] = {"Canary": status.canary} if status is not None else None
        placed.setdefault(node_id, []).append(row)
    return {
        "NodeAllocation": placed,
        "NodeUpdate": _by_node(plan.stops, snapshot),
        "NodePreemptions": _by_node(plan.preemptions, snapshot),
        "Deployment": plan.deployment,
        "DeploymentUpdates": [
            {"Status": update.status, "StatusDescription": update.status_description}
            for update in plan.deployment_updates
        ],
    }


def _by_node(stops: tuple[AllocStop, ...], snapshot: Snapshot) -> dict[str, list[Data]]:
    found: dict[str, list[Data]] = {}
    for stop in stops:
        client_status = stop.client_status or snapshot.allocs[stop.id].client_status
        row = {"ID": stop.id, "DesiredStatus": stop.desired_status, "DesiredDescription": stop.description}
        found.setdefault(stop.node_id, []).append({**row, "ClientStatus": client_status})
    return found


def _ended(evaluation: Evaluation) -> Data:
    return {
        "Status": evaluation.status,
        "StatusDescription": evaluation.status_description,
        "QueuedAllocations": dict(evaluation.queued_allocations),
        "FailedTGAllocs": dict(evaluation.failed_tg_allocs),
        "TriggeredBy": evaluation.triggered_by,
        "Type": evaluation.type,
    }
