"""Syntax errors of one file are told together: what a line spoils ends with that line."""

from __future__ import annotations

import pytest
from yurt_jobspec import JobspecError, parse_job
from yurt_jobspec.diagnostics import Diagnostic


def found(body: str) -> list[Diagnostic]:
    with pytest.raises(JobspecError) as caught:
        parse_job(f'job "j" {{\n{body}\n}}\n', filename="j.hcl")
    return list(caught.value.diagnostics)


def lines(body: str) -> list[int | None]:
    return [problem.line for problem in found(body)]


@pytest.mark.parametrize(
    "spoilt", ['type = "batch', "type = 'batch'", "type = batch; priority = 3", "type = a & b", "`"]
)
def test_mistakes_behind_a_spoilt_line_are_told_too(spoilt: str) -> None:
    told = lines(f"{spoilt}\nregion = /eu\ngroup g\n")

    assert set(told) == {2, 3, 4}
    assert told.count(3) == told.count(4) == 1


def test_what_a_spoilt_line_causes_on_the_next_one_is_not_told() -> None:
    assert lines('meta = { a = upper("x ,\n b = 1 }\ntype == "batch"') == [2]
    assert lines('datacenters = ["a, \n"b"]\ntype == "batch"') == [2, 4]


@pytest.mark.parametrize("spoilt", ['group "g {', 'meta { a = "b }', 'update = "a\nb"'])
def test_a_line_that_swallowed_a_brace_or_is_one_of_several_ends_the_findings(spoilt: str) -> None:
    assert 4 not in lines(f"{spoilt}\n}}\n}}\nregion = /eu")


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("region = /bin/x", "double quotes"),
        ("priority == 3", "Write one '='"),
        ("memory = 256M", "write memory = 256."),
        ("memory = 32 GB", "write memory = 32768."),
        ("cpu = 500Mhz", "write cpu = 500"),
        ("kill_timeout = 30s", 'kill_timeout = "30s"'),
        ("meta { a = 1\n b = 2\n }", "new line behind the opening brace"),
        ("meta {\n a = 1 }", "a line of its own"),
    ],
)
def test_a_slip_has_a_hint(line: str, hint: str) -> None:
    assert hint in str(found(line)[0].hint)
