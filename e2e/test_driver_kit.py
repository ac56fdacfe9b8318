"""The driver kit: a package written, tested, installed, run, and its code exchanged while its tasks run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from yurt.agent.process.end_limit import END_LIMIT_S
from yurt.agent.run import STILL_STOPPING
from yurt.testing.agent import YURT, Agent, pid_is_alive, raw_exec_job, register, running_agent, wait_for

NAME = "kit"
DEAF = """\
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
"""
HANGING = """\
        import concurrent.futures, time

        pool = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="hanging")
        pool.submit(time.sleep, 600)
        pool.shutdown(wait=False)
"""
FAST = "exit_code or stop_ends or taken_up or streams or input"


def yurt(*words: str, folder: Path, timeout_s: float = 250.0) -> subprocess.CompletedProcess[str]:
    """One command without an agent."""
    return subprocess.run(
        [*YURT, *words], cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False,
        env={**os.environ, "NOMAD_CLI_NO_COLOR": "1"},
    )  # fmt: skip


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new driver package."""
    folder = tmp_path_factory.mktemp("kit")
    made = yurt("driver", "new", NAME, folder=folder)
    assert made.returncode == 0, made.stderr
    return folder / f"yurt-driver-{NAME}"


def test_a_new_package_passes_the_suite_at_once(package: Path) -> None:
    report = package.parent / "report.xml"
    answer = yurt("driver", "test", "-junit", str(report), str(package), folder=package.parent)

    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "  ok    stop ends a task" in answer.stdout
    assert "The driver does what Yurt asks of a driver" in answer.stdout
    suites = ElementTree.parse(report).getroot()
    assert int(suites[0].attrib["tests"]) > 50
    assert (suites[0].attrib["failures"], suites[0].attrib["errors"]) == ("0", "0")


def test_a_short_package_passes_too(package: Path) -> None:
    made = yurt("driver", "new", "-short", "-dir", "short", "tiny", folder=package.parent)
    answer = yurt("driver", "test", "-json", "-k", FAST, "short", folder=package.parent)

    assert made.returncode == 0, made.stderr
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert {result["outcome"] for result in json.loads(answer.stdout)["Results"]} == {"passed"}


def test_what_a_driver_does_wrong_is_told(package: Path) -> None:
    broken = package.parent / "broken"
    shutil.copytree(package, broken, ignore=shutil.ignore_patterns("__pycache__"))
    driver = broken / "src" / f"yurt_driver_{NAME}" / "driver.py"
    text = driver.read_text()
    driver.write_text(text.replace("return await self._executor.wait(task_id)", "return ExitResult(exit_code=0)"))
    answer = yurt("driver", "test", "-k", "exit_code_is_reported", str(broken), folder=package.parent)

    assert driver.read_text() != text
    assert answer.returncode == 1
    assert "  FAIL  an exit code is reported" in answer.stdout
    assert "assert (0, 0, '') == (3, 0, '')" in answer.stdout


def test_a_package_that_cannot_be_tested_says_why(package: Path, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_nothing.py").write_text("def test_one():\n    assert True\n")
    no_suite = yurt("driver", "test", str(tmp_path), folder=tmp_path)
    (tmp_path / "tests" / "test_nothing.py").write_text("import no_such_module\n")
    no_import = yurt("driver", "test", str(tmp_path), folder=tmp_path)
    no_test = yurt("driver", "test", "-k", "no_such_test", str(package), folder=package.parent)
    again = yurt("driver", "new", NAME, folder=package.parent)
    bad_name = yurt("driver", "new", "No Name", folder=tmp_path)

    assert (no_suite.returncode, "None of the tests is of the driver suite" in no_suite.stderr) == (1, True)
    assert (no_import.returncode, "no_such_module" in no_import.stderr) == (1, True)
    assert (no_test.returncode, "No test is chosen by -k 'no_such_test'" in no_test.stderr) == (1, True)
    assert "is not empty" in again.stderr
    assert "is not a valid name for a driver" in bad_name.stderr


def lay_out(package: Path, site: Path) -> None:
    """Install the package as an editable one is: the sources where they are, beside them who they are."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    shutil.copytree(package / "src", site, ignore=shutil.ignore_patterns("__pycache__"))
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(f"[yurt.plugins.v1]\n{NAME} = yurt_driver_{NAME}.plugin\n")


@pytest.fixture
def site(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package installed where the agents of a test find it."""
    folder = tmp_path / "site"
    lay_out(package, folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, sys.path)]))
    return folder


@pytest.fixture
def agent(site: Path, tmp_path: Path) -> Iterator[Agent]:
    """An agent that has the package."""
    with running_agent(tmp_path) as agent:
        yield agent


def test_an_agent_ends_although_a_driver_suppresses_its_cancellation(site: Path, tmp_path: Path) -> None:
    driver = site / f"yurt_driver_{NAME}" / "driver.py"
    text, begins = driver.read_text(), "        handle = await self._executor.start("
    assert begins in text
    driver.write_text(text.replace(begins, DEAF + begins))
    with running_agent(tmp_path) as agent:
        register(agent, kit_job("deaf", "true"))
        named = f'driver \\"{NAME}\\" has not answered the start of task'
        wait_for("an event that names the driver", lambda: named in json.dumps(agent.get("/v1/job/deaf/allocations")))
        assert agent.process is not None
        agent.process.send_signal(signal.SIGINT)
        agent.process.send_signal(signal.SIGINT)  # a second signal within a second is taken for the first
        wait_for("the time for a second signal", lambda: STILL_STOPPING in agent.log.read_text())
        assert "Caught another signal" not in agent.log.read_text()

        assert agent.interrupt() == 1

    assert "the agent ends with work that does not end: limit_s=10 work=KitDriver.start_task" in agent.log.read_text()


def test_an_agent_ends_although_a_thread_of_a_driver_hangs(site: Path, tmp_path: Path) -> None:
    """The interpreter waits at its end for the threads of any pool."""
    driver = site / f"yurt_driver_{NAME}" / "driver.py"
    text, begins = driver.read_text(), "        handle = await self._executor.start("
    driver.write_text(text.replace(begins, HANGING + begins))
    with running_agent(tmp_path) as agent:
        register(agent, kit_job("hangs", "sleep 300"))
        agent.running("hangs", 1)
        began = time.monotonic()

        assert agent.interrupt() == 0

        assert time.monotonic() - began < END_LIMIT_S + 10
    assert "the agent ends with work that does not end: limit_s=10 work=thread hanging_0" in agent.log.read_text()


def kit_job(job_id: str, script: str) -> dict[str, Any]:
    """A job whose task the new driver runs."""
    job = raw_exec_job(job_id, "/bin/sh", "-c", script)
    job["TaskGroups"][0]["Tasks"][0]["Driver"] = NAME
    return job


def test_code_is_exchanged_and_the_tasks_are_kept(agent: Agent, site: Path) -> None:
    register(agent, kit_job("kept", "echo $$; while true; do sleep 0.2; done"))
    alloc = agent.running("kept", 1)[0]["ID"]
    pid = int(wait_for("its pid", lambda: agent.cli("alloc", "logs", alloc).stdout))
    config = site / f"yurt_driver_{NAME}" / "config.py"
    config.write_text(
        config.read_text()
        .replace("    args: list[str] = []\n", '    args: list[str] = []\n    greeting: str = ""\n')
        .replace("(config.command, *config.args)", '("/bin/sh", "-c", f"echo {config.greeting}; sleep 1000")')
    )
    answer = agent.cli("plugin", "reload", NAME)

    assert (answer.returncode, answer.stderr) == (0, "")
    assert "drivers: kit); 1 task was kept" in answer.stdout
    assert pid_is_alive(pid)
    second = kit_job("second", "")
    second["TaskGroups"][0]["Tasks"][0]["Config"] = {"command": "x", "greeting": "new code"}
    wait_for("the new option is known", lambda: "Warnings" in register(agent, second))
    other = agent.running("second", 1)[0]["ID"]
    wait_for("the new code's output", lambda: agent.cli("alloc", "logs", other).stdout == "new code\n")
    states = agent.get(f"/v1/allocation/{alloc}")["TaskStates"]["main"]
    assert [event["Type"] for event in states["Events"]] == ["Received", "Task Setup", "Started"]
    (told,) = wait_for("the node's event", lambda: reloads(agent))
    assert told == "Driver kit: its code was reloaded; tasks kept: 1"


def reloads(agent: Agent) -> list[str]:
    """The node's events of code that was reloaded."""
    (node,) = agent.get("/v1/nodes")
    messages = [event["Message"] for event in agent.get(f"/v1/node/{node['ID']}")["Events"]]
    return [message for message in messages if "reloaded" in message]


def test_a_kept_task_is_watched_stopped_and_worked_in_by_the_new_code(agent: Agent) -> None:
    register(agent, kit_job("ends", "echo $$; trap 'exit 3' USR1; while true; do sleep 0.1; done"))
    alloc = agent.running("ends", 1)[0]["ID"]
    pid = int(wait_for("its pid", lambda: agent.cli("alloc", "logs", alloc).stdout))
    for _ in range(3):
        assert agent.cli("plugin", "reload", NAME).returncode == 0
    shown = agent.cli("alloc", "exec", "-i=false", alloc, "sh", "-c", "echo $NOMAD_TASK_NAME")
    stats = agent.get(f"/v1/client/allocation/{alloc}/stats")
    os.kill(pid, 10)

    assert (shown.returncode, shown.stdout) == (0, "main\n")
    assert stats["Tasks"]["main"]["ResourceUsage"]["MemoryStats"]["RSS"] > 0

    def exits() -> list[str]:
        events = agent.get(f"/v1/allocation/{alloc}")["TaskStates"]["main"]["Events"]
        return [event["Details"]["exit_code"] for event in events if event["Type"] == "Terminated"]

    assert wait_for("the end was seen", exits) == ["3"]


def test_code_that_fails_leaves_the_old_one(agent: Agent, site: Path) -> None:
    register(agent, kit_job("steady", "echo $$; while true; do sleep 0.2; done"))
    alloc = agent.running("steady", 1)[0]["ID"]
    pid = int(wait_for("its pid", lambda: agent.cli("alloc", "logs", alloc).stdout))
    driver = site / f"yurt_driver_{NAME}" / "driver.py"
    good = driver.read_text()
    broken = {
        "this is no python": "SyntaxError",
        good.replace("    async def stop_task(", "    async def no_longer("): "it lacks stop_task",
        good.replace('NAME = "kit"', 'NAME = "other"'): "no longer has the driver kit",
        good.replace("health=HEALTHY, description=", 'health="unhealthy", fix="x", description='): "is unhealthy (",
        good.replace("        if handle.is_intent:", '        raise NotFound("no idea")\n        if False:'): "no idea",
    }
    for text, reason in broken.items():
        driver.write_text(text)
        answer = agent.cli("plugin", "reload", NAME)
        assert (answer.returncode, reason in answer.stderr) == (1, True), answer.stdout + answer.stderr
        assert pid_is_alive(pid)
    driver.write_text(good)
    shown = agent.cli("alloc", "exec", "-i=false", alloc, "echo", "still here")
    unknown = agent.cli("plugin", "reload", "no-such-plugin")
    last = agent.cli("plugin", "reload", "-json", NAME)

    assert shown.stdout == "still here\n"
    assert "no plugin" in unknown.stderr
    assert json.loads(last.stdout) == {"Name": NAME, "Version": "0.1.0", "Drivers": [NAME], "Tasks": 1}
    assert pid_is_alive(pid)
    agent.call("DELETE", "/v1/job/steady")
    wait_for("its end", lambda: not pid_is_alive(pid))
