"""A package from outside the workspace, e2e/site_tools: its hooks of tasks and allocations, its service provider, its
fingerprint, its artifact getter, its commands and its log engine do their work in a real agent, over a kill of it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for
from yurt.testing.page_package import lay_package

PACKAGE = Path(__file__).resolve().parent / "site_tools"


@pytest.fixture
def services(tmp_path: Path) -> Path:
    """The folder of the package's directory of services."""
    return tmp_path / "services"


@pytest.fixture
def depot() -> Iterator[Path]:
    """The folder of the package's artifacts; downloads run as nobody where the agent is root."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "hello.txt").write_text("hello from the depot\n")
        yield Path(folder)


@pytest.fixture
def agent(tmp_path: Path, services: Path, depot: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Agent]:
    """An agent beside which the package is installed; its state lies in the package's journal."""
    lay_package(PACKAGE, tmp_path / "site")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "site"), *sys.path]))
    config = {"site": "cellar", "folder": str(services), "licences": {"cad": 1}}
    (tmp_path / "rack").write_text("row = 7\n")
    plugins = {"site-tools": config, "rack": {"file": str(tmp_path / "rack")}, "depot": {"folder": str(depot)}}
    extra = {
        "plugin": {name: {"config": given} for name, given in plugins.items()},
        "server": {"enabled": True, "bootstrap_expect": 1, "raft_logstore": {"backend": "journal"}},
        "client": {
            "enabled": True,
            "options": {"driver.raw_exec.enable": "1"},
            "artifact": {"filesystem_isolation_extra_paths": [f"d:r:{depot}"]},
        },
    }
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra=extra) as started:
        yield started


def test_a_job_runs_with_the_task_hook_and_the_provider(agent: Agent, services: Path) -> None:
    register(agent, job("web", facts="short"))
    (alloc,) = agent.running("web", 1)
    facts = agent.cli("alloc", "fs", alloc["ID"], "main/local/facts.json").stdout
    assert json.loads(facts) == {"site": "cellar", "job": "web"}
    assert agent.cli("alloc", "logs", alloc["ID"]).stdout == "cellar\n"
    (entry,) = wait_for("the service", lambda: list(services.glob("*")) if services.exists() else None)

    agent.kill()
    entry.unlink()
    agent.start()

    wait_for("the service again", lambda: list(services.glob("*")) == [entry])
    assert [each["ID"] for each in agent.running("web", 1)] == [alloc["ID"]]
    agent.call("DELETE", "/v1/job/web")
    wait_for("the end", lambda: "run 0 ended with" in events(agent, "web"))
    wait_for("the service gone", lambda: not list(services.glob("*")))


def test_the_list_of_plugins_names_hooks_and_service_providers(agent: Agent) -> None:
    (row,) = [line for line in agent.cli("plugin", "list").stdout.splitlines() if line.startswith("site-tools")]
    assert "task hook facts, allocation hook licences, service provider directory" in row


def test_the_command_the_getter_and_the_log_engine_of_the_package_are_used(agent: Agent, tmp_path: Path) -> None:
    expected = job("fetched")
    task = expected["TaskGroups"][0]["Tasks"][0]
    task["Artifacts"] = [{"GetterSource": "depot::hello.txt"}]
    task["Config"] = {"command": "/bin/sh", "args": ["-c", "cat local/hello.txt; exec sleep 600"]}
    expected["Constraints"] = [{"LTarget": "${attr.artifact.getter.depot}", "Operand": "=", "RTarget": "true"}]
    register(agent, expected)
    (alloc,) = agent.running("fetched", 1)
    output = wait_for("the output", lambda: agent.cli("alloc", "logs", alloc["ID"]).stdout)
    assert output == "hello from the depot\n"

    listed = agent.cli("racks", "list", "-row", "7")
    assert (listed.returncode, listed.stdout.split()) == (0, ["Row", "Node", "Status", "7", "e2e", "ready"])
    absent = agent.cli("racks", "list", "-row", "8")
    assert (absent.returncode, absent.stderr) == (1, "no node tells its row as 8; is the fingerprint set up?\n")

    journal = tmp_path / "data" / "server" / "engines" / "journal" / "journal"
    assert b'"first": 1' in journal.read_bytes()


def test_a_task_reads_the_attributes_of_the_fingerprint(agent: Agent) -> None:
    expected = job("placed")
    expected["Constraints"] = [{"LTarget": "${attr.rack.row}", "Operand": "=", "RTarget": "7"}]
    expected["TaskGroups"][0]["Tasks"][0]["Env"] = {"SITE": "${attr.rack.row}"}
    register(agent, expected)
    (alloc,) = agent.running("placed", 1)
    wait_for("the output", lambda: agent.cli("alloc", "logs", alloc["ID"]).stdout)
    assert agent.cli("alloc", "logs", alloc["ID"]).stdout == "7\n"


def test_what_the_task_hook_refuses_fails_the_task_with_its_name(agent: Agent) -> None:
    register(agent, job("odd", facts="loud"))
    wait_for("the refusal", lambda: 'hook "facts": meta facts = "loud" must be' in events(agent, "odd"))


def test_the_allocation_hook_keeps_its_count_over_a_kill_of_the_agent(agent: Agent) -> None:
    register(agent, job("first", licence="cad"))
    (alloc,) = agent.running("first", 1)

    agent.kill()
    agent.start()

    register(agent, job("second", licence="cad"))
    wait_for("the refusal", lambda: 'hook "licences": no licence for cad is free' in events(agent, "second"))
    assert [each["ID"] for each in agent.running("first", 1)] == [alloc["ID"]]
    agent.call("DELETE", "/v1/job/first")
    agent.running("second", 1)


def job(name: str, *, facts: str = "", licence: str = "") -> dict[str, Any]:
    """A task that wants a hook and has a service of the package's provider; one that fails is soon placed again."""
    made = raw_exec_job(name, "/bin/sh", "-c", "echo $SITE; exec sleep 600")
    group = made["TaskGroups"][0]
    task = group["Tasks"][0]
    group["Meta"] = {"licence": licence} if licence else {}
    task["Meta"] = {"facts": facts} if facts else {}
    task["Services"] = [{"Name": name, "Provider": "directory"}]
    task["RestartPolicy"] = {"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 1_000_000_000}
    group["ReschedulePolicy"] = {"Unlimited": True, "Delay": 5_000_000_000, "DelayFunction": "constant"}
    return made


def events(agent: Agent, name: str) -> str:
    """What the events of the job's tasks say."""
    texts = []
    for alloc in agent.allocs(name):
        for state in (agent.get(f"/v1/allocation/{alloc['ID']}")["TaskStates"] or {}).values():
            texts += [event["DisplayMessage"] for event in state["Events"] or []]
    return "\n".join(texts)
