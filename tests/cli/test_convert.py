"""Jobs change their form and stay the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from yurt.rules.canonical import canonicalize_job
from yurt_jobspec import parse_job

Run = Callable[..., tuple[int, str, str]]

SOURCE = """
variable "image" {}
locals {
  names = ["a", "b"]
}
job "web" {
  group "g" {
    dynamic "task" {
      for_each = local.names
      labels   = [task.value]
      content {
        driver = "docker"
        config {
          image = "${var.image}-${task.value}"
          args  = ["${NOMAD_PORT_http}", "$${literal}"]
        }
      }
    }
  }
}
"""


@pytest.fixture
def hcl(tmp_path: Path) -> Path:
    (tmp_path / "web.nomad.hcl").write_text(SOURCE)
    return tmp_path / "web.nomad.hcl"


def parsed(text: str) -> dict[str, Any]:
    return parse_job(text, filename="x", variables=["image=web"] if "variable" in text else [])


def test_a_job_file_becomes_json_and_comes_back(run: Run, hcl: Path, tmp_path: Path) -> None:
    code, as_json, _ = run("job", "convert", "-var", "image=web", str(hcl))
    (tmp_path / "web.json").write_text(as_json)
    back, text, lost = run("job", "convert", str(tmp_path / "web.json"))

    assert (code, back, lost) == (0, 0, "")
    assert json.loads(as_json)["Job"] == parsed(SOURCE)
    assert parsed(text) == parsed(SOURCE)


def test_a_job_file_can_be_worked_out_to_a_job_file(run: Run, hcl: Path) -> None:
    code, text, _ = run("job", "convert", "-to=hcl", "-var", "image=web", str(hcl))

    assert code == 0
    assert "dynamic" not in text and "var." not in text
    assert 'image = "web-b"' in text
    assert parsed(text) == parsed(SOURCE)


def test_trimming_leaves_the_defaults_out(run: Run, tmp_path: Path) -> None:
    job = canonicalize_job(parsed(SOURCE))
    (tmp_path / "web.json").write_text(json.dumps(job))

    _, whole, _ = run("job", "convert", str(tmp_path / "web.json"))
    _, trimmed, _ = run("job", "convert", "-trim", str(tmp_path / "web.json"))

    assert "priority" in whole and "priority" not in trimmed
    assert canonicalize_job(parsed(trimmed)) == canonicalize_job(parsed(whole)) == job


def test_a_job_file_in_json_is_a_job_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "web.json").write_text('{"job": {"web": {"priority": 70}}}')

    code, out, _ = run("job", "convert", str(tmp_path / "web.json"))

    assert code == 0
    assert json.loads(out)["Job"]["Priority"] == 70


def test_what_a_file_cannot_say_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "web.json").write_text(json.dumps({"ID": "web", "Wings": 2, "Meta": {"a": "e\u0301"}}))

    code, _, err = run("job", "convert", str(tmp_path / "web.json"))

    assert code == 0
    assert "cannot say Job.Wings, Job.Meta.a;" in err


@pytest.mark.parametrize(
    "text",
    ["{", "[]", '"x"', '{"Job": 3}', '{"ID": "x", "TaskGroups": [{"Tasks": 3}]}', '{"ID": {"a": 1}}', "{" * 5000],
)
def test_what_is_no_job_is_one_sentence(run: Run, tmp_path: Path, text: str) -> None:
    (tmp_path / "web.json").write_text(text)

    code, out, err = run("job", "convert", str(tmp_path / "web.json"))

    assert "Traceback" not in err
    assert code == 1 or "cannot say" in err or parsed(out)


JOB = {"ID": "web", "Name": "web", "Type": "service", "Namespace": "default", "Version": 2, "Status": "running"}


def inspect(run: Run, api: Any, submission: Any) -> tuple[int, str, str]:
    api.answers["/v1/jobs"] = [{"ID": "web", "Namespace": "default", "Name": "web"}]
    api.answers["/v1/job/web"] = canonicalize_job({**JOB, "TaskGroups": [{"Name": "g", "Count": 3, "Tasks": []}]})
    if submission is not None:
        api.answers["/v1/job/web/submission"] = submission
    return run("job", "inspect", "-hcl", "web")


def test_inspect_prints_the_source_that_was_submitted(run: Run, api: Any) -> None:
    code, out, _ = inspect(run, api, {"Source": "# mine\njob ...\n", "Format": "hcl2"})

    assert (code, out) == (0, "# mine\njob ...\n")


@pytest.mark.parametrize("submission", [None, {"Source": "{}", "Format": "json"}])
def test_inspect_writes_a_job_file_when_none_was_submitted(run: Run, api: Any, submission: Any) -> None:
    code, out, _ = inspect(run, api, submission)

    assert code == 0
    assert out == 'job "web" {\n  type = "service"\n\n  group "g" {\n    count = 3\n  }\n}\n'
