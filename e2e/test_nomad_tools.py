"""nomad-tools, which others wrote over Nomad's API and command line: it runs, follows, enters and stops jobs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from yurt.testing.agent import YURT, Agent, running_agent, wait_for

pytestmark = pytest.mark.timeout(600)

PACKAGE = "nomad-tools==0.5.8"
FETCH_LIMIT_S, RUN_LIMIT_S = 120, 120
JOB = """
job "{name}" {{
  type = "{kind}"
  group "g" {{
    network {{
      port "http" {{}}
    }}
    restart {{
      attempts = 0
      mode     = "fail"
    }}
    reschedule {{
      attempts  = 0
      unlimited = false
    }}
    update {{
      min_healthy_time = "100ms"
    }}
    task "main" {{
      driver = "raw_exec"
      config {{
        command = "/bin/sh"
        args    = ["-c", "{script}"]
      }}
    }}
  }}
}}
"""

Tool = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `nomadtools` and `nomad`, which is Yurt; skips where the package cannot be fetched."""
    uv = shutil.which("uv") or str(Path(__file__).resolve().parent.parent / ".uv" / "bin" / "uv")
    venv = tmp_path_factory.mktemp("nomad-tools") / "venv"
    install = [uv, "pip", "install", "--quiet", "--python", str(venv / "bin" / "python"), PACKAGE]
    for command in ([uv, "venv", "--quiet", "--python", sys.executable, str(venv)], install):
        done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_LIMIT_S, check=False)
        if done.returncode:
            pytest.skip(f"{PACKAGE} cannot be fetched: {done.stderr.strip().splitlines()[-1]}")
    nomad = venv / "bin" / "nomad"
    nomad.write_text(f'#!/bin/sh\nexec {shlex.join(YURT)} "$@"\n')
    nomad.chmod(0o755)
    return venv / "bin"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("dev")
    scripts = {"answer": ("batch", "echo to stdout; echo to stderr >&2; exit 7"), "web": ("service", "exec sleep 600")}
    for name, (kind, script) in scripts.items():
        text = JOB.format(name=name, kind=kind, script=script)
        (folder / f"{name}.nomad.hcl").write_text(text if kind == "service" else without_update(text))
    with running_agent(folder) as started:
        yield started


def without_update(text: str) -> str:
    before, _, after = text.partition("    update {")
    return before + after.partition("    }\n")[2]


@pytest.fixture
def tool(agent: Agent, programs: Path) -> Tool:
    """Runs nomad-tools with some words."""

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        env = agent.environment() | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
        command = [programs / "nomadtools", *words]
        return subprocess.run(
            command, env=env, cwd=agent.folder, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False
        )

    return run


def test_watch_runs_a_batch_job_and_ends_with_the_exit_code_of_its_task(agent: Agent, tool: Tool) -> None:
    done = tool("watch", "run", "answer.nomad.hcl")

    assert done.returncode == 7, done.stderr
    (alloc,) = agent.allocs("answer")
    short = alloc["ID"][:6]
    lines = done.stdout.splitlines()
    assert f"O>{short}>v0>main> to stdout" in lines and f"E>{short}>v0>main> to stderr" in lines
    assert f"A>{short}>v0>main> Terminated Exit Code: 7" in lines


def test_a_service_is_started_entered_and_stopped(agent: Agent, tool: Tool) -> None:
    started = tool("watch", "start", "web.nomad.hcl")
    assert started.returncode == 0, started.stderr
    assert "Deployment completed successfully" in started.stdout
    (alloc,) = agent.running("web", 1)

    assert tool("task", "-j", "web", "ls").stdout == f"{alloc['ID']} main\n"
    entered = tool("task", "-a", alloc["ID"], "exec", "sh", "-c", "echo in $NOMAD_TASK_NAME; exit 5")
    assert (entered.returncode, entered.stdout) == (5, "in main\n"), entered.stderr
    (port,) = agent.get(f"/v1/allocation/{alloc['ID']}")["AllocatedResources"]["Shared"]["Ports"]
    assert tool("port", "web").stdout == f"{port['HostIP']}:{port['Value']}\n"

    stopped = tool("watch", "stop", "web")
    assert stopped.returncode == 0, stopped.stderr
    assert f"eval>{alloc['EvalID'][:6]}>v0> Allocation {alloc['ID']} finished" in stopped.stdout.splitlines()
    purged = tool("watch", "purge", "web")
    assert purged.returncode == 0, purged.stderr
    wait_for("no job web", lambda: "web" not in [job["ID"] for job in agent.get("/v1/jobs")])


def test_files_are_copied_into_a_task_and_out_of_it(agent: Agent, tool: Tool) -> None:
    assert agent.cli("job", "run", "web.nomad.hcl").returncode == 0
    (alloc,) = agent.running("web", 1)
    (agent.folder / "given").write_text("copied\n")
    inside = f":{alloc['ID']}:main:{agent.folder / 'inside'}"

    for words in (("cp", "given", inside), ("cp", inside, "back")):
        done = tool(*words)
        assert done.returncode == 0, done.stderr

    assert (agent.folder / "back").read_text() == "copied\n"


def test_changed_tells_whether_a_job_file_differs(agent: Agent, tool: Tool) -> None:
    assert agent.cli("job", "run", "-detach", "web.nomad.hcl").returncode == 0
    file = agent.folder / "web.nomad.hcl"
    assert "sleep 600" not in tool("changed", str(file)).stdout
    other = agent.folder / "other.nomad.hcl"
    other.write_text(file.read_text().replace("sleep 600", "sleep 601"))
    assert "sleep 601" in tool("changed", str(other)).stdout
