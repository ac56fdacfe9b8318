"""Preemption on a real agent: a trainer in a queue saves its work, makes way for a more important job, and goes on.

The cards are pretended; the trainer is a program that counts steps and keeps them in its checkpoint directory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for

fake = pytest.importorskip("yurt_device_nvidia.fake", reason="the NVIDIA plugin is not installed")

SECOND = 10**9
HOURS_SHOWN = 0.0004
"""GPU hours of which also a quarter is more than a report rounds away."""
TRAINER = r"""
import json, os, pathlib, signal, time
folder = pathlib.Path(os.environ["YURT_CHECKPOINT_DIR"])
state = folder / "state.json"
known = json.loads(state.read_text()) if state.exists() else {"step": 0, "runs": []}
known["runs"].append([os.environ["YURT_REQUEUE_COUNT"], os.environ["YURT_REQUEUE_REASON"], known["step"]])
def save(*_):
    part = folder / "state.part"
    part.write_text(json.dumps(known))
    part.rename(state)
    raise SystemExit(3)
signal.signal(signal.SIGUSR1, save)
print("ready", flush=True)
while True:
    time.sleep(0.02)
    known["step"] += 1
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """An agent with eight cards in a pool with a queue, where batch jobs may preempt."""
    config = {"client": {"node_pool": "gpu"}, "plugin": {"nvidia": {"config": {"library": "fake:h100x8"}}}}
    with running_agent(tmp_path_factory.mktemp("preempt"), extra=config) as agent:
        pool = {"Name": "gpu", "BatchQueue": {"FairShare": {"HalfLife": 3600 * SECOND}}}
        agent.call("PUT", "/v1/node/pool/gpu", pool)
        preemption = {"PreemptionConfig": {"BatchSchedulerEnabled": True}}
        agent.call("PUT", "/v1/operator/scheduler/configuration", preemption)
        yield agent


def gpu_job(job_id: str, *command: str, priority: int, **group: Any) -> dict[str, Any]:
    """A batch job of one task on all cards."""
    job = raw_exec_job(job_id, *command) | {"Type": "batch", "NodePool": "gpu", "Priority": priority}
    job["TaskGroups"][0] |= group
    job["TaskGroups"][0]["Tasks"][0]["Resources"]["Devices"] = [{"Name": "nvidia/gpu", "Count": 8}]
    return job


def alloc(agent: Agent, job_id: str, number: int) -> dict[str, Any] | None:
    """The allocation of that number, oldest first, once it runs."""
    found = sorted(agent.allocs(job_id), key=lambda each: each["CreateIndex"])
    return found[number] if len(found) > number and found[number]["ClientStatus"] == "running" else None


def state(agent: Agent, alloc_id: str) -> dict[str, Any]:
    """What the trainer has saved."""
    path = "alloc/data/checkpoint/state.json"
    found: dict[str, Any] = json.loads(agent.cli("alloc", "fs", alloc_id, path).stdout)
    return found


def test_a_trainer_saves_makes_way_and_goes_on_where_it_was(agent: Agent, tmp_path: Path) -> None:
    program = tmp_path / "trainer.py"
    program.write_text(TRAINER)
    saves = {"Signal": "SIGUSR1", "Grace": 20 * SECOND}
    trainer = gpu_job("trainer", sys.executable, str(program), priority=40, Checkpoint=saves)
    register(agent, trainer)
    first = wait_for("the trainer runs", lambda: alloc(agent, "trainer", 0))
    wait_for("the trainer is ready", lambda: "ready" in agent.cli("alloc", "logs", first["ID"]).stdout or None)

    urgent = gpu_job("urgent", "/bin/sleep", "3600", priority=70)
    register(agent, urgent)
    wait_for("the urgent job runs", lambda: alloc(agent, "urgent", 0))
    ended = agent.get(f"/v1/allocation/{first['ID']}")
    assert (ended["DesiredStatus"], ended["ClientStatus"]) == ("evict", "complete")
    events = [event["Type"] for event in ended["TaskStates"]["main"]["Events"]]
    assert events[-5:] == ["Preempting", "Killing", "Checkpointing", "Terminated", "Killed"]
    assert ended["TaskStates"]["main"]["CheckpointedAt"]
    waiting = wait_for("the trainer waits", lambda: agent.get("/v1/queue/jobs?node_pool=gpu")["Workloads"] or None)
    assert [each["JobID"] for each in waiting] == ["trainer"]

    agent.call("DELETE", "/v1/job/urgent")
    again = wait_for("the trainer runs again", lambda: alloc(agent, "trainer", 1))
    again = agent.get(f"/v1/allocation/{again['ID']}")
    tracker = again["RescheduleTracker"]
    assert again["PreviousAllocation"] == first["ID"]
    assert tracker["Requeues"] == 1 and 0 <= tracker["Lost"] < 20 * SECOND
    told = agent.cli("alloc", "status", again["ID"]).stdout
    assert "Requeues" in told and "Lost Run Time" in told

    saved = state(agent, again["ID"])
    assert saved["runs"] == [["0", "", 0]] and saved["step"] > 0
    wait_for("it is ready again", lambda: "ready" in agent.cli("alloc", "logs", again["ID"]).stdout or None)
    agent.cli("alloc", "signal", "-s", "SIGUSR1", again["ID"])
    wait_for("it has saved again", lambda: len(state(agent, again["ID"])["runs"]) == 2 or None)
    assert state(agent, again["ID"])["runs"][1] == ["1", "preempted", saved["step"]]
    agent.call("DELETE", "/v1/job/trainer?purge=true")


TEAMS = {"vision": 4, "speech": 2, "search": 2}
"""Namespaces with the cards that their quotas guarantee: all eight."""


@pytest.fixture
def teams(agent: Agent) -> Iterator[Agent]:
    """Three namespaces whose quotas guarantee the cards of the node between them."""
    for name, cards in TEAMS.items():
        limit = {"Region": "global", "Guaranteed": {"Devices": [{"Name": "nvidia/gpu", "Count": cards}]}}
        agent.call("PUT", "/v1/quota", {"Name": name, "Protection": SECOND // 10, "Limits": [limit]})
        agent.call("PUT", "/v1/namespace", {"Name": name, "Quota": name})
    yield agent
    for name in TEAMS:
        agent.call("DELETE", f"/v1/job/{name}?namespace={name}&purge=true")


def single_cards(namespace: str, count: int) -> dict[str, Any]:
    """A job of a team: so many tasks on one card each, which wait again when they are preempted."""
    job = gpu_job(namespace, "/bin/sleep", "3600", priority=50, Count=count, Requeue={"Attempts": 5, "Delay": 0})
    job["TaskGroups"][0]["Tasks"][0]["Resources"]["Devices"] = [{"Name": "nvidia/gpu", "Count": 1}]
    return job | {"Namespace": namespace}


def cards_of(agent: Agent) -> dict[str, int]:
    """How many cards run for each team."""
    allocs = agent.get("/v1/allocations?namespace=*")
    running = [each["Namespace"] for each in allocs if each["ClientStatus"] == "running"]
    return {name: running.count(name) for name in TEAMS}


def running_hours(agent: Agent, namespace: str) -> float:
    """The GPU hours so far of a namespace's running allocations."""
    report = json.loads(agent.cli("job", "report", "-namespace=*", "-json").stdout)
    hours = [row["Running"]["GPUHours"] for row in report["Namespaces"] if row["Namespace"] == namespace]
    return float(sum(hours))


def test_three_namespaces_borrow_and_reclaim(teams: Agent) -> None:
    agent = teams
    register(agent, single_cards("vision", 8))
    wait_for("vision borrows all", lambda: cards_of(agent) == {"vision": 8, "speech": 0, "search": 0})
    wait_for("vision has worked", lambda: running_hours(agent, "vision") > HOURS_SHOWN)
    register(agent, single_cards("speech", 4))
    wait_for("speech has what it is guaranteed", lambda: cards_of(agent) == {"vision": 6, "speech": 2, "search": 0})
    register(agent, single_cards("search", 2))
    wait_for("search does too", lambda: cards_of(agent) == TEAMS)

    told = agent.cli("job", "status", "-namespace=vision", "vision").stdout
    assert "Requeued Allocations" in told and "0/5" in told and "as soon as there is room" in told
    assert 'Reclaimed for the guarantee of quota "speech"' in told
    assert "Preemptions" in told and "Lost GPU Time" in told

    wait_for("search has worked", lambda: running_hours(agent, "search") > HOURS_SHOWN)
    agent.call("DELETE", "/v1/job/search?namespace=search")
    wait_for("what search leaves is lent again", lambda: sum(cards_of(agent).values()) == 8)
    assert all(cards_of(agent)[name] >= TEAMS[name] for name in ("vision", "speech"))
    report = json.loads(agent.cli("job", "report", "-namespace=*", "-json").stdout)
    rows = {row["Namespace"]: row for row in report["Namespaces"]}
    assert rows["vision"]["Preempted"] == 4 and rows["vision"]["LostGPUHours"]["preempted"] > 0
    assert rows["search"]["Allocs"] == 2 and rows["search"]["GPUHours"] > 0
    assert {(row["Namespace"], row["JobID"]) for row in report["Jobs"]} >= {(name, name) for name in TEAMS}
    table = agent.cli("job", "report", "-namespace=vision", "-since=1d").stdout
    assert "vision" in table and "search" not in table
    top = agent.cli("top", "-once", "-namespace=vision", "-view=jobs").stdout
    assert "vision" in top
