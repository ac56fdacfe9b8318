"""Warnings reach callers that ask for them, and the values of sensitive variables reach no caller."""

from __future__ import annotations

from pathlib import Path

import pytest
from yurt_jobspec import Inputs, JobspecError, parse_job, parse_job_with_findings

JOB = 'job "j" {\n  datacenters = ["dc1"]\n}\n'


def test_a_variable_that_nobody_declares_is_a_warning_when_not_strict() -> None:
    parsed = parse_job_with_findings(JOB, filename="j.hcl", inputs=Inputs(["imgae=x"], strict=False))

    assert parsed.job["Datacenters"] == ["dc1"]
    assert [(item.severity, item.summary) for item in parsed.warnings] == [("warning", "Undefined -var variable")]
    assert "imgae" in parsed.warnings[0].detail


def test_a_file_without_oddities_has_no_warnings() -> None:
    assert parse_job_with_findings(JOB, filename="j.hcl").warnings == ()


SECRET = "hunter2-and-more"
SENSITIVE = 'variable "key" {\n  sensitive = true\n%s}\n'
USES = {
    "a number": 'job "j" {\n  priority = parseint(var.key, 10)\n}\n',
    "a duration": 'job "j" {\n  group "g" {\n    shutdown_delay = var.key\n  }\n}\n',
    "a pattern": 'job "j" {\n  meta {\n    a = regex_replace("x", "(${var.key}", "")\n  }\n}\n',
    "a key": 'job "j" {\n  meta {\n    a = jsonencode({ for n in [1, 2] : var.key => n })\n  }\n}\n',
    "an address": 'job "j" {\n  meta {\n    a = cidrhost(var.key, 1)\n  }\n}\n',
}


@pytest.mark.parametrize("use", USES)
def test_no_error_shows_the_value_of_a_sensitive_variable(use: str) -> None:
    with pytest.raises(JobspecError) as caught:
        parse_job(SENSITIVE % "" + USES[use], filename="j.hcl", variables=[f"key={SECRET}"])

    assert SECRET not in str(caught.value)


def test_a_sensitive_value_is_hidden_wherever_it_comes_from(tmp_path: Path) -> None:
    (tmp_path / "v.hcl").write_text(f'key = "{SECRET}"\n')
    default = SENSITIVE % f'  default = "{SECRET}"\n'
    for source, inputs in (
        (default, Inputs()),
        (SENSITIVE % "", Inputs(var_files=[tmp_path / "v.hcl"])),
        (SENSITIVE % "", Inputs(environ={"NOMAD_VAR_key": SECRET})),
    ):
        with pytest.raises(JobspecError) as caught:
            parse_job_with_findings(source + USES["a duration"], filename="j.hcl", inputs=inputs)
        assert "(sensitive value)" in str(caught.value)
        assert SECRET not in str(caught.value)


def test_a_value_that_is_not_sensitive_is_shown() -> None:
    with pytest.raises(JobspecError, match=SECRET):
        parse_job('variable "key" {}\n' + USES["a duration"], filename="j.hcl", variables=[f"key={SECRET}"])


def test_a_short_secret_does_not_spoil_the_words_around_it() -> None:
    with pytest.raises(JobspecError) as caught:
        parse_job(SENSITIVE % "" + USES["a duration"], filename="j.hcl", variables=["key=s"])

    assert "is not a duration" in caught.value.diagnostics[0].detail
    assert '"(sensitive value)"' in caught.value.diagnostics[0].detail


def test_sensitive_must_be_a_bool() -> None:
    with pytest.raises(JobspecError, match="bool"):
        parse_job('variable "key" {\n  sensitive = "maybe"\n  default = 1\n}\n' + JOB, filename="j.hcl")


@pytest.mark.parametrize("operator", ["is_set", "is_not_set"])
def test_a_short_form_that_the_format_drops_is_told_at_its_line(operator: str) -> None:
    source = f'job "x" {{\n  constraint {{\n    attribute = "${{attr.k}}"\n    {operator} = true\n  }}\n}}\n'

    parsed = parse_job_with_findings(source, filename="j.hcl")

    (found,) = parsed.warnings
    assert (found.severity, found.line, found.summary) == ("warning", 4, f"{operator} has no effect")
    assert found.hint == f'operator = "{operator}"'
    assert parsed.job["Constraints"] == [{"LTarget": "${attr.k}", "RTarget": "", "Operand": "="}]


@pytest.mark.parametrize("line", ["is_set = false", 'operator = "is_set"\n is_set = true', 'operator = "is_not_set"'])
def test_an_operator_that_says_what_is_meant_needs_no_warning(line: str) -> None:
    source = f'job "x" {{\n constraint {{\n attribute = "${{attr.k}}"\n {line}\n }}\n}}\n'

    assert parse_job_with_findings(source, filename="j.hcl").warnings == ()
