"""Diagnostics as people and tools see them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from yurt_jobspec import Diagnostic, JobspecError, parse_job, render, to_json, to_sarif

SOURCE = 'job "j" {\n  datacenter = ["é"]\n}\n'


def diagnostics() -> tuple[Diagnostic, ...]:
    with pytest.raises(JobspecError) as caught:
        parse_job(SOURCE, filename="j.hcl")
    return caught.value.diagnostics


def test_a_diagnostic_shows_the_line_underlined() -> None:
    text = render(diagnostics(), {"j.hcl": SOURCE})
    assert text.splitlines() == [
        "Error: Unsupported argument",
        "  j.hcl:2:3",
        "    |",
        '  2 |   datacenter = ["é"]',
        "    |   ^^^^^^^^^^",
        '  An argument named "datacenter" is not expected here.',
        '  Hint: Did you mean "datacenters"?',
    ]


def test_control_characters_of_a_file_do_not_reach_the_terminal() -> None:
    item = Diagnostic("error", "Wrong", "Bad.", "f", 1, 1, 1, 2)
    assert "\033" not in render([item], {"f": "\033[2J"})
    assert "\033[31m" in render([item], {"f": "x"}, color=True)


def test_a_diagnostic_without_a_place_is_rendered_too() -> None:
    assert render([Diagnostic("warning", "Odd", "Just so.")], {}) == "Warning: Odd\n  Just so.\n"


def test_tools_get_json_and_sarif() -> None:
    assert to_json(diagnostics())[0] | {"detail": "", "hint": ""} == {
        "severity": "error", "summary": "Unsupported argument", "detail": "", "hint": "",
        "filename": "j.hcl", "line": 2, "column": 3, "end_line": 2, "end_column": 13,
    }  # fmt: skip
    result = to_sarif(diagnostics())["runs"][0]["results"][0]
    assert result["ruleId"] == "unsupported-argument"
    assert result["locations"][0]["physicalLocation"]["region"]["startColumn"] == 3


def test_importing_the_package_loads_nothing() -> None:
    code = "import sys, yurt_jobspec; print([name for name in sys.modules if name.startswith('yurt_jobspec.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
