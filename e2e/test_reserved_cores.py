"""Tasks with `cores` have these for themselves on a real agent: the others move off, and come back.

Processes and the containers of each engine leave each other's cores.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.executor.cgroups import MOUNTS_FILE, Hierarchies, parse_cores, parse_mounts, read_text
from yurt.testing.agent import Agent, raw_exec_job, register, stop_jobs, wait_for
from yurt.testing.services.engines import DockerEngine, PodmanEngine, missing, running_engine

CORES = sorted(os.sched_getaffinity(0)) if sys.platform == "linux" else []
FOUND = parse_mounts(Path(MOUNTS_FILE).read_text()) if Path(MOUNTS_FILE).exists() else Hierarchies()
OFFERED = (*FOUND.v1, *read_text(f"{FOUND.unified}/cgroup.controllers").split())
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="cpusets need root on Linux"),
    pytest.mark.skipif(len(CORES) < 2, reason="this machine has one core"),
    pytest.mark.skipif("cpuset" not in OFFERED, reason="this host has no cpuset controller"),
]
Engine = DockerEngine | PodmanEngine
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


@pytest.fixture(scope="module", params=["docker", "podman"])
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A running engine with a small image."""
    needs = ("dockerd", "containerd", "docker") if request.param == "docker" else ("podman", "runc", "conmon")
    if reason := missing(*needs, "busybox"):
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp(request.param)
    made: Engine = DockerEngine(folder) if request.param == "docker" else PodmanEngine(folder)
    with running_engine(made) as started:
        yield started


@pytest.fixture
def engine_agent(engine: Engine, tmp_path: Path) -> Iterator[Agent]:
    """An agent with a data directory that uses the engine."""
    client = {"enabled": True, "options": {"driver.raw_exec.enable": "1"}, "network_interface": "lo"}
    config = {"endpoint": engine.endpoint} if isinstance(engine, DockerEngine) else {"socket_path": str(engine.socket)}
    plugin = [{driver_of(engine): [{"config": [config]}]}]
    made = Agent(tmp_path, data_dir=tmp_path / "data", extra={"client": client, "plugin": plugin})
    try:
        made.start()
        yield made
    finally:
        stop_jobs(made)
        made.kill()


def driver_of(engine: Engine) -> str:
    """The driver of an engine."""
    return "docker" if isinstance(engine, DockerEngine) else "podman"


def container_job(engine: Engine, name: str, *, config: dict[str, Any] | None = None, **resources: Any) -> Any:
    """A job of one container."""
    job = job_of(name, **resources)
    job["TaskGroups"][0]["Tasks"][0] |= {
        "Driver": driver_of(engine),
        "Config": {
            "image": engine.image,
            "command": "sleep",
            "args": ["3000"],
            "network_mode": "none",
            **(config or {}),
        },
    }
    return job


def container_cores(agent: Agent, job: str) -> list[int]:
    """The cores on which a command in the running container of a job may run."""
    (alloc,) = agent.running(job, 1)
    found = agent.cli("alloc", "exec", "-t=false", alloc["ID"], "grep", "Cpus_allowed_list", "/proc/self/status")
    return sorted(parse_cores(found.stdout.partition(":")[2]))


def limits(agent: Agent, job: str) -> list[str]:
    """The limits of memory, CPU and processes of the running container of a job, as its kernel has them."""
    (alloc,) = agent.running(job, 1)
    files = ("memory.max", "cpu.weight", "cpu.max", "pids.max")
    v1 = ("memory/memory.limit_in_bytes", "cpu/cpu.shares", "cpu/cpu.cfs_quota_us", "pids/pids.max")
    paths = " ".join(f"/sys/fs/cgroup/{name}" for name in (*files, *v1))
    found = agent.cli("alloc", "exec", "-t=false", alloc["ID"], "sh", "-c", f"grep -H . {paths} 2>/dev/null; true")
    return sorted(found.stdout.splitlines())


def test_containers_and_processes_leave_reserved_cores(engine: Engine, engine_agent: Agent) -> None:
    agent = engine_agent
    register(agent, container_job(engine, "shared", config={"pids_limit": 77}, CPU=10))
    register(agent, job_of("process", CPU=10))
    assert (container_cores(agent, "shared"), allowed(agent, "process")) == (CORES, CORES)

    limited = limits(agent, "shared")
    assert any("memory" in line for line in limited) and any(line.endswith(":77") for line in limited), limited

    register(agent, container_job(engine, "own", Cores=1))
    own = container_cores(agent, "own")
    rest = [core for core in CORES if core not in own]
    assert len(own) == 1
    wait_for("the process to leave the core", lambda: allowed(agent, "process") == rest)
    wait_for("the container to leave the core", lambda: container_cores(agent, "shared") == rest)
    assert limits(agent, "shared") == limited
    register(agent, container_job(engine, "late", config={"cpuset_cpus": ",".join(map(str, CORES))}, CPU=10))
    wait_for("a later container to leave it", lambda: container_cores(agent, "late") == rest)

    agent.kill()
    agent.start()
    wait_for("the container to be found again", lambda: container_cores(agent, "own") == own)
    assert container_cores(agent, "shared") == rest
    wait_for("the process to stay", lambda: allowed(agent, "process") == rest)

    agent.cli("job", "stop", "-purge", "-yes", "own")
    for name in ("shared", "late"):
        wait_for("containers to have all cores again", lambda name=name: container_cores(agent, name) == CORES)
    wait_for("the process to have all cores again", lambda: allowed(agent, "process") == CORES)


def test_containers_leave_the_cores_of_a_process(engine: Engine, engine_agent: Agent) -> None:
    register(engine_agent, container_job(engine, "shared", CPU=10))
    engine_agent.running("shared", 1)
    register(engine_agent, job_of("own", Cores=1))
    rest = [core for core in CORES if core not in allowed(engine_agent, "own")]
    wait_for("the container to leave the core", lambda: container_cores(engine_agent, "shared") == rest)
    engine_agent.kill()
    start_again(engine_agent)
    engine_agent.cli("job", "stop", "-purge", "-yes", "own")
    wait_for("the container to have all cores", lambda: container_cores(engine_agent, "shared") == CORES)


def start_again(agent: Agent) -> None:
    """Start the next agent, and wait for its tasks."""
    agent.start()
    for name in ("shared", "own"):
        agent.running(name, 1)
