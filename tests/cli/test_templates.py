"""`-t`: answers through Go templates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from yurt.cli.tree import command, command_names

JOBS = [
    {"ID": "web", "Namespace": "default", "Status": "running", "Meta": {"owner": "ops"}},
    {"ID": "cron", "Namespace": "default", "Status": "dead", "Meta": None},
]
READ_COMMANDS = [name for name in command_names() if {"json", "t"} <= {flag.name for flag in command(name).flags}]


def test_a_template_formats_a_list(api: Any, run: Any) -> None:
    api.answers["/v1/jobs"] = JOBS
    code, out, err = run("job", "status", "-t", '{{range .}}{{.ID | printf "%-5s"}}{{.Status}};{{end}}')
    assert (code, out, err) == (0, "web  running;cron dead;\n", "")


def test_a_field_that_no_object_has_is_an_error_and_a_key_of_meta_is_not(api: Any, run: Any) -> None:
    api.answers["/v1/jobs"] = JOBS[:1]
    assert run("job", "status", "-t", "{{range .}}{{.Meta.team}}{{end}}")[1] == "<no value>\n"
    code, _, err = run("job", "status", "-t", "{{range .}}{{.id}}{{end}}")
    assert code == 1
    assert err == "Error formatting the data: format:1:14: can't evaluate field id: did you mean ID?\n"


def test_a_value_may_be_written_as_json(api: Any, run: Any) -> None:
    api.answers["/v1/jobs"] = JOBS[:1]
    assert run("job", "status", "-t", "{{(index . 0).Meta | json}}")[1] == '{"owner": "ops"}\n'


def test_a_template_that_is_none_asks_nothing(api: Any, run: Any) -> None:
    code, out, err = run("job", "status", "-t", "{{range .}}")
    assert (code, out) == (1, "")
    assert err == "Error parsing the template: format:1:3: {{range}} has no {{end}}\n"
    assert not api.asked


@pytest.mark.parametrize("name", READ_COMMANDS)
def test_json_and_a_template_together_are_refused(run: Any, name: str, tmp_path: Path) -> None:
    file = tmp_path / "job.nomad.hcl"
    file.write_text('job "a" {}')
    code, out, err = run(*name.split(), *_arguments(name, file), "-json", "-t", "{{.}}")
    assert code in (1, 255)
    assert out == ""
    assert "Both json and template formatting are not allowed" in err


def _arguments(name: str, file: Path) -> list[str]:
    if name == "job plan":
        return [str(file), "-json-output"]
    return ["something"] * command(name).arguments[0]


def test_a_template_reads_a_field_that_the_api_leaves_out_when_it_is_empty(api: Any, run: Any) -> None:
    api.answers["/v1/acl/token/self"] = {"AccessorID": "a", "Name": "ci", "SecretID": "s"}

    template = "{{.Name}} {{.ExpirationTTL}}{{if .ExpirationTime}} ends{{end}}"

    assert run("acl", "token", "self", "-token", "s", "-t", template)[:2] == (0, "ci 0s\n")
