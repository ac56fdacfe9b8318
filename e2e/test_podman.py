"""Containers under the real agent and a real podman: they run, log, answer, survive, and leave nothing behind."""

from __future__ import annotations

import http.client
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for
from yurt.testing.services.engines import PodmanEngine, missing

REASON = missing("podman", "runc", "conmon", "busybox")
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)
COUNTING = "trap exit TERM; i=0; while true; do i=$((i+1)); echo $i; sleep 0.2; done"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodmanEngine]:
    """A running engine with a small image."""
    made = PodmanEngine(tmp_path_factory.mktemp("podman"))
    try:
        made.start()
        made.import_image()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def agent(engine: PodmanEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """One agent for the tests that leave it alive."""
    with running_agent(tmp_path_factory.mktemp("agent"), extra=plugin(engine)) as agent:
        yield agent


def plugin(engine: PodmanEngine) -> dict[str, Any]:
    """The agent's settings for this engine."""
    return {"plugin": [{"podman": [{"config": [{"socket_path": str(engine.socket)}]}]}]}


def container_job(job_id: str, script: str, *, kind: str = "service", count: int = 1, **config: Any) -> dict[str, Any]:
    """A job of containers that run a script."""
    job = raw_exec_job(job_id, "", kind=kind, count=count)
    task = job["TaskGroups"][0]["Tasks"][0]
    task["Driver"] = "podman"
    command = {"image": PodmanEngine.image, "command": "/bin/sh", "args": ["-c", script], "network_mode": "none"}
    task["Config"] = command | config
    restart = {"Attempts": 3, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 100_000_000}
    job["TaskGroups"][0]["RestartPolicy"] = restart
    return job


def without_retries(job: dict[str, Any]) -> dict[str, Any]:
    """The job fails at its first failure."""
    job["TaskGroups"][0] |= {
        "RestartPolicy": {"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 1_000_000_000},
        "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
    }
    return job


def failure(agent: Agent, job_id: str) -> str:
    """All event texts of the job's failed allocation."""
    failed = wait_for("a failure", lambda: [a for a in agent.allocs(job_id) if a["ClientStatus"] == "failed"])
    return " ".join(event["DisplayMessage"] for event in failed[0]["TaskStates"]["main"]["Events"])


def ids(engine: PodmanEngine, alloc: dict[str, Any]) -> list[str]:
    """The containers of an allocation."""
    label = f"label=com.hashicorp.nomad.alloc_id={alloc['ID']}"
    return engine.run("ps", "--quiet", "--no-trunc", "--filter", label).stdout.decode().split()


def node_with_podman(agent: Agent) -> dict[str, Any] | None:
    """The node once its driver has told of the engine; None before."""
    node = agent.get(f"/v1/node/{agent.get('/v1/nodes')[0]['ID']}")
    return node if "podman" in node["Drivers"] else None


def test_the_node_tells_of_its_engine(agent: Agent) -> None:
    node = wait_for("the driver", lambda: node_with_podman(agent))
    assert node["Drivers"]["podman"]["Healthy"]
    assert node["Attributes"]["driver.podman.rootless"] == "false"
    assert node["Attributes"]["driver.podman.version"].count(".") == 2


def test_a_container_logs_answers_commands_and_signals_restarts_and_stops(engine: PodmanEngine, agent: Agent) -> None:
    script = "trap 'echo caught' HUP; trap exit TERM; echo from $NOMAD_ALLOC_NAME; while true; do sleep 0.1; done"
    register(agent, container_job("web", script))
    alloc = agent.running("web", 1)[0]
    first = ids(engine, alloc)

    assert wait_for("a log", lambda: agent.cli("alloc", "logs", alloc["ID"]).stdout) == f"from {alloc['Name']}\n"
    assert agent.cli("alloc", "exec", "-i=false", "-t=false", alloc["ID"], "cat", "/proc/1/comm").stdout == "sh\n"
    agent.cli("alloc", "signal", "-s", "SIGHUP", alloc["ID"])
    wait_for("the signal", lambda: "caught" in agent.cli("alloc", "logs", alloc["ID"]).stdout)
    stats = agent.get(f"/v1/client/allocation/{alloc['ID']}/stats")
    assert stats["Tasks"]["main"]["ResourceUsage"]["MemoryStats"]["RSS"] > 0

    agent.cli("alloc", "restart", alloc["ID"])
    wait_for("another container", lambda: ids(engine, alloc) not in ([], first))
    agent.cli("job", "stop", "-purge", "web")
    wait_for("no container", lambda: not ids(engine, alloc))


def test_failures_are_told(agent: Agent) -> None:
    register(agent, without_retries(container_job("seven", "exit 7", kind="batch")))
    absent = container_job("absent", "true", kind="batch", image="127.0.0.1:9/absent:1")
    register(agent, without_retries(absent))
    greedy = container_job("greedy", "sleep 1; x=a; while true; do x=$x$x; done", kind="batch")
    greedy["TaskGroups"][0]["Tasks"][0]["Resources"] = {"CPU": 100, "MemoryMB": 16}
    register(agent, without_retries(greedy))
    register(agent, without_retries(container_job("rights", "true", kind="batch", privileged=True)))

    assert "Exit Code: 7" in failure(agent, "seven")
    assert "127.0.0.1:9/absent" in failure(agent, "absent")
    assert "OOM" in failure(agent, "greedy")
    assert "allow_privileged" in failure(agent, "rights")


def test_a_mapped_port_answers_with_what_lies_in_a_volume(engine: PodmanEngine, agent: Agent) -> None:
    serve = "echo hello from the volume > /data/index.html; exec /bin/httpd -f -p 8080 -h /data"
    job = container_job("http", serve, network_mode="bridge", ports=["http"], volumes=["local/data:/data"])
    job["TaskGroups"][0]["Networks"] = [{"DynamicPorts": [{"Label": "http", "To": 8080}]}]
    job["TaskGroups"][0]["Tasks"][0]["Templates"] = [{"EmbeddedTmpl": "made", "DestPath": "local/data/other.txt"}]
    register(agent, job)
    alloc = agent.get(f"/v1/allocation/{agent.running('http', 1)[0]['ID']}")
    port = alloc["AllocatedResources"]["Shared"]["Ports"][0]["Value"]

    def answer(path: str) -> str:
        try:
            connection = http.client.HTTPConnection(host_address(alloc), port, timeout=5)
            connection.request("GET", path)
            return connection.getresponse().read().decode()
        except OSError:
            return ""

    assert wait_for("an answer", lambda: answer("/index.html")) == "hello from the volume\n"
    assert answer("/other.txt") == "made"
    agent.cli("job", "stop", "-purge", "http")
    wait_for("no container", lambda: not ids(engine, alloc))


def host_address(alloc: dict[str, Any]) -> str:
    """Where the host listens for the allocation's port."""
    return str(alloc["AllocatedResources"]["Shared"]["Ports"][0]["HostIP"])


def test_containers_outlive_their_agent_and_their_engine(engine: PodmanEngine, tmp_path: Path) -> None:
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra=plugin(engine)) as agent:
        register(agent, container_job("kept", COUNTING, count=2))
        allocs = agent.running("kept", 2)
        before = {alloc["ID"]: ids(engine, alloc) for alloc in allocs}

        agent.kill()
        engine.kill()
        engine.start()
        agent.start()

        assert {alloc["ID"]: ids(engine, alloc) for alloc in agent.running("kept", 2)} == before
        one = allocs[0]["ID"]
        numbers = [int(line) for line in agent.cli("alloc", "logs", one).stdout.split()]
        assert numbers == list(range(1, len(numbers) + 1))
        engine.kill()
        os.kill(pid_of(engine, before[one][0]), signal.SIGKILL)
        engine.start()
        wait_for("a new container", lambda: ids(engine, allocs[0]) not in ([], before[one]))


def pid_of(engine: PodmanEngine, container_id: str) -> int:
    """The first process of a container that runs."""
    pid = int(json.loads(engine.run("inspect", container_id).stdout)[0]["State"]["Pid"])
    assert pid > 0, "kill(2) takes 0 for the tests themselves"
    return pid


def test_tasks_that_a_restart_of_the_machine_ended_are_started_again(engine: PodmanEngine, tmp_path: Path) -> None:
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra=plugin(engine)) as agent:
        register(agent, container_job("again", COUNTING))
        alloc = agent.running("again", 1)[0]
        before = ids(engine, alloc)

        agent.kill()
        engine.run("rm", "--force", "--time", "0", *before)
        agent.start()

        wait_for("a new container", lambda: ids(engine, alloc) not in ([], before))
        agent.cli("job", "stop", "-purge", "again")
        wait_for("no container", lambda: not ids(engine, alloc))


def test_containers_of_a_dev_agent_end_with_it_even_when_it_is_killed(engine: PodmanEngine, tmp_path: Path) -> None:
    with running_agent(tmp_path, extra=plugin(engine)) as agent:
        register(agent, container_job("brief", COUNTING, count=2))
        allocs = agent.running("brief", 2)
        agent.kill()
        wait_for("no container left", lambda: not any(ids(engine, alloc) for alloc in allocs))


def test_containers_of_an_agent_that_is_gone_are_found_and_removed(engine: PodmanEngine, tmp_path: Path) -> None:
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra=plugin(engine)) as agent:
        register(agent, container_job("left", "sleep 1000"))
        agent.running("left", 1)
        agent.kill()
        others = len(engine.containers()) - 1
        words = ("doctor", "-json", "-config", str(agent.config))
        listed = agent.cli(*words, "-leftovers")
        (found,) = [each for each in json.loads(listed.stdout) if each["kind"] == "container"]
        assert (listed.returncode, found["state"]) == (1, "found"), listed.stdout
        assert "/main/0" in found["detail"]
        removed = agent.cli(*words, "-clean")
        assert removed.returncode == 0, removed.stdout
        assert len(engine.containers()) == others
