"""Hints for values of the wrong kind, undeclared names, YAML; file functions with and without a border."""

from __future__ import annotations

from pathlib import Path

import pytest
from yurt_jobspec import Inputs, JobspecError, parse_job_with_findings
from yurt_jobspec.suggestions import value_hint, yaml_hint


@pytest.mark.parametrize(
    ("name", "text", "hint"),
    [
        ("memory", "32 GB", "write memory = 32768."),
        ("memory", "512MB", "write memory = 512."),
        ("memory_max", "1.5GiB", "write memory_max = 1536."),
        ("memory", "2048 kB", "write memory = 2."),
        ("cpu", "2 cores", "or cores = 2 for whole cores."),
        ("count", "three", "for example count = 3."),
        ("memory", "32 Gallons", "for example memory = 256."),
    ],
)
def test_an_amount_with_a_unit_is_answered_with_the_number(name: str, text: str, hint: str) -> None:
    found = value_hint(name, "int", text)

    assert found is not None and found.endswith(hint)


def test_one_file_in_yaml_gets_another_answer_than_one_colon() -> None:
    assert "looks like YAML" in yaml_hint("services:\n  web:\n    image: redis\n")
    assert yaml_hint('job "x" {\n  count: 3\n}\n') == "Write '=' instead of ':'."


def test_a_sensitive_value_is_in_no_hint(tmp_path: Path) -> None:
    source = (
        'variable "m" {\n  type = string\n  sensitive = true\n}\njob "x" {\n  group "g" {\n    count = var.m\n  }\n}\n'
    )
    with pytest.raises(JobspecError) as caught:
        parse_job_with_findings(source, filename="x.hcl", inputs=Inputs(["m=31337 GB"]))

    assert "31337" not in repr(caught.value.diagnostics)


def read(folder: Path, path: str, *, leaves_folder: bool) -> str:
    source = f'job "x" {{\n  meta {{\n    a = file("{path}")\n  }}\n}}\n'
    inputs = Inputs(leaves_folder=leaves_folder)
    return str(parse_job_with_findings(source, filename="x.hcl", inputs=inputs, base_dir=folder).job["Meta"]["a"])


def test_a_file_outside_of_the_folder_is_read_only_where_that_is_allowed(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    folder.mkdir()
    (tmp_path / "outside.txt").write_text("out")
    (folder / "inside.txt").write_text("in")

    assert read(folder, "inside.txt", leaves_folder=False) == "in"
    assert read(folder, "../outside.txt", leaves_folder=True) == "out"
    assert read(folder, str(tmp_path / "outside.txt"), leaves_folder=True) == "out"
    with pytest.raises(JobspecError, match="files outside it may not be read"):
        read(folder, "../outside.txt", leaves_folder=False)
