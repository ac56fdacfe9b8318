"""Evaluations in the form of the recorded ones, scenario by scenario, and what the rules of semantics make of them.

What comes out is told in short: allocations placed and updated in place (`placed`, `canaries`, `updated`, by name
without the job's), those stopped by reason, how many are preempted, whether a deployment begins and what becomes of the
one before, what is queued, which evaluations are made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from yurt.sdk.value import seconds
from yurt.testing.factories import number_id
from yurt.testing.rows.old_records import (
    AT,
    MIGRATE,
    ZERO,
    Data,
    leaving,
    made_at,
    newer,
    old_alloc,
    old_job,
    old_node,
    old_record,
)
from yurt.testing.rows.recorded_evaluations import run

Scenario = tuple[str, Data, Data]

MOVED, UPDATED = "alloc is being migrated", "alloc is being updated due to job update"
UNNEEDED, TAINTED = "alloc not needed due to job update", "alloc not needed as node is tainted"
LOST, FAILED = "alloc is lost since its node is down", "alloc was rescheduled because it failed"
BLOCKED = ["blocked queued-allocs"]
OTHER: Data = {"command": "/bin/other"}
UPDATE: Data = {"MaxParallel": 2, "HealthCheck": "checks", "MinHealthyTime": 0, "HealthyDeadline": 0, "Canary": 0}
ONCE: Data = {"Attempts": 1, "Interval": seconds(900), "Delay": seconds(5), "DelayFunction": "constant"}
ENDED: Data = {"web": {"State": "dead", "Failed": False, "StartedAt": ZERO, "FinishedAt": AT}}
TEN: Data = {"Cpu": {"CpuShares": 3000}, "Memory": {"MemoryMB": 3000}, "Disk": {"DiskMB": 1000}}
"""Room for ten allocations."""


def told(record: Data) -> Data:
    """What the evaluation does, in short; what it does not do is left out."""
    answer = run(made_at(record))
    plan = answer["plans"][0] if answer["plans"] else {}
    known = {alloc["ID"] for alloc in record["state"]["tables"].get("allocs") or []}
    placed = [alloc for allocs in plan.get("NodeAllocation", {}).values() for alloc in allocs]
    stopped = [alloc for allocs in plan.get("NodeUpdate", {}).values() for alloc in allocs]
    found = {
        "placed": _names(alloc for alloc in placed if alloc["ID"] not in known and not _is_canary(alloc)),
        "canaries": _names(alloc for alloc in placed if alloc["ID"] not in known and _is_canary(alloc)),
        "updated": _names(alloc for alloc in placed if alloc["ID"] in known),
        "stopped": dict(Counter(f"{alloc['DesiredDescription']} ({alloc['ClientStatus']})" for alloc in stopped)),
        "preempted": sum(map(len, plan.get("NodePreemptions", {}).values())),
        "begins": bool(plan.get("Deployment")),
        "deployments": [update["StatusDescription"] for update in plan.get("DeploymentUpdates", [])],
        "queued": {name: n for ended in answer["evals"] for name, n in ended["QueuedAllocations"].items() if n},
        "made": sorted(f"{made['Status']} {made['TriggeredBy']}" for made in answer["create_evals"]),
        "reblocked": len(answer["reblock_evals"]),
    }
    return {key: value for key, value in found.items() if value}


def _names(allocs: Iterator[Data]) -> list[str]:
    return sorted(alloc["Name"].partition(".")[2] for alloc in allocs)


def _is_canary(alloc: Data) -> bool:
    return bool((alloc["DeploymentStatus"] or {}).get("Canary"))


def _web(*numbers: int) -> list[str]:
    return [f"web[{number}]" for number in numbers]


def _of(job: Data, count: int, *, node: int = 1, **changes: Any) -> list[Data]:
    """The first allocations of a job, on one node; each carries the job as it was."""
    return [old_alloc(index, node, Job=job, **changes) for index in range(count)]


def _node_update(number: int = 1) -> Data:
    return {"TriggeredBy": "node-update", "NodeID": number_id(number, kind=1)}


# -- a job comes -------------------------------------------------------------------------------------------------------


def registered() -> Iterator[Scenario]:
    two = [old_node(1, Meta={"rack": "a"}), old_node(2, Meta={"rack": "b"})]
    rack = {"LTarget": "${meta.rack}", "Operand": "distinct_property"}
    yield "nothing is wanted", old_record(jobs=[old_job(Count=0)]), {}
    yield "no node", old_record(jobs=[old_job(Count=4)], nodes=[]), {"queued": {"web": 4}, "made": BLOCKED}
    one_each = old_record(nodes=two, jobs=[old_job(Count=3, Constraints=[rack])])
    yield "one for each rack", one_each, {"placed": _web(0, 1), "queued": {"web": 1}, "made": BLOCKED}
    two_each = old_record(nodes=two, jobs=[{**old_job(Count=5), "Constraints": [{**rack, "RTarget": "2"}]}])
    yield "two for each rack", two_each, {"placed": _web(0, 1, 2, 3), "queued": {"web": 1}, "made": BLOCKED}
    none = {"queued": {"web": 1}, "made": BLOCKED}
    yield "only nodes that start", old_record(nodes=[old_node(Status="initializing")]), none
    yield "only nodes elsewhere", old_record(nodes=[old_node(Datacenter="dc9")]), none
    yield "only nodes that leave", old_record(nodes=[leaving()]), none
    gone = old_record(jobs=[], eval={"TriggeredBy": "job-deregister"})
    yield "a job that never was", gone, {}
    blocked = old_record(jobs=[old_job(Count=5)], eval={"Status": "blocked", "TriggeredBy": "queued-allocs"})
    yield "some room for what waited", blocked, {"placed": _web(0, 1, 2), "reblocked": 1}


def with_lifecycles() -> Iterator[Scenario]:
    for name, before, beside, main, fits in (
        ("tasks before and after the main one take turns", 700, 300, 700, True),
        ("a task before and its sidecar are there together", 800, 300, 100, False),
        ("the main task and the sidecar are there together", 100, 300, 800, False),
    ):
        tasks = [
            {**old_job()["TaskGroups"][0]["Tasks"][0], "Name": task, "Lifecycle": hook, "Resources": {"CPU": cpu}}
            for task, cpu, hook in (
                ("init", before, {"Hook": "prestart", "Sidecar": False}),
                ("side", beside, {"Hook": "prestart", "Sidecar": True}),
                ("main", main, None),
            )
        ]
        node = old_node(NodeResources={**TEN, "Cpu": {"CpuShares": 1000}})
        expected = {"placed": _web(0)} if fits else {"queued": {"web": 1}, "made": BLOCKED}
        yield name, old_record(nodes=[node], jobs=[old_job(Tasks=tasks)]), expected


# -- a job changes -----------------------------------------------------------------------------------------------------


def changed() -> Iterator[Scenario]:
    job = old_job(Count=3)
    allocs = _of(job, 3)
    big = [old_node(NodeResources=TEN)]
    less = old_record(jobs=[newer(job, Count=0)], allocs=allocs)
    yield "scaled to nothing", less, {"stopped": {f"{UNNEEDED} (running)": 3}}
    more = old_record(nodes=big, jobs=[newer(job, Count=5)], allocs=allocs)
    yield "scaled up", more, {"placed": _web(3, 4), "updated": _web(0, 1, 2)}
    full = old_record(jobs=[newer(job, config=OTHER)], allocs=allocs)
    yield "replaced on a full node", full, {"placed": _web(0, 1, 2), "stopped": {f"{UPDATED} (running)": 3}}
    rolling = newer(job, config=OTHER, Update=UPDATE)
    step = {"placed": _web(0, 1), "stopped": {f"{UPDATED} (running)": 2}, "begins": True}
    yield "two at a time", old_record(nodes=big, jobs=[rolling], allocs=allocs), step
    canaries = newer(job, config=OTHER, Update={**UPDATE, "Canary": 2})
    trial = {"canaries": _web(0, 1), "begins": True}
    yield "two canaries first", old_record(nodes=big, jobs=[canaries], allocs=allocs), trial
    off = newer(job, config=OTHER, Update={**UPDATE, "Canary": 2, "MaxParallel": 0})
    everything = {"placed": _web(0, 1, 2), "stopped": {f"{UPDATED} (running)": 3}}
    yield "canaries of an update that is off", old_record(nodes=big, jobs=[off], allocs=allocs), everything
    away = {**newer(job), "Datacenters": ["dc2"]}
    moved = old_record(nodes=[*big, old_node(2, Datacenter="dc2")], jobs=[away], allocs=allocs)
    yield "to another datacenter", moved, {"placed": _web(0, 1, 2), "stopped": {f"{UPDATED} (running)": 3}}
    grown = newer(old_job(), config=OTHER, Count=3, Update={**UPDATE, "MaxParallel": 3})
    first = old_record(jobs=[grown], allocs=_of(old_job(), 1))
    new = {"placed": _web(0, 1, 2), "stopped": {f"{UPDATED} (running)": 1}, "begins": True}
    yield "grown while it is replaced", first, new
    narrow = newer(old_job(), config=OTHER, Count=3, Update=UPDATE)
    alone = {"placed": _web(1, 2), "begins": True}
    yield "grown before it is replaced", old_record(nodes=big, jobs=[narrow], allocs=_of(old_job(), 1)), alone


def stopped() -> Iterator[Scenario]:
    job = old_job(Count=3)
    allocs = _of(job, 3, node=1)
    down = [old_node(Status="down")]
    running = {"ID": "d", "JobID": "web", "Namespace": "default", "Status": "running", "TaskGroups": {"web": {}}}
    newer_than = {**running, "JobVersion": 2, "JobCreateIndex": 1}
    stop = {"TriggeredBy": "job-deregister"}
    for name, jobs in (("stopped", [{**job, "Stop": True}]), ("purged", [])):
        unneeded = {"stopped": {f"{UNNEEDED} (running)": 3}}
        yield f"{name} on a node that runs", old_record(jobs=jobs, allocs=allocs, eval=stop), unneeded
        lost = {"stopped": {f"{LOST} (lost)": 3}}
        yield f"{name} on a node that is down", old_record(nodes=down, jobs=jobs, allocs=allocs, eval=stop), lost
        yield f"{name} on a node that is gone", old_record(nodes=[], jobs=jobs, allocs=allocs, eval=stop), lost
        rolled = old_record(jobs=jobs, deployments=[newer_than], eval=stop)
        yield f"{name} while it rolls out", rolled, {"deployments": ["Cancelled because job is stopped"]}
    other = old_record(nodes=[], deployments=[newer_than])
    text = "Cancelled due to newer version of job"
    yield "another version rolled out", other, {"deployments": [text], "queued": {"web": 1}, "made": BLOCKED}


# -- nodes go ----------------------------------------------------------------------------------------------------------


def on_a_node_that_is_down() -> Iterator[Scenario]:
    none = {"queued": {"web": 1}, "made": BLOCKED}
    down = [old_node(Status="down")]
    job = old_job(ReschedulePolicy=ONCE)
    for desired, client, transition, reason in (
        ("stop", "running", {}, f"{LOST} (lost)"),
        ("evict", "running", {}, f"{LOST} (lost)"),
        ("run", "running", {}, f"{LOST} (lost)"),
        ("run", "pending", MIGRATE, f"{MOVED} (pending)"),
        ("run", "running", MIGRATE, f"{MOVED} (running)"),
        ("run", "failed", {}, f"{FAILED} (failed)"),
        ("run", "lost", {}, ""),
        ("run", "complete", {}, ""),
        ("stop", "complete", {}, ""),
    ):
        alloc = old_alloc(DesiredStatus=desired, ClientStatus=client, DesiredTransition=transition, Job=job)
        record = old_record(nodes=down, jobs=[job], allocs=[alloc], eval=_node_update())
        what = f"wanted {desired}, {client}{', to migrate' * bool(transition)}"
        yield what, record, {**({"stopped": {reason: 1}} if reason else {}), **none}


def drained() -> Iterator[Scenario]:
    job = old_job(Count=2)
    marked = _of(job, 2, DesiredTransition=MIGRATE)
    both = [leaving(), old_node(2)]
    moved = {"stopped": {f"{MOVED} (running)": 2}}
    free = old_record(nodes=both, jobs=[job], allocs=marked, eval=_node_update())
    yield "to another node", free, {**moved, "placed": _web(0, 1)}
    nowhere = old_record(nodes=[leaving()], jobs=[job], allocs=marked, eval=_node_update())
    yield "with nowhere to go", nowhere, {**moved, "queued": {"web": 2}, "made": BLOCKED}
    yield "not marked yet", old_record(nodes=both, jobs=[job], allocs=_of(job, 2), eval=_node_update()), {}
    batch = old_job("batch", Count=2)
    half = [
        *_of(batch, 1, DesiredTransition=MIGRATE),
        old_alloc(1, Job=batch, ClientStatus="complete", TaskStates=ENDED),
    ]
    one = {"stopped": {f"{MOVED} (running)": 1}, "placed": _web(0)}
    yield "a batch job that is half done", old_record(nodes=both, jobs=[batch], allocs=half, eval=_node_update()), one


def canaries_that_leave() -> Iterator[Scenario]:
    job = old_job(Count=2, Update={**UPDATE, "Canary": 1})
    trying = newer(job, config=OTHER)
    state = {"PlacedCanaries": [number_id(8, kind=2)], "DesiredCanaries": 1, "DesiredTotal": 2, "Promoted": False}
    own = {"Namespace": "default", "JobID": "web", "JobCreateIndex": 1}
    before = {
        **own,
        "ID": "before",
        "JobVersion": 0,
        "Status": "successful",
        "CreateIndex": 2,
        "TaskGroups": {"web": {}},
    }
    now = {**own, "ID": "now", "JobVersion": 1, "Status": "running", "CreateIndex": 3, "TaskGroups": {"web": state}}
    canary = {"Healthy": True, "Timestamp": AT, "Canary": True}
    for name, first, second, expected in (
        ("all move", leaving(1), leaving(2), {"stopped": {f"{MOVED} (running)": 3}, "placed": _web(0, 1)}),
        ("the canary moves", old_node(1), leaving(2), {"stopped": {f"{MOVED} (running)": 1}}),
        ("the canary is lost", old_node(1), old_node(2, Status="down"), {"stopped": {f"{LOST} (lost)": 1}}),
    ):
        marks = [MIGRATE if node["DrainStrategy"] else {} for node in (first, second)]
        olds = _of(job, 2, DesiredTransition=marks[0], DeploymentID="before")
        tried = old_alloc(7, 2, Name="web.web[0]", Job=trying, DesiredTransition=marks[1], DeploymentID="now")
        allocs = [*olds, {**tried, "DeploymentStatus": canary}]
        tables = {"nodes": [first, second, old_node(3)], "deployments": [before, now], "allocs": allocs}
        yield name, old_record(jobs=[trying], eval=_node_update(2), **tables), {**expected, "canaries": _web(0)}


# -- allocations end ---------------------------------------------------------------------------------------------------


def failed() -> Iterator[Scenario]:
    nodes = [old_node(1), old_node(2)]
    job = old_job(ReschedulePolicy=ONCE)
    alloc = old_alloc(Job=job, ClientStatus="failed")
    again = {"stopped": {f"{FAILED} (failed)": 1}, "placed": _web(0)}
    long_ago = {"web": {**ENDED["web"], "FinishedAt": "2026-11-21T00:07:00Z"}}
    past = old_record(nodes=nodes, jobs=[job], allocs=[{**alloc, "TaskStates": long_ago}])
    yield "long ago", past, again
    just = old_record(nodes=nodes, jobs=[job], allocs=[{**alloc, "TaskStates": ENDED}])
    yield "just now", just, {"updated": _web(0), "made": ["pending alloc-failure"]}
    followed = [{**alloc, "TaskStates": ENDED, "FollowupEvalID": "e"}]
    yield "just now, and its time has come", old_record(nodes=nodes, jobs=[job], allocs=followed), again
    others = [{**alloc, "TaskStates": ENDED, "FollowupEvalID": "other"}]
    yield "just now, and its time will come", old_record(nodes=nodes, jobs=[job], allocs=others), {}
    event = {"RescheduleTime": 1_795_219_600_000_000_000, "PrevAllocID": "p", "PrevNodeID": "n", "Delay": seconds(5)}
    tried = [{**alloc, "TaskStates": long_ago, "RescheduleTracker": {"Events": [event]}}]
    yield "as often as it may", old_record(nodes=nodes, jobs=[job], allocs=tried), {}
    never = old_job(ReschedulePolicy={**ONCE, "Attempts": 0})
    kept = [{**alloc, "Job": never, "TaskStates": long_ago}]
    yield "of a group that never reschedules", old_record(nodes=nodes, jobs=[never], allocs=kept), {}


def in_a_batch_job() -> Iterator[Scenario]:
    job = old_job("batch", ReschedulePolicy=ONCE)
    done = old_alloc(Job=job, ClientStatus="complete", TaskStates=ENDED)
    yield "done", old_record(jobs=[job], allocs=[done]), {}
    yield "done, and its node is down", old_record(nodes=[old_node(Status="down")], jobs=[job], allocs=[done]), {}
    yield "done, and stopped then", old_record(jobs=[job], allocs=[{**done, "DesiredStatus": "stop"}]), {}
    changed = newer(job, config=OTHER)
    yield "done by the version before", old_record(jobs=[changed], allocs=[done]), {"placed": _web(0)}
    both = [done, old_alloc(1, Name="web.web[0]", Job=changed, ClientStatus="complete", TaskStates=ENDED)]
    yield "done by both versions", old_record(jobs=[changed], allocs=both), {}
    same = [{**alloc, "Name": "web.web[0]"} for alloc in _of(job, 3)]
    fewer = {"updated": _web(0), "stopped": {f"{UNNEEDED} (running)": 2}}
    yield "three of one name", old_record(jobs=[newer(job)], allocs=same), fewer
    broken = [{**done, "ClientStatus": "failed", "TaskStates": {"web": {**ENDED["web"], "FinishedAt": ZERO}}}]
    alone = old_record(nodes=[leaving()], jobs=[job], allocs=broken)
    left = {"stopped": {f"{FAILED} (failed)": 1}, "queued": {"web": 1}, "made": BLOCKED}
    yield "failed, and no node is left", alone, left


def lost_by_their_clients() -> Iterator[Scenario]:
    down = [old_node(Status="down")]
    lost = {"stopped": {f"{LOST} (lost)": 1}}
    for name, after, lost_at, waits in (
        ("at once", 0, "", False),
        ("its client may run it for a while", seconds(1), "", True),
        ("its client has stopped it by now", seconds(1), "2026-11-21T00:07:10Z", False),
        ("its client stops it some time", seconds(1), "2026-11-21T00:17:10Z", True),
    ):
        job = old_job(StopAfterClientDisconnect=after)
        states = [{"Field": 0, "Value": "lost", "Time": lost_at}] if lost_at else None
        record = old_record(nodes=down, jobs=[job], allocs=[old_alloc(Job=job, AllocStates=states)])
        rest = {"made": ["pending alloc-failure"]} if waits else {"queued": {"web": 1}, "made": BLOCKED}
        yield name, record, {**lost, **rest}


# -- system jobs -------------------------------------------------------------------------------------------------------


def of_the_system() -> Iterator[Scenario]:
    job = old_job("system")
    nodes = [old_node(1), old_node(2)]
    allocs = [old_alloc(0, 1, Job=job), {**old_alloc(1, 2, Job=job), "Name": "web.web[0]"}]
    again = {"placed": _web(0)}
    for status in ("complete", "failed"):
        ended = [allocs[0], {**allocs[1], "ClientStatus": status}]
        yield f"one is {status}", old_record(nodes=nodes, jobs=[job], allocs=ended), again
    changed = old_record(nodes=nodes, jobs=[newer(job)], allocs=allocs)
    yield "a new version of little change", changed, {"updated": _web(0, 0)}
    replaced = old_record(nodes=nodes, jobs=[newer(job, config=OTHER)], allocs=allocs)
    yield "another version", replaced, {"placed": _web(0, 0), "stopped": {f"{UPDATED} (running)": 2}}
    rolling = {**newer(job, config=OTHER), "Update": {"MaxParallel": 1, "Stagger": seconds(30)}}
    step = {"placed": _web(0), "stopped": {f"{UPDATED} (running)": 1}, "begins": True}
    yield "another version, one node at a time", old_record(nodes=nodes, jobs=[rolling], allocs=allocs), step
    apart = old_record(nodes=[nodes[0], old_node(2, Datacenter="dc2")], jobs=[newer(job)], allocs=allocs)
    yield "a datacenter less", apart, {"updated": _web(0), "stopped": {f"{UNNEEDED} (running)": 1}}
    for name, node, transition, reason in (
        ("down", old_node(2, Status="down"), {}, f"{LOST} (lost)"),
        ("drained and down", leaving(2, Status="down"), {}, f"{LOST} (lost)"),
        ("drained", leaving(2), MIGRATE, f"{TAINTED} (running)"),
        ("drained, not marked yet", leaving(2), {}, ""),
        ("closed", old_node(2, SchedulingEligibility="ineligible"), {}, ""),
    ):
        there = [allocs[0], {**allocs[1], "DesiredTransition": transition}]
        record = old_record(nodes=[nodes[0], node], jobs=[job], allocs=there, eval=_node_update(2))
        yield f"a node is {name}", record, {"stopped": {reason: 1}} if reason else {}
    darwin = old_node(3, Attributes={"kernel.name": "darwin"})
    linux = {**job, "Constraints": [{"LTarget": "${attr.kernel.name}", "RTarget": "linux", "Operand": "="}]}
    yield "a node that is filtered out", old_record(nodes=[*nodes, darwin], jobs=[linux], allocs=allocs), {}
    small = old_node(3, NodeResources={**TEN, "Cpu": {"CpuShares": 200}})
    waits = {"queued": {"web": 1}, "made": BLOCKED}
    yield "a node that is too small", old_record(nodes=[*nodes, small], jobs=[job], allocs=allocs), waits


def that_preempt() -> Iterator[Scenario]:
    low = {**old_job(), "ID": "low", "Name": "low", "Priority": 30}
    in_use = [
        {
            **old_alloc(index, Job=low),
            "JobID": "low",
            "Name": f"low.web[{index}]",
            "TaskResources": {"web": {"CPU": cpu}},
        }
        for index, cpu in enumerate((400, 500))
    ]
    own: Data = {"SystemSchedulerEnabled": False, "BatchSchedulerEnabled": False, "ServiceSchedulerEnabled": True}
    none = {"queued": {"web": 1}, "made": BLOCKED}
    for name, type, priority, config, taken in (
        ("a service that may", "service", 100, own, 1),
        ("a service that may not", "service", 100, None, 0),
        ("a service of little more priority", "service", 35, own, 0),
        ("a system job, as by default", "system", 100, None, 1),
        ("a system job that may not", "system", 100, own, 0),
    ):
        job = {**old_job(type), "Priority": priority}
        record = old_record(jobs=[low, job], allocs=in_use)
        record["state"]["config"] = {"SchedulerAlgorithm": "", "PreemptionConfig": config} if config else None
        record["scheduler"] = "*scheduler.SystemScheduler" if type == "system" else record["scheduler"]
        yield name, record, {"placed": _web(0), "preempted": taken} if taken else none


ALL = (
    registered,
    with_lifecycles,
    changed,
    stopped,
    on_a_node_that_is_down,
    drained,
    canaries_that_leave,
    failed,
    in_a_batch_job,
    lost_by_their_clients,
    of_the_system,
    that_preempt,
)
CASES = [
    pytest.param(record, expected, id=f"{scenarios.__name__}: {name}")
    for scenarios in ALL
    for name, record, expected in scenarios()
]


@pytest.mark.parametrize(("record", "expected"), CASES)
def test_a_scenario_comes_out_by_the_rules(record: Data, expected: Data) -> None:
    assert told(record) == expected
