"""The recorded evaluations of Nomad's own scenarios reduce to the same shape, save for the differences that are
named.
"""

from __future__ import annotations

import datetime
import gzip
import importlib.util
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from yurt import scheduler
from yurt.scheduler.attempts import Attempt
from yurt.sdk.value import UnixNano
from yurt.state.store import Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import SchedulerConfiguration
from yurt.structs.deployment import Deployment
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job
from yurt.structs.node import Node
from yurt.structs.plan import Outcome
from yurt.structs.status import EVAL_BLOCKED, JOB_SYSTEM

CASES = Path(os.environ.get("YURT_SCHEDULER_CASES", Path(__file__).parents[3] / "shared/corpus/scheduler"))
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
TYPES = {"nodes": Node, "jobs": Job, "allocs": Allocation, "deployments": Deployment, "evals": Evaluation}
LOST_AT_ONCE = "what is to leave a node that is down is marked lost at once: nobody else would say that it has ended"
DIFFERENT: Mapping[int, str] = {
    25: LOST_AT_ONCE,
    32: LOST_AT_ONCE,
    61: LOST_AT_ONCE,
    66: "an empty plan is not submitted; 1.1.2 submitted one for a node that is no longer eligible",
}
"""Cases whose shape differs, by number, and the rule that explains it."""


def _records() -> list[dict[str, Any]]:
    path = CASES / "cases.jsonl.gz"
    if not path.exists():
        return []
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for line in lines]


RECORDS = _records()


def _time(text: str) -> int:
    if text.startswith("0001-"):
        return 0
    whole, _, fraction = text.rstrip("Z").partition(".")
    seconds = int(datetime.datetime.fromisoformat(whole + "+00:00").timestamp())
    return seconds * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))


def _clean(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _clean(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return [_clean(entry) for entry in value]
    if isinstance(value, str) and TIME.fullmatch(value):
        return _time(value)
    return value


def _job(data: dict[str, Any]) -> dict[str, Any]:
    for group in data.get("TaskGroups") or []:
        after = group.get("StopAfterClientDisconnect")
        if after:
            group["Disconnect"] = {"StopOnClientAfter": after, "Replace": True}
    return data


def _row(table: str, data: dict[str, Any]) -> Any:
    data = _clean(data)
    if table == "jobs":
        data = _job(data)
    if table == "allocs":
        data["AllocStates"] = [{**state, "Field": "ClientStatus"} for state in data.get("AllocStates") or []]
        data["DesiredTransition"] = {k: bool(v) for k, v in (data.get("DesiredTransition") or {}).items()}
        if data.get("Job"):
            data["Job"] = _job(data["Job"])
        ends = [int(state.get("FinishedAt") or 0) for state in (data.get("TaskStates") or {}).values()]
        made = int(data.get("CreateTime") or 0)
        data["CreateTime"] = min(made, *(end for end in ends if end), made)  # the scenarios end what is not yet made
        data["ModifyTime"] = max(int(data.get("ModifyTime") or 0), *ends, 0)
    if table == "nodes":
        data["Events"] = []
    return msgspec.convert(data, TYPES[table], strict=False)


def _snapshot(record: dict[str, Any]) -> Snapshot:
    edit = Snapshot.empty().edit(1000)
    for table, rows in record["state"]["tables"].items():
        for data in rows:
            row = _row(table, data)
            if table == "jobs":
                edit.put("jobs", row.key, row)
                edit.put("job_versions", (*row.key, row.version), row)
            else:
                edit.put(table, row.id, row)
    config = msgspec.convert(_clean(record["state"].get("config") or {}), SchedulerConfiguration, strict=False)
    edit.put("scheduler_config", "", config)
    return edit.commit()


def _now(record: dict[str, Any]) -> int:
    known = {alloc["ID"] for alloc in record["state"]["tables"].get("allocs", [])}
    by_node = [allocs for plan in record["plans"] or [] for allocs in (plan.get("NodeAllocation") or {}).values()]
    made = [int(alloc["CreateTime"]) for allocs in by_node for alloc in allocs if alloc["ID"] not in known]
    if made:
        return made[0]
    finished = [
        _time(state["FinishedAt"])
        for alloc in record["state"]["tables"].get("allocs", [])
        for state in (alloc.get("TaskStates") or {}).values()
    ]
    if any(finished):
        return max(finished) + 10_000_000_000
    waits = [_time(e["WaitUntil"]) for e in record["create_evals"] or [] if not e["WaitUntil"].startswith("0001")]
    return min(waits) - 6_000_000_000 if waits else 1_795_219_700_000_000_000


def _plan(attempt: Attempt, snapshot: Snapshot) -> dict[str, Any]:
    plan = attempt.plan
    placed: dict[str, list[dict[str, Any]]] = {}
    for placement in plan.placements:
        status = placement.deployment_status
        placed.setdefault(placement.node_id, []).append(
            {
                "ID": placement.id,
                "Name": placement.name,
                "TaskGroup": placement.task_group,
                "DesiredStatus": "run",
                "DeploymentStatus": {"Canary": status.canary} if status is not None else None,
            }
        )
    changes = [(change.id, change.node_id) for change in plan.in_place]
    changes.extend((change.id, change.node_id) for change in plan.attributes)
    for alloc_id, node_id in changes:
        alloc = snapshot.allocs[alloc_id]
        row = {"ID": alloc.id, "Name": alloc.name, "TaskGroup": alloc.task_group, "DesiredStatus": alloc.desired_status}
        placed.setdefault(node_id, []).append(row)
    stopped: dict[str, list[dict[str, Any]]] = {}
    for stop in plan.stops:
        client = stop.client_status or snapshot.allocs[stop.id].client_status
        entry = {"DesiredStatus": stop.desired_status, "DesiredDescription": stop.description, "ClientStatus": client}
        stopped.setdefault(stop.node_id, []).append(entry)
    preempted: dict[str, list[dict[str, Any]]] = {}
    for stop in plan.preemptions:
        preempted.setdefault(stop.node_id, []).append({"ID": stop.id})
    return {
        "NodeAllocation": placed,
        "NodeUpdate": stopped,
        "NodePreemptions": preempted,
        "Deployment": plan.deployment,
        "DeploymentUpdates": [
            {"Status": u.status, "StatusDescription": u.status_description} for u in plan.deployment_updates
        ],
    }


def _evaluation(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "Status": evaluation.status,
        "StatusDescription": evaluation.status_description,
        "QueuedAllocations": dict(evaluation.queued_allocations),
        "FailedTGAllocs": dict(evaluation.failed_tg_allocs),
        "TriggeredBy": evaluation.triggered_by,
        "Type": evaluation.type,
    }


def _run(record: dict[str, Any]) -> dict[str, Any]:
    snapshot = _snapshot(record)
    evaluation = msgspec.convert(_clean(record["eval"]), Evaluation, strict=False)
    job = snapshot.jobs.get((evaluation.namespace, evaluation.job_id))
    recorded_type = JOB_SYSTEM if "System" in record["scheduler"] else "service"
    evaluation = msgspec.structs.replace(evaluation, type=job.type if job is not None else recorded_type)
    now, plans = UnixNano(_now(record)), []
    outcome: Outcome | None = None
    if record["rejects_plans"]:
        for number in range(scheduler.max_attempts(evaluation.type)):
            attempt = scheduler.attempt(snapshot, evaluation, now=now, seed=7, attempt=number)
            plans.append(_plan(attempt, snapshot))
        queued = {name: sum(p.task_group == name for p in attempt.plan.placements) for name in ["web"]}
        last = msgspec.structs.replace(attempt.outcome.evaluation, queued_allocations=queued)
        outcome = scheduler.exhausted(
            evaluation, seed=7, now=now, snapshot_index=snapshot.index, last=Outcome(evaluation=last)
        )
    else:
        attempt = scheduler.attempt(snapshot, evaluation, now=now, seed=7)
        outcome = attempt.outcome
        plans = [] if attempt.plan.is_empty else [_plan(attempt, snapshot)]
    return {
        "state": record["state"],
        "plans": plans,
        "evals": [] if outcome.reblock is not None else [_evaluation(outcome.evaluation)],
        "create_evals": [
            {**_evaluation(made), "Type": "" if made.status == EVAL_BLOCKED else made.type} for made in outcome.created
        ],
        "reblock_evals": [outcome.reblock] if outcome.reblock is not None else [],
        "error": "<nil>",
    }


def _shape_of(record: dict[str, Any]) -> Any:
    spec = importlib.util.spec_from_file_location("recorded_shape", CASES / "shape.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return json.loads(module.shape(record))


def _numbers() -> Iterator[Any]:
    if not RECORDS:
        yield pytest.param(-1, marks=pytest.mark.skip(reason="the recorded evaluations are not on this machine"))
    for number, record in enumerate(RECORDS):
        yield pytest.param(number, id=f"{number}-{record['test']}")


@pytest.mark.parametrize("number", list(_numbers()))
def test_a_recorded_evaluation_reduces_to_the_same_shape(number: int) -> None:
    record = RECORDS[number]
    if number in DIFFERENT:
        assert _shape_of(_run(record)) != record["shape"], f"case {number} is listed as different but agrees"
        return
    assert _shape_of(_run(record)) == record["shape"]
