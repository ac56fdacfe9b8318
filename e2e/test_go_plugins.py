"""Driver binaries in plugin_dir: a job runs in them, and outlives the death of the agent and of the plugin."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, pid_is_alive, raw_exec_job, register, running_agent, wait_for
from yurt.testing.processes import IsMeant, ended_at_exit, processes

TASKS = 3
TICKER = 'echo $$ > "$NOMAD_TASK_DIR/pid"; i=0; while true; do i=$((i+1)); echo $i; sleep 0.2; done'


def plugin_folder(folder: Path) -> Path:
    """A plugin_dir with one driver of ours offered by Nomad's protocol, one program that is no plugin, and a text."""
    plugins = folder / "plugins"
    plugins.mkdir()
    serve = f'exec {sys.executable} -m yurt.cli.main driver serve -state-dir "{folder}/served" raw_exec'
    for name, body in {"raw_exec": f"#!/bin/sh\n{serve}\n", "broken": "#!/bin/sh\necho hello; exit 1\n"}.items():
        (plugins / name).write_text(body)
        (plugins / name).chmod(0o755)
    (plugins / "README.txt").write_text("not to be run")
    return plugins


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """An agent with a data directory and these plugins."""
    extra = {
        "plugin_dir": str(plugin_folder(tmp_path)),
        "plugin": {"raw_exec": {"config": {"enabled": True, "denied_envvars": ["HIDDEN"]}}},
    }
    with ended_at_exit(serves(tmp_path)), running_agent(tmp_path, data_dir=tmp_path / "data", extra=extra) as agent:
        yield agent


def serves(folder: Path) -> IsMeant:
    """Whether a command line is that of our plugin."""
    return lambda words: {"serve", f"{folder}/served"} <= set(words)


def plugin_pids(folder: Path) -> set[int]:
    return {process.pid for process in processes(serves(folder))}


def statuses(agent: Agent) -> dict[str, dict[str, Any]]:
    return {each["Name"]: each for each in agent.get("/v1/yurt/plugins")}


def pid_of(agent: Agent, alloc_id: str) -> int:
    """The pid that the task wrote down at its start."""
    path = Path(str(agent.data_dir)) / "alloc" / alloc_id / "main" / "local" / "pid"
    return int(wait_for("a pid file", lambda: path.exists() and path.read_text().strip()))


def lines(agent: Agent, alloc_id: str) -> list[int]:
    return [int(line) for line in agent.cli("alloc", "logs", alloc_id).stdout.split()]


def assert_no_line_was_lost(agent: Agent, alloc_id: str) -> None:
    """The log counts without a gap, and goes on."""
    first = lines(agent, alloc_id)
    wait_for("more lines", lambda: len(lines(agent, alloc_id)) > len(first) + 1)
    numbers = lines(agent, alloc_id)
    assert numbers == list(range(1, len(numbers) + 1))


def test_a_driver_binary_runs_jobs_that_survive_agent_and_plugin(agent: Agent, tmp_path: Path) -> None:
    found = statuses(agent)
    assert found["broken"]["State"] == "failed" and "instead of the handshake" in found["broken"]["Reason"]
    assert any(each["Distribution"] == str(tmp_path / "plugins" / "raw_exec") for each in agent.get("/v1/yurt/plugins"))
    register(agent, raw_exec_job("many", "/bin/sh", "-c", TICKER, count=TASKS))
    pids = {alloc["ID"]: pid_of(agent, alloc["ID"]) for alloc in agent.running("many", TASKS)}

    agent.kill()
    assert all(pid_is_alive(pid) for pid in pids.values())
    agent.start()
    after = {alloc["ID"]: alloc for alloc in agent.running("many", TASKS)}
    assert {alloc_id: pid_of(agent, alloc_id) for alloc_id in after} == pids
    assert_no_line_was_lost(agent, next(iter(pids)))

    [plugin] = plugin_pids(tmp_path)
    os.kill(plugin, signal.SIGKILL)
    wait_for("another process of the plugin", lambda: plugin_pids(tmp_path) - {plugin})
    assert all(pid_is_alive(pid) for pid in pids.values())
    assert_no_line_was_lost(agent, next(iter(pids)))
    agent.cli("job", "stop", "-purge", "many")
    wait_for("the end of all tasks", lambda: not any(pid_is_alive(pid) for pid in pids.values()))


def test_options_are_checked_by_the_schema_of_the_binary(agent: Agent) -> None:
    job = raw_exec_job("wrong", "/bin/true", kind="batch")
    job["TaskGroups"][0]["Tasks"][0]["Config"]["comand"] = "x"
    answer = agent.call("PUT", "/v1/validate/job", {"Job": job})
    assert 'did you mean "command"?' in str(answer)


def test_a_device_binary_gives_its_devices_to_a_task(tmp_path: Path) -> None:
    program = Path(__file__).parents[1] / "tests" / "goplugin" / "device_plugin.py"
    plugins = tmp_path / "devices"
    plugins.mkdir()
    start = f'exec {sys.executable} {program} "$PLUGIN_UNIX_SOCKET_DIR/device.sock" "{tmp_path}/second"'
    (plugins / "acme").write_text(f"#!/bin/sh\n{start}\n")
    (plugins / "acme").chmod(0o755)
    with running_agent(tmp_path, extra={"plugin_dir": str(plugins)}) as agent:
        assert statuses(agent)["acme"]["Devices"] == ["acme"]
        job = raw_exec_job("gpu", "/bin/sh", "-c", 'echo "sees $ACME_VISIBLE"; sleep 1000')
        job["TaskGroups"][0]["Tasks"][0]["Resources"]["Devices"] = [{"Name": "acme/gpu", "Count": 1}]
        register(agent, job)
        [alloc] = agent.running("gpu", 1)
        wait_for("the variable", lambda: "sees one" in agent.cli("alloc", "logs", alloc["ID"]).stdout)
        [plugin, *_] = processes(lambda words: str(program) in words)
        agent.kill()
        wait_for("the end of a dev agent's plugin", lambda: not plugin.is_running())
