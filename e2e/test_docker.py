"""Containers under the real agent and a real Docker engine: they run, log, survive, and leave nothing behind."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for

IMAGE = "yurt-e2e:1"

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("dockerd") or not shutil.which("busybox"),
    reason="needs root, dockerd (apt install docker.io) and busybox (apt install busybox-static)",
)


class Engine:
    """A Docker engine of our own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.endpoint = f"unix://{folder}/docker.sock"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        arguments = ["dockerd", "-H", self.endpoint, "--data-root", str(self.folder / "data"), "--exec-root"]
        arguments += [
            str(self.folder / "exec"),
            "--pidfile",
            str(self.folder / "pid"),
            "--bridge=none",
            "--iptables=false",
        ]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(arguments, stdout=log, stderr=log)
        wait_for("the engine to answer", lambda: self.docker("info", check=False).returncode == 0, 60)

    def stop(self) -> None:
        """End it in order."""
        assert self.process is not None
        self.process.terminate()
        self.process.wait(timeout=60)

    def docker(
        self, *arguments: str, check: bool = True, data: bytes | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        """One command of the client."""
        command = ["docker", "-H", self.endpoint, *arguments]
        return subprocess.run(command, input=data, capture_output=True, timeout=60, check=check)

    def containers(self) -> list[str]:
        """Ids of all containers, ended ones included."""
        return self.docker("ps", "-aq").stdout.decode().split()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """A running engine with a small image."""
    made = Engine(tmp_path_factory.mktemp("docker"))
    made.start()
    try:
        root = tmp_path_factory.mktemp("image")
        (root / "bin").mkdir()
        shutil.copy(shutil.which("busybox") or "", root / "bin" / "busybox")
        for name in ("sh", "sleep", "echo", "cat", "ls"):
            (root / "bin" / name).symlink_to("busybox")
        archive = subprocess.run(
            ["tar", "-C", str(root), "-c", "."], capture_output=True, check=True, timeout=60
        ).stdout
        made.docker("import", "-", IMAGE, data=archive)
        yield made
    finally:
        made.stop()


def plugin(engine: Engine) -> dict[str, Any]:
    """The agent's settings for this engine."""
    return {"plugin": [{"docker": [{"config": [{"endpoint": engine.endpoint}]}]}]}


def container_job(job_id: str, script: str, *, kind: str = "service", count: int = 1) -> dict[str, Any]:
    """A job of containers that run a script."""
    job = raw_exec_job(job_id, "", kind=kind, count=count)
    task = job["TaskGroups"][0]["Tasks"][0]
    task["Driver"] = "docker"
    task["Config"] = {"image": IMAGE, "command": "/bin/sh", "args": ["-c", script], "network_mode": "none"}
    return job


def test_containers_run_log_and_end_with_their_agent(engine: Engine, tmp_path: Path) -> None:
    with running_agent(tmp_path, extra=plugin(engine)) as agent:
        register(agent, container_job("web", "echo from $NOMAD_ALLOC_NAME; sleep 1000", count=3))
        allocs = agent.running("web", 3)
        logs = wait_for("a log", lambda: agent.cli("alloc", "logs", allocs[0]["ID"]).stdout)
        assert len(engine.containers()) == 3
        assert agent.interrupt(60) == 0

    assert logs == f"from {allocs[0]['Name']}\n"
    wait_for("no container left", lambda: not engine.containers(), 30)


def test_an_exit_code_and_a_missing_image_are_told(engine: Engine, tmp_path: Path) -> None:
    with running_agent(tmp_path, extra=plugin(engine)) as agent:
        register(agent, without_retries(container_job("seven", "exit 7", kind="batch")))
        missing = without_retries(container_job("missing", "true", kind="batch"))
        missing["TaskGroups"][0]["Tasks"][0]["Config"]["image"] = "127.0.0.1:9/absent:1"
        register(agent, missing)

        assert "Exit Code: 7" in failure(agent, "seven")
        assert "127.0.0.1:9/absent" in failure(agent, "missing")


def test_containers_survive_the_death_of_their_agent(engine: Engine, tmp_path: Path) -> None:
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra=plugin(engine)) as agent:
        register(agent, container_job("kept", "i=0; while true; do i=$((i+1)); echo $i; sleep 0.2; done", count=3))
        before = {alloc["ID"] for alloc in agent.running("kept", 3)}
        containers = set(engine.containers())

        agent.kill()
        agent.start()

        assert {alloc["ID"] for alloc in agent.running("kept", 3)} == before
        assert set(engine.containers()) == containers
        one = next(iter(before))
        numbers = [int(line) for line in agent.cli("alloc", "logs", one).stdout.split()]
        assert numbers == list(range(1, len(numbers) + 1))

    wait_for("no container left", lambda: not engine.containers(), 30)


def without_retries(job: dict[str, Any]) -> dict[str, Any]:
    """The job fails at its first failure."""
    job["TaskGroups"][0] |= {
        "RestartPolicy": {"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 1_000_000_000},
        "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
    }
    return job


def failure(agent: Agent, job_id: str) -> str:
    """All event texts of the job's failed allocation."""
    failed = wait_for("a failure", lambda: [a for a in agent.allocs(job_id) if a["ClientStatus"] == "failed"], 60)
    return " ".join(event["DisplayMessage"] for event in failed[0]["TaskStates"]["main"]["Events"])
