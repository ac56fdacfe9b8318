"""The job file language, by a real agent: jobs that use all of it run, come back as they were written, and are refused
at the line that is wrong.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nomad
import pytest
from yurt.testing.agent import Agent, wait_for

SOURCE = """
variable "greeting" {
  type        = string
  default     = "hello"
  description = "What each task says."
}

variable "places" {
  type    = list(string)
  default = ["north", "south"]

  validation {
    condition     = length(var.places) > 0
    error_message = "Name a place."
  }
}

locals {
  shout = { for place in var.places : place => upper(place) }
  rows  = [for i, place in var.places : format("%d:%s", i + 1, local.shout[place])]
}

job "JOB_ID" {
  type = "batch"

  meta {
    rows = join(",", local.rows)
    sum  = sha256(jsonencode(local.shout))
  }

  group "talk" {
    dynamic "task" {
      for_each = var.places
      labels   = ["to-${task.value}"]

      content {
        driver = "raw_exec"

        config {
          command = "/bin/sh"
          args = ["-c", <<-EOF
            %{ for row in local.rows ~}
            echo "${row}"
            %{ endfor ~}
            echo "${var.greeting} ${local.shout[task.value]} from $NOMAD_TASK_NAME in ${NOMAD_GROUP_NAME} $${PATH:+ok}"
          EOF
          ]
        }

        env {
          WHERE = task.value == "north" ? "up" : "down"
        }

        resources {
          cpu    = 20
          memory = 16
        }
      }
    }
  }
}
"""


def source(job_id: str) -> str:
    return SOURCE.replace("JOB_ID", job_id)


def says(agent: Agent, job_id: str, greeting: str) -> None:
    """The job has ended well and its tasks have said what the file worked out."""

    def complete() -> list[dict[str, Any]]:
        return [alloc for alloc in agent.allocs(job_id) if alloc["ClientStatus"] == "complete"]

    alloc = wait_for(f"{job_id} complete", complete)[0]
    for place in ("north", "south"):
        logs = agent.cli("alloc", "logs", alloc["ID"], f"to-{place}")
        expected = f"1:NORTH\n2:SOUTH\n{greeting} {place.upper()} from to-{place} in talk ok\n"
        assert logs.stdout == expected, (logs.stdout, logs.stderr)


def test_a_job_file_with_the_whole_language_runs_when_the_command_line_submits_it(
    dev_agent: Agent, tmp_path: Path
) -> None:
    (tmp_path / "talk.nomad.hcl").write_text(source("by-cli"))

    ran = dev_agent.cli("job", "run", "-detach", "-var", "greeting=good day", str(tmp_path / "talk.nomad.hcl"))

    assert ran.returncode == 0, ran.stderr
    says(dev_agent, "by-cli", "good day")


def test_it_runs_when_the_api_parses_and_registers_it(dev_agent: Agent) -> None:
    body = {"JobHCL": source("by-api"), "Variables": 'greeting = "salve"', "Canonicalize": True}

    job = dev_agent.call("POST", "/v1/jobs/parse", body)
    dev_agent.call("POST", "/v1/jobs", {"Job": job})

    assert job["Meta"]["rows"] == "1:NORTH,2:SOUTH"
    says(dev_agent, "by-api", "salve")


def test_it_runs_when_python_nomad_submits_it(dev_agent: Agent) -> None:
    client: Any = nomad.Nomad(host="127.0.0.1", port=dev_agent.port, timeout=120)

    client.job.register_job("by-python", {"Job": client.jobs.parse(source("by-python"))})

    says(dev_agent, "by-python", "hello")


def test_the_api_reads_no_files_of_the_agent(dev_agent: Agent) -> None:
    body = {"JobHCL": 'job "x" {\n  meta {\n    a = file("/etc/passwd")\n  }\n}\n'}

    with pytest.raises(Exception, match="filesystem function disabled"):
        dev_agent.call("POST", "/v1/jobs/parse", body)


def test_the_source_comes_back_by_the_api_and_by_inspect(dev_agent: Agent, tmp_path: Path) -> None:
    text = source("kept")
    (tmp_path / "kept.nomad.hcl").write_text(text)
    assert (
        dev_agent.cli("job", "run", "-detach", "-var", "greeting=hi", str(tmp_path / "kept.nomad.hcl")).returncode == 0
    )

    kept = dev_agent.get("/v1/job/kept/submission?version=0")
    shown = dev_agent.cli("job", "inspect", "-hcl", "kept")

    assert (kept["Source"], kept["Format"], kept["VariableFlags"]) == (text, "hcl2", {"greeting": "hi"})
    assert shown.stdout.strip() == text.strip()


def test_a_job_that_came_as_json_is_written_as_a_job_file_that_means_the_same(dev_agent: Agent, tmp_path: Path) -> None:
    job = dev_agent.call("POST", "/v1/jobs/parse", {"JobHCL": source("plain"), "Canonicalize": True})
    dev_agent.call("POST", "/v1/jobs", {"Job": job})
    says(dev_agent, "plain", "hello")

    written = dev_agent.cli("job", "inspect", "-hcl", "plain")
    (tmp_path / "plain.nomad.hcl").write_text(written.stdout)
    plan = dev_agent.cli("job", "plan", str(tmp_path / "plain.nomad.hcl"))

    assert written.returncode == 0, written.stderr
    assert "cannot say" not in written.stderr
    assert 'task "to-north"' in written.stdout and "dynamic" not in written.stdout
    assert plan.returncode == 0, plan.stdout + plan.stderr


WRONG = """job "wrong" {
  constraint {
    attribute = "${attr.kernel.name}"
    operator  = "regexp"
    value     = "(linux"
  }
  group "g" {
    task "t" {
      driver = "raw_exec"
      config {
        command = "/bin/true"
        argz    = ["x"]
      }
    }
  }
}
"""
EXPECTED = (
    """    |
  5 |     value     = "(linux"
    |     ^^^^^^^^^^^^^^^^^^^^
  Constraint 1 validation failed: Regular expression failed to compile: """,
    """     |
  12 |         argz    = ["x"]
     |         ^^^^^^^^^^^^^^^
""",
    'Did you mean "args"?',
)


@pytest.mark.parametrize("command", ["validate", "run", "plan"])
def test_what_the_server_refuses_is_underlined_in_the_file(dev_agent: Agent, tmp_path: Path, command: str) -> None:
    path = tmp_path / "wrong.nomad.hcl"
    path.write_text(WRONG)

    answer = dev_agent.cli("job", command, str(path))

    told = answer.stdout + answer.stderr
    assert answer.returncode != 0
    assert f"{path}:5:5" in told and f"{path}:12:9" in told
    for part in EXPECTED:
        assert part in told, told


def test_the_servers_answer_is_told_as_sarif(dev_agent: Agent, tmp_path: Path) -> None:
    path = tmp_path / "wrong.nomad.hcl"
    path.write_text(WRONG)

    answer = dev_agent.cli("job", "validate", "-format=sarif", str(path))

    results = json.loads(answer.stdout)["runs"][0]["results"]
    places = [result["locations"][0]["physicalLocation"] for result in results]
    assert answer.returncode == 1
    assert [place["region"]["startLine"] for place in places] == [5, 12]
    assert {place["artifactLocation"]["uri"] for place in places} == {str(path)}
