"""The hook and the service provider that docs/howto/write-a-hook.md makes: taken from the page, installed from outside
the workspace, held to the conformance suites, and used by a real agent over a kill of it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from yurt.testing.agent import Agent, raw_exec_job, register, running_agent, wait_for
from yurt.testing.page_package import lay_package, page_files, write_sources

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "write-a-hook.md"
FILES = {name: text for name, text in page_files(PAGE).items() if name.endswith((".toml", ".py"))}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page."""
    folder = tmp_path_factory.mktemp("package")
    write_sources(FILES, folder)
    return folder


@pytest.fixture
def site(sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder into which the package is laid as an installer would, on the path of what is started."""
    folder = tmp_path / "site"
    lay_package(sources, folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *sys.path]))
    return folder


def test_the_page_imports_only_the_sdk() -> None:
    text = FILES["src/yurt_site_tools/__init__.py"]
    imported = set(re.findall(r"^(?:from|import) (yurt\.\S+)", text, re.MULTILINE))
    assert imported and all(name.startswith("yurt.sdk.") for name in imported)


@pytest.mark.usefixtures("site")
def test_the_suites_of_the_page_pass(sources: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "tests"]
    done = subprocess.run(command, cwd=sources, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "passed" in done.stdout, done.stdout + done.stderr


@pytest.mark.usefixtures("site")
def test_an_agent_runs_a_job_with_the_hook_and_the_provider(tmp_path: Path) -> None:
    folder = tmp_path / "services"
    config = {"plugin": {"site-tools": {"config": {"site": "cellar", "folder": str(folder)}}}}
    with running_agent(tmp_path, data_dir=tmp_path / "data", extra=config) as agent:
        register(agent, job("web", facts="short"))
        (alloc,) = agent.running("web", 1)
        facts = agent.cli("alloc", "fs", alloc["ID"], "main/local/facts.json").stdout
        assert json.loads(facts) == {"site": "cellar", "job": "web"}
        assert agent.cli("alloc", "logs", alloc["ID"]).stdout == "cellar\n"
        (entry,) = wait_for("the service", lambda: list(folder.glob("*")) if folder.exists() else None)

        agent.kill()
        entry.unlink()
        agent.start()

        wait_for("the service again", lambda: list(folder.glob("*")) == [entry])
        assert [each["ID"] for each in agent.running("web", 1)] == [alloc["ID"]]
        agent.call("DELETE", "/v1/job/web")
        wait_for("the end", lambda: "run 0 ended with" in events(agent, "web"))
        wait_for("the service gone", lambda: not list(folder.glob("*")))


@pytest.mark.usefixtures("site")
def test_what_the_hook_refuses_fails_the_task_with_its_name(tmp_path: Path) -> None:
    with running_agent(tmp_path, data_dir=tmp_path / "data") as agent:
        register(agent, job("odd", facts="loud"))
        wait_for("the refusal", lambda: 'hook "facts": meta facts = "loud" must be' in events(agent, "odd"))
        listed = agent.cli("plugin", "list")
        assert re.search(r"site-tools\s+ok", listed.stdout), listed


def job(name: str, *, facts: str) -> dict[str, Any]:
    """A task that wants the hook and has a service of the package's provider."""
    made = raw_exec_job(name, "/bin/sh", "-c", "echo $SITE; exec sleep 600")
    task = made["TaskGroups"][0]["Tasks"][0]
    task["Meta"] = {"facts": facts}
    task["Services"] = [{"Name": name, "Provider": "directory"}]
    task["RestartPolicy"] = {"Attempts": 0, "Mode": "fail", "Interval": 60_000_000_000, "Delay": 1_000_000_000}
    return made


def events(agent: Agent, name: str) -> str:
    """What the task's events say."""
    for alloc in agent.allocs(name):
        for state in (agent.get(f"/v1/allocation/{alloc['ID']}")["TaskStates"] or {}).values():
            return "\n".join(event["DisplayMessage"] for event in state["Events"] or [])
    return ""
