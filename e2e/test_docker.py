"""Containers under the real agent and a real Docker engine: they run, log, survive, and leave nothing behind."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for
from yurt.testing.services.engines import DockerEngine, missing, running_engine

REASON = missing("dockerd", "containerd", "docker", "busybox", "ip")
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)
IMAGE = DockerEngine.image
COUNTING = "trap exit TERM; i=0; while true; do i=$((i+1)); echo $i; sleep 0.2; done"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerEngine]:
    """A running engine with a small image."""
    with running_engine(DockerEngine(tmp_path_factory.mktemp("docker"))) as started:
        yield started


@pytest.fixture(scope="module")
def shared_agent(engine: DockerEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    """One agent for tests whose containers never start; a dev agent would allow folders of the host."""
    options = {"endpoint": engine.endpoint, "volumes": {"enabled": False}}
    with running_agent(tmp_path_factory.mktemp("agent"), extra={"plugin": {"docker": {"config": options}}}) as agent:
        yield agent


def plugin(engine: DockerEngine) -> dict[str, Any]:
    """The agent's settings for this engine."""
    return {"plugin": [{"docker": [{"config": [{"endpoint": engine.endpoint}]}]}]}


def container_job(job_id: str, script: str, *, kind: str = "service", count: int = 1, **config: Any) -> dict[str, Any]:
    """A job of containers that run a script."""
    job = raw_exec_job(job_id, "", kind=kind, count=count)
    task = job["TaskGroups"][0]["Tasks"][0]
    task["Driver"] = "docker"
    command = {"image": IMAGE, "command": "/bin/sh", "args": ["-c", script], "network_mode": "none"}
    task["Config"] = command | config
    restart = {"Attempts": 5, "Mode": "delay", "Interval": 60_000_000_000, "Delay": 100_000_000}
    job["TaskGroups"][0]["RestartPolicy"] = restart
    return job


def test_containers_run_log_and_end_with_their_agent(engine: DockerEngine, tmp_path: Path) -> None:
    with running_agent(tmp_path, extra=plugin(engine)) as agent:
        register(agent, container_job("web", "trap exit TERM; echo from $NOMAD_ALLOC_NAME; sleep 1000 & wait", count=3))
        allocs = agent.running("web", 3)
        logs = wait_for("a log", lambda: agent.cli("alloc", "logs", allocs[0]["ID"]).stdout)
        assert len(engine.containers()) == 3
        assert agent.interrupt() == 0

    assert logs == f"from {allocs[0]['Name']}\n"
    wait_for("no container left", lambda: not engine.containers())


def test_an_exit_code_and_a_missing_image_are_told(engine: DockerEngine, tmp_path: Path) -> None:
    with running_agent(tmp_path, extra=plugin(engine)) as agent:
        register(agent, without_retries(container_job("seven", "exit 7", kind="batch")))
        missing = without_retries(container_job("missing", "true", kind="batch"))
        missing["TaskGroups"][0]["Tasks"][0]["Config"]["image"] = "127.0.0.1:9/absent:1"
        register(agent, missing)

        assert "Exit Code: 7" in failure(agent, "seven")
        assert "127.0.0.1:9/absent" in failure(agent, "missing")


def test_containers_survive_the_death_of_their_agent(engine: DockerEngine, tmp_path: Path) -> None:
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra=plugin(engine)) as agent:
        register(agent, container_job("kept", COUNTING, count=3))
        before = {alloc["ID"] for alloc in agent.running("kept", 3)}
        containers = set(engine.containers())

        agent.kill()
        agent.start()

        assert {alloc["ID"] for alloc in agent.running("kept", 3)} == before
        assert set(engine.containers()) == containers
        one = next(iter(before))
        numbers = [int(line) for line in agent.cli("alloc", "logs", one).stdout.split()]
        assert numbers == list(range(1, len(numbers) + 1))

    wait_for("no container left", lambda: not engine.containers())


def test_containers_of_a_dev_agent_end_with_it_even_when_it_is_killed(engine: DockerEngine, tmp_path: Path) -> None:
    with running_agent(tmp_path, extra=plugin(engine)) as agent:
        register(agent, container_job("brief", COUNTING, count=2))
        agent.running("brief", 2)
        agent.kill()
        wait_for("no container left", lambda: not engine.containers())


def test_a_mapped_port_answers_with_what_lies_in_a_volume(engine: DockerEngine, tmp_path: Path) -> None:
    with running_agent(tmp_path, extra=plugin(engine)) as agent:
        serve = "echo hello from the volume > /data/index.html; exec httpd -f -p 8080 -h /data"
        job = container_job("http", serve, network_mode="default", ports=["http"], volumes=["local/data:/data"])
        job["TaskGroups"][0]["Networks"] = [{"DynamicPorts": [{"Label": "http", "To": 8080}]}]
        register(agent, job)
        alloc = agent.get(f"/v1/allocation/{agent.running('http', 1)[0]['ID']}")
        port = alloc["AllocatedResources"]["Shared"]["Ports"][0]
        assert wait_for("an answer", lambda: answer(port["HostIP"], port["Value"])) == "hello from the volume\n"


def answer(host: str, port: int) -> str:
    """What a server says; nothing while it does not."""
    try:
        connection = http.client.HTTPConnection(host, port, timeout=5)
        connection.request("GET", "/index.html")
        return connection.getresponse().read().decode()
    except OSError:
        return ""


def test_tasks_are_started_again_when_their_engine_took_them_with_it(tmp_path: Path) -> None:
    """Without live-restore an engine kills what runs when it comes back; a restart of the machine looks the same."""
    for name in ("agent", "docker"):
        (tmp_path / name).mkdir()
    engine = DockerEngine(tmp_path / "docker", options=())
    try:
        engine.start()
        engine.import_image()
        with running_agent(tmp_path / "agent", data_dir=tmp_path / "data", extra=plugin(engine)) as agent:
            register(agent, container_job("again", COUNTING, count=2))
            agent.running("again", 2)
            before = set(engine.containers())

            engine.kill()
            engine.start()
            running = wait_for("new containers", lambda: replaced(engine, before))

            agent.kill()
            engine.run("rm", "--force", *running)
            agent.start()
            wait_for("new containers after a restart of the machine", lambda: replaced(engine, running))
    finally:
        engine.stop()


def replaced(engine: DockerEngine, before: set[str]) -> set[str]:
    """Two running containers, none of which is an old one; nothing while it is not so."""
    found = set(engine.run("ps", "--quiet", "--no-trunc").stdout.decode().split())
    return found if len(found) == 2 and not found & before else set()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"privileged": "${NOMAD_META_yes}"}, "allow_privileged = true"),
        ({"volumes": ["${NOMAD_META_host}:/host"]}, "leads out of the allocation"),
        ({"mount": [{"type": "bind", "source": "${NOMAD_META_up}", "target": "/host"}]}, "leads out of the allocation"),
        ({"cap_add": ["${NOMAD_META_cap}"]}, "allow_caps"),
        ({"pid_mode": "${NOMAD_META_mode}"}, "allowed_modes"),
        ({"ipc_mode": "${NOMAD_META_mode}"}, "allowed_modes"),
        ({"runtime": "${NOMAD_META_mode}"}, "allow_runtimes"),
    ],
)
def test_what_is_not_allowed_is_refused_however_it_is_written(
    shared_agent: Agent, config: dict[str, Any], reason: str
) -> None:
    name = f"forbidden-{next(iter(config))}"
    job = without_retries(container_job(name, "sleep 1000", **config))
    job["Meta"] = {"yes": "true", "host": "/etc", "up": "../../../../../../../etc", "cap": "sys_admin", "mode": "host"}
    register(shared_agent, job)
    assert reason in failure(shared_agent, name)


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
