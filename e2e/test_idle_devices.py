"""Idle devices on a real agent with a fake NVML: a job is warned, kept, ended for one that waits, and goes on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for

fake = pytest.importorskip("yurt_device_nvidia.fake", reason="the NVIDIA plugin is not installed")

SECOND = 10**9
POLICY = {
    "Window": 3 * SECOND, "First": 0, "Warn": [SECOND], "Action": "requeue", "Grace": 5 * SECOND, "When": "contended",
    "Interactive": {"Keep": 1},
}  # fmt: skip


class Cards:
    """An agent in the pool `gpu`, and the file of its eight cards."""

    def __init__(self, agent: Agent, machine: Path) -> None:
        self.agent, self.machine = agent, machine

    def work(self, percent: int) -> None:
        """Let all cards be busy for so many percent of the time."""

        def change(state: dict[str, Any]) -> None:
            for card in state["gpus"]:
                card["utilization"].update(gpu=percent, memory=percent)

        fake.change(self.machine, change)

    def job(self, job_id: str, idle: dict[str, Any] | None = None) -> dict[str, Any]:
        """A batch job of one task on all cards."""
        job = raw_exec_job(job_id, "/bin/sleep", "3600") | {"Type": "batch", "NodePool": "gpu"}
        device = {"Name": "nvidia/gpu", "Count": 8} | ({"Idle": idle} if idle else {})
        (task,) = job["TaskGroups"][0]["Tasks"]
        task |= {"KillTimeout": SECOND // 5}
        task["Resources"] |= {"MemoryMB": 32, "Devices": [device]}
        return job

    def alloc(self, job_id: str, number: int = 0) -> dict[str, Any] | None:
        """The whole allocation of that number, oldest first, once it runs or has run."""
        found = sorted(self.agent.allocs(job_id), key=lambda each: each["CreateIndex"])
        if len(found) <= number or found[number]["ClientStatus"] == "pending":
            return None
        whole: dict[str, Any] = self.agent.get(f"/v1/allocation/{found[number]['ID']}")
        return whole

    def idle(self, job_id: str) -> dict[str, Any]:
        """What the servers know of its idleness."""
        found = (self.alloc(job_id) or {}).get("Idle")
        return found or {}


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cards]:
    folder = tmp_path_factory.mktemp("idle")
    machine = folder / "machine.json"
    fake.write(machine, fake.layout("h100x8"))
    config = {"client": {"node_pool": "gpu"}, "plugin": {"nvidia": {"config": {"library": f"fake:{machine}"}}}}
    with running_agent(folder, extra=config) as agent:
        yield Cards(agent, machine)


def events_of(alloc: dict[str, Any], kind: str) -> list[str]:
    """The texts of events of that type."""
    return [event["DisplayMessage"] for event in alloc["TaskStates"]["main"]["Events"] if event["Type"] == kind]


def test_an_idle_job_is_warned_kept_and_requeued(cards: Cards) -> None:
    agent = cards.agent
    cards.work(90)
    register(agent, cards.job("idle", POLICY))
    first = wait_for("the job runs", lambda: cards.alloc("idle"))
    assert not events_of(first, "Idle"), "it works"

    cards.work(0)
    wait_for("it is idle", lambda: cards.idle("idle").get("IdleFor") == 3 * SECOND or None)
    warned = cards.alloc("idle")
    assert warned is not None and not warned["Idle"]["EndsAt"], "nobody waits"
    texts = events_of(warned, "Idle")
    assert "Idle for 1s: busy 0 % on 8 of 8 devices" in texts[0] and "if another job waits" in texts[0]
    assert "Idle for" in agent.cli("alloc", "fs", first["ID"], "alloc/notice").stdout
    assert "busy 0 % on 8 of 8 devices" in agent.cli("alloc", "status", first["ID"]).stdout
    assert "Idle Devices" in agent.cli("job", "status", "idle").stdout

    # Nobody waits: this may be done as often as wanted.
    assert json.loads(agent.cli("alloc", "keep", "-for", "1s", "-json", first["ID"]).stdout)["Keeps"] == 0
    register(agent, cards.job("waiting"))
    wait_for("the end is announced", lambda: cards.idle("idle").get("EndsAt") or None)
    assert 'job "waiting" waits and fits on its devices' in cards.idle("idle")["Reason"]
    assert "before" in agent.cli("alloc", "keep", "-for", "2s", first["ID"]).stdout
    assert not cards.idle("idle")["EndsAt"]
    refused = agent.cli("alloc", "keep", "-for", "1h", first["ID"])
    assert refused.returncode == 1 and "kept 1 times while others waited" in refused.stderr

    wait_for("the waiting job runs", lambda: cards.alloc("waiting"))
    ended = cards.alloc("idle")
    assert ended is not None and (ended["DesiredStatus"], ended["Idle"]["Action"]) == ("evict", "requeue")
    assert ended["DesiredDescription"].startswith("Idle since") and events_of(ended, "Preempting")
    assert any(text.startswith("Kept until") for text in events_of(ended, "Idle"))

    cards.work(90)
    agent.call("DELETE", "/v1/job/waiting?purge=true")
    again = wait_for("the idle job runs again", lambda: cards.alloc("idle", 1))
    assert again["PreviousAllocation"] == first["ID"] and again["RescheduleTracker"]["Requeues"] == 1
    counted = {each["Name"]: each for each in agent.get("/v1/metrics")["Counters"]}
    assert counted["nomad.nomad.idle.ended"]["Count"] == 1, sorted(name for name in counted if "idle" in name)
    agent.call("DELETE", "/v1/job/idle?purge=true")


def test_a_namespace_enforces_its_policy_with_clear_errors(cards: Cards, tmp_path: Path) -> None:
    file = tmp_path / "team.hcl"
    file.write_text('name = "team"\nidle {\n  windw = "1h"\n}\n')
    refused = cards.agent.cli("namespace", "apply", str(file))
    assert refused.returncode == 1 and 'unknown key "windw" (did you mean "window"?)' in refused.stderr
    file.write_text('name = "team"\nidle {\n  window  = "1h"\n  action  = "requeue"\n  enforce = true\n}\n')
    cards.agent.cli("namespace", "apply", str(file))
    register(cards.agent, cards.job("lax", {"Action": "notify"}) | {"Namespace": "team"})
    (group,) = cards.agent.get("/v1/job/lax?namespace=team")["TaskGroups"]
    (device,) = group["Tasks"][0]["Resources"]["Devices"]
    assert (device["Idle"]["Action"], device["Idle"]["Source"]) == ("requeue", 'namespace "team"')
    cards.agent.call("DELETE", "/v1/job/lax?purge=true&namespace=team")
