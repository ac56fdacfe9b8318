"""Tasks with `cores` have these for themselves on a real agent: the others move off, and come back."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.executor.cgroups import MOUNTS_FILE, Hierarchies, parse_mounts, read_text
from yurt.testing.agent import Agent, raw_exec_job, register, stop_jobs, wait_for

CORES = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
FOUND = parse_mounts(Path(MOUNTS_FILE).read_text()) if Path(MOUNTS_FILE).exists() else Hierarchies()
OFFERED = (*FOUND.v1, *read_text(f"{FOUND.unified}/cgroup.controllers").split())
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="cpusets need root on Linux"),
    pytest.mark.skipif(len(CORES) < 2, reason="this machine has one core"),
    pytest.mark.skipif("cpuset" not in OFFERED, reason="this host has no cpuset controller"),
]
SHOW = "echo $$ > local/pid; exec sleep 3000"


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent with a data directory; its tasks outlive it."""
    client = {"enabled": True, "options": {"driver.raw_exec.enable": "1"}, "network_interface": "lo"}
    made = Agent(tmp_path, data_dir=tmp_path / "data", extra={"client": client})
    try:
        made.start()
        yield made
    finally:
        stop_jobs(made)
        made.kill()


def allowed(agent: Agent, job: str) -> list[int]:
    """The cores on which the process of a job's running task may run."""
    (alloc,) = agent.running(job, 1)

    def pid() -> int:
        found = agent.cli("alloc", "fs", alloc["ID"], "main/local/pid")
        return int(found.stdout) if found.returncode == 0 and found.stdout.strip() else 0

    return sorted(os.sched_getaffinity(wait_for("the pid of the task", pid)))


def job_of(name: str, **resources: Any) -> dict[str, Any]:
    """A job of one task that writes its pid."""
    job = raw_exec_job(name, "/bin/sh", "-c", SHOW)
    job["TaskGroups"][0]["Tasks"][0]["Resources"] = {"MemoryMB": 10, **resources}
    return job


def test_reserved_cores_are_for_one_task_alone(agent: Agent) -> None:
    register(agent, job_of("shared", CPU=10))
    assert allowed(agent, "shared") == CORES
    register(agent, job_of("own", Cores=1))
    own = allowed(agent, "own")
    rest = [core for core in CORES if core not in own]
    assert len(own) == 1
    wait_for("the other task to leave the core", lambda: allowed(agent, "shared") == rest)

    agent.kill()
    agent.start()
    assert (allowed(agent, "own"), allowed(agent, "shared")) == (own, rest), json.dumps(agent.allocs("own"))

    agent.cli("job", "stop", "-purge", "-yes", "own")
    wait_for("the other task to have all cores again", lambda: allowed(agent, "shared") == CORES)
