"""Quotas on a real agent: two jobs race for one, the loser says why and runs when the winner stops."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, wait_for

SPEC = {"Name": "shared", "Limits": [{"Region": "global", "RegionLimit": {"CPU": 35, "MemoryMB": 100}}]}
JOBS = {"first": "quota-a", "second": "quota-b"}


@pytest.fixture
def agent(dev_agent: Agent) -> Iterator[Agent]:
    """An agent with a quota that two namespaces share; three allocations of a job fit, of two jobs none more."""
    dev_agent.call("PUT", "/v1/quota", SPEC)
    for namespace in JOBS.values():
        dev_agent.call("PUT", "/v1/namespace", {"Name": namespace, "Quota": "shared"})
    yield dev_agent
    for job_id, namespace in JOBS.items():
        dev_agent.call("DELETE", f"/v1/job/{job_id}?namespace={namespace}&purge=true")


def running(agent: Agent, job_id: str) -> int:
    allocs = agent.get(f"/v1/job/{job_id}/allocations?namespace={JOBS[job_id]}")
    return sum(alloc["ClientStatus"] == "running" for alloc in allocs)


def live(agent: Agent) -> int:
    allocs = agent.get("/v1/allocations?namespace=*")
    mine = [alloc for alloc in allocs if alloc["Namespace"] in JOBS.values()]
    return sum(alloc["ClientStatus"] in ("pending", "running") for alloc in mine)


def blocked(agent: Agent, job_id: str) -> list[dict[str, Any]]:
    evals = agent.get(f"/v1/job/{job_id}/evaluations?namespace={JOBS[job_id]}")
    return [each for each in evals if each["Status"] == "blocked"]


def race(agent: Agent) -> tuple[str, str]:
    """Register both jobs at once, each of three allocations; (the one that is placed whole, the one that waits)."""

    def start(job_id: str) -> None:
        register(agent, raw_exec_job(job_id, "/bin/sleep", "3600", count=3) | {"Namespace": JOBS[job_id]})

    threads = [threading.Thread(target=start, args=(job_id,)) for job_id in JOBS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    wait_for("three run", lambda: sum(running(agent, job_id) for job_id in JOBS) == 3)
    winner = max(JOBS, key=lambda job_id: running(agent, job_id))
    return winner, next(job_id for job_id in JOBS if job_id != winner)


def test_of_two_jobs_in_a_race_for_a_quota_one_waits_says_why_and_runs_when_the_other_stops(agent: Agent) -> None:
    winner, loser = race(agent)
    (waiting,) = wait_for("a blocked evaluation", lambda: blocked(agent, loser) or None)
    assert waiting["QuotaLimitReached"] == "shared"
    usage = agent.get("/v1/quota/usage/shared")
    (used,) = usage["Used"].values()
    assert (used["RegionLimit"]["CPU"], used["RegionLimit"]["MemoryMB"]) == (30, 30)

    namespace = f"-namespace={JOBS[loser]}"
    told = agent.cli("job", "why-not", namespace, loser).stdout
    assert 'quota "shared" allows 35 MHz of cpu; 30 are used by namespace' in told
    assert "cpu exhausted (10 MHz needed, 5 of 35 MHz left)" in told
    assert 'Quota limit hit "cpu exhausted' in agent.cli("job", "status", namespace, loser).stdout
    status = agent.cli("quota", "status", "shared").stdout
    assert "30 / 35" in status and "quota-a, quota-b" in status
    assert agent.cli("quota", "delete", "shared").returncode == 1

    agent.call("DELETE", f"/v1/job/{winner}?namespace={JOBS[winner]}")
    wait_for("the loser runs", lambda: running(agent, loser) == 3)
    assert live(agent) == 3


def test_a_quota_that_is_raised_wakes_what_waits(agent: Agent) -> None:
    _, loser = race(agent)
    wait_for("a blocked evaluation", lambda: blocked(agent, loser))
    raised = json.loads(json.dumps(SPEC).replace("35", "60"))
    agent.call("PUT", "/v1/quota", raised)
    wait_for("both run", lambda: all(running(agent, job_id) == 3 for job_id in JOBS))
