"""`job action`: commands that a job declares run in its tasks, by the command line and by the HTTP route."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import pytest
from yurt.testing.agent import Agent, ApiFailure, wait_for

JOB = """
job "acts" {
  group "front" {
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["3600"]
      }
      env {
        COLOUR = "green"
      }
      template {
        data        = "TASTE=sour"
        destination = "local/taste"
        env         = true
      }
      action "greet" {
        command = "/bin/sh"
        args    = ["-c", "cat; echo \\"$0 $1 $2\\"; exit 7", "${NOMAD_TASK_NAME}", "${COLOUR} ${TASTE}", "${node.no}"]
      }
      action "only-here" {
        command = "/bin/echo"
        args    = ["${NOMAD_ALLOC_ID}"]
      }
    }
    task "other" {
      driver = "raw_exec"
      config {
        command = "/bin/sleep"
        args    = ["3600"]
      }
      action "greet" {
        command = "/bin/echo"
        args    = ["from", "${NOMAD_TASK_NAME}"]
      }
    }
  }
}
"""


@pytest.fixture(scope="module")
def alloc(dev_agent: Agent, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The running allocation of a job with actions."""
    path: Path = tmp_path_factory.mktemp("job") / "acts.nomad.hcl"
    path.write_text(JOB)
    done = dev_agent.cli("job", "run", "-detach", str(path))
    assert done.returncode == 0 and "has no effect" not in done.stdout, done
    (row,) = dev_agent.running("acts", 1)
    # An allocation runs from its first running task on.
    wait_for("both tasks run", partial(all_tasks_run, dev_agent, row["ID"]))
    return str(row["ID"])


def all_tasks_run(agent: Agent, alloc_id: str) -> bool:
    states = agent.get(f"/v1/allocation/{alloc_id}")["TaskStates"]
    return {name: state["State"] for name, state in states.items()} == {"main": "running", "other": "running"}


def test_an_action_runs_in_its_task_with_input_and_exit_code(dev_agent: Agent, alloc: str) -> None:
    done = subprocess.run(
        [*dev_agent.command, "job", "action", "-job", "acts", "-task", "main", "greet"],
        input="from outside\n", capture_output=True, text=True, env=dev_agent.environment(), timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (7, "from outside\nmain green sour ${node.no}\n"), done.stderr


def test_an_action_is_found_by_job_task_or_allocation(dev_agent: Agent, alloc: str) -> None:
    by_name = dev_agent.cli("job", "action", "-i=false", "-job", "acts", "only-here")
    by_alloc = dev_agent.cli("action", "-i=false", "-alloc", alloc[:8], "-task", "other", "greet")
    assert (by_name.returncode, by_name.stdout) == (0, f"{alloc}\n"), by_name.stderr
    assert (by_alloc.returncode, by_alloc.stdout) == (0, "from other\n"), by_alloc.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("greet",), "-job or -alloc is needed"),
        (("-job", "acts", "greet"), "say which:\n  * -group=front -task=main\n  * -group=front -task=other"),
        (("-job", "acts", "nope"), 'The job has no action "nope"; its actions: greet, only-here'),
        (("-job", "acts", "-group", "back", "greet"), "its tasks declare none"),
        (("-job", "nothing", "greet"), "nothing"),
    ],
)
def test_what_cannot_be_run_is_told(dev_agent: Agent, alloc: str, words: tuple[str, ...], text: str) -> None:
    done = dev_agent.cli("job", "action", "-i=false", *words)
    assert done.returncode == 1 and text in done.stderr


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ({}, 400, "missing parameter: action"),
        ({"action": "greet"}, 400, "missing parameter: task; main, other have this action"),
        ({"action": "nope", "task": "main"}, 404, 'The task "main" has no action "nope"; it has greet, only-here'),
        ({"action": "greet", "group": "back"}, 404, 'No allocation of the group "back" runs'),
        ({"action": "greet", "allocID": "11111111-2222-4333-8444-555555555555"}, 404, "The job has no allocation"),
        ({"action": "only-here"}, 400, "this route speaks websocket: ask for an upgrade"),
    ],
)
def test_the_route_says_what_is_missing(
    dev_agent: Agent, alloc: str, query: dict[str, str], status: int, text: str
) -> None:
    with pytest.raises(ApiFailure) as caught:
        dev_agent.get(f"/v1/job/acts/action?{urlencode(query)}")
    assert caught.value.status == status and text in str(caught.value)


def test_the_actions_of_a_job_are_shown(dev_agent: Agent, alloc: str) -> None:
    shown = dev_agent.cli("job", "status", "-verbose", "acts").stdout
    assert "Action Name  Task Group  Task" in shown and "only-here    front       main" in shown
    assert "Action Name" not in dev_agent.cli("job", "status", "acts").stdout
