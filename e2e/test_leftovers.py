"""After an agent was killed for good, `yurt doctor -clean` removes what it left, and nothing of an agent that lives."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.client.networks.settings import CNI_PATHS
from yurt.sdk.mounting import points_below
from yurt.testing.agent import Agent, pid_is_alive, register, wait_for
from yurt.testing.services.engines import DockerEngine, missing, running_engine
from yurt.testing.unique_ports import own_subnet

REASON = missing("dockerd", "containerd", "docker", "busybox", "ip", "runc", "iptables")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="tasks are isolated by root on Linux"),
    pytest.mark.skipif(bool(REASON), reason=REASON),
    pytest.mark.skipif(
        not any(Path(folder, "bridge").exists() for folder in CNI_PATHS),
        reason="no CNI plugins are here (apt install containernetworking-plugins)",
    ),
]
NUMBER, SUBNET = own_subnet()
BRIDGE = f"yurt-left{NUMBER}"
SLEEP = {"command": "/bin/sleep", "args": ["3000"]}
BOTH = {"command": "/bin/sh", "args": ["-c", "sleep 3000 & sleep 3000"]}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DockerEngine]:
    with running_engine(DockerEngine(tmp_path_factory.mktemp("docker"))) as started:
        yield started


@pytest.fixture
def agent(tmp_path: Path, engine: DockerEngine) -> Iterator[Agent]:
    """An agent with a data directory, which runs; afterwards it does not."""
    client = {
        "enabled": True, "options": {"driver.raw_exec.enable": "1"}, "network_interface": "lo",
        "bridge_network_name": BRIDGE, "bridge_network_subnet": f"{SUBNET}.0/24",
    }  # fmt: skip
    plugin = {"docker": {"config": {"endpoint": engine.endpoint, "infra_image": DockerEngine.image}}}
    made = Agent(tmp_path, data_dir=tmp_path / "data", extra={"client": client, "plugin": plugin})
    try:
        made.start()
        yield made
    finally:
        made.kill()
        doctor(made, "-clean")
        subprocess.run(["ip", "link", "delete", BRIDGE], capture_output=True, check=False)
        shutil.rmtree(f"/run/yurt/cni/{BRIDGE}", ignore_errors=True)


def run_everything(agent: Agent) -> list[str]:
    """A task of each kind, those in bridge mode too; the ids of their allocations."""
    jobs = {
        "raw": job("raw", {}, raw_exec=BOTH),
        "isolated": job("isolated", {}, exec=SLEEP),
        "bridged": job("bridged", {"Mode": "bridge"}, exec=SLEEP),
        "contained": job("contained", {"Mode": "bridge"}, docker={"image": DockerEngine.image, **BOTH}),
    }
    for each in jobs.values():
        register(agent, each)
    return [agent.running(name, 1)[0]["ID"] for name in jobs]


def job(name: str, network: dict[str, Any], **task: dict[str, Any]) -> dict[str, Any]:
    ((driver, config),) = task.items()
    main = {"Name": "main", "Driver": driver, "Config": config, "Resources": {"CPU": 20, "MemoryMB": 64}}
    group = {"Name": "g", "Count": 1, "Tasks": [main], "Networks": [network] if network else []}
    return {"ID": name, "Name": name, "Type": "service", "TaskGroups": [group]}


def doctor(agent: Agent, *flags: str) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, what it found, and its complaint."""
    done = agent.cli("doctor", "-json", "-config", str(agent.config), *flags)
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else [], done.stderr


def remains(agent: Agent, engine: DockerEngine, allocs: list[str]) -> dict[str, list[str]]:
    """What there is on the host of these allocations, by kind."""
    scopes = {path.name for path in Path("/sys/fs/cgroup").glob("**/yurt.slice/*.scope")}
    shown = subprocess.run(["iptables-save"], capture_output=True, text=True, check=False).stdout
    return {
        "processes": [str(pid) for pid in task_pids(agent)],
        "cgroups": [name for name in scopes if any(alloc in name for alloc in allocs)],
        "containers": engine.containers(),
        "namespaces": [alloc for alloc in allocs if Path("/run/netns", alloc).exists()],
        "records": [alloc for alloc in allocs if Path("/run/yurt/networks", alloc).exists()],
        "mounts": list(points_below(str(agent.folder / "data"))),
        "rules": [alloc for alloc in allocs if alloc in shown],
    }


def task_pids(agent: Agent) -> list[int]:
    """Processes that work in the agent's allocations, and their shims."""
    beneath = os.fsencode(f"{agent.folder}/data/alloc/")
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and beneath in Path(entry, "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return [pid for pid in found if pid_is_alive(pid)]


def test_all_that_a_killed_agent_left_is_listed_and_removed(agent: Agent, engine: DockerEngine) -> None:
    allocs = run_everything(agent)
    code, _, complaint = doctor(agent, "-clean")
    assert code == 1 and "runs (pid" in complaint, "a live agent keeps everything"
    agent.kill()
    before = remains(agent, engine, allocs)
    assert all(before[kind] for kind in ("processes", "containers", "namespaces", "records", "mounts")), before

    code, listed, _ = doctor(agent, "-leftovers")
    assert code == 1 and {each["state"] for each in listed} == {"found"}
    kinds = {each["kind"] for each in listed}
    assert {"task", "isolated task", "container", "network", "mount"} <= kinds, kinds
    after = remains(agent, engine, allocs)
    assert after["containers"] == before["containers"] and after["mounts"] == before["mounts"], "nothing was changed"

    code, removed, _ = doctor(agent, "-clean")
    assert code == 0 and {each["state"] for each in removed} == {"removed"}, removed
    assert remains(agent, engine, allocs) == {kind: [] for kind in before}
    assert doctor(agent, "-leftovers")[:2] == (0, [])


def test_tasks_are_found_although_the_data_directory_is_gone(agent: Agent, engine: DockerEngine) -> None:
    allocs = run_everything(agent)
    agent.kill()
    for point in points_below(str(agent.folder / "data")):
        subprocess.run(["umount", "-l", point], check=False)
    shutil.rmtree(agent.folder / "data")
    code, removed, complaint = doctor(agent, "-clean")
    assert code == 0, (removed, complaint)
    left = remains(agent, engine, allocs)
    assert left == {kind: [] for kind in left}


def test_the_agent_starts_again_after_it(agent: Agent, engine: DockerEngine) -> None:
    run_everything(agent)
    agent.kill()
    assert doctor(agent, "-clean")[0] == 0
    agent.start()
    for name in ("raw", "isolated", "bridged", "contained"):
        wait_for(f"{name} to run again", lambda n=name: running_again(agent, n))


def running_again(agent: Agent, name: str) -> bool:
    return any(each["ClientStatus"] == "running" for each in agent.allocs(name))
