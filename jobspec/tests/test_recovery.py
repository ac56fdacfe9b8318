"""Syntax errors of one file are reported together: the effect of a broken line ends with that line."""

from __future__ import annotations

import pytest
from yurt_jobspec import IncompleteJob, JobspecError, parse_job, parse_job_with_findings
from yurt_jobspec.diagnostics import Diagnostic
from yurt_jobspec.schema import homes
from yurt_jobspec.suggestions import unknown_hint


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
    shown = lines(f"{spoilt}\nregion = /eu\ngroup g\n")

    assert set(shown) == {2, 3, 4}
    assert shown.count(3) == shown.count(4) == 1


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


MIXED = """\
job "j" {
  type = 'batch'
  group "g" {
    coutn = 3
    task "t" {
      drivre = "docker"
      user = /root
      env {
        A = "x
        B = nofunction("x")
      }
      resources {
        cpu = "2 cores"
      }
    }
    taks "u" {}
  }
}
"""


def test_a_syntax_error_hides_no_misspelt_key_and_no_wrong_value() -> None:
    with pytest.raises(JobspecError) as caught:
        parse_job(MIXED, filename="j.hcl")

    shown = [(each.line, each.summary) for each in caught.value.diagnostics]
    assert sorted({line for line, _ in shown}) == [2, 4, 6, 7, 9, 10, 13, 16]
    assert [summary for line, summary in shown if line in (4, 6, 13, 16)] == [
        "Unsupported argument", "Unsupported argument", "Unsuitable value type", "Unsupported block type",
    ]  # fmt: skip


@pytest.mark.parametrize("spoilt", ["group g {", 'group "g {', "}", 'group "${g" {', "meta = {"])
def test_where_a_brace_is_in_doubt_only_the_syntax_errors_are_told(spoilt: str) -> None:
    shown = (
        found(f'{spoilt}\n  coutn = 3\n  task "t" {{\n    drivre = "x"\n  }}\n}}\n}}\n')
        if spoilt != "group g {"
        else []
    )
    assert all(each.summary not in ("Unsupported argument", "Unsupported block type") for each in shown)


def test_a_missing_value_of_a_variable_hides_no_misspelt_key() -> None:
    text = 'variable "n" {\n  type = number\n}\njob "j" {\n  coutn = 3\n  priority = var.n\n  region = var.m\n}\n'
    with pytest.raises(JobspecError) as caught:
        parse_job(text, filename="j.hcl")

    assert [(each.line, each.summary) for each in caught.value.diagnostics] == [
        (1, 'Unset variable "n"'),
        (5, "Unsupported argument"),
    ]


def test_what_could_be_read_of_a_job_with_wrong_values_is_kept_with_the_places_that_lack_something() -> None:
    text = (
        'job "j" {\n  priority = "x"\n  group "g" {\n    count = 3\n    task "t" {\n      drivre = "x"\n    }\n  }\n}\n'
    )
    with pytest.raises(IncompleteJob) as caught:
        parse_job_with_findings(text, filename="j.hcl")

    partial = caught.value.partial
    assert partial.job["TaskGroups"][0]["Count"] == 3
    assert partial.damaged == {(), ("TaskGroups", 0, "Tasks", 0)}
    assert partial.positions["TaskGroups", 0, "Count"].line == 4


def test_errors_beyond_the_first_ones_are_counted_once() -> None:
    shown = found("\n".join(f"a{number} = /x" for number in range(80)))

    assert len(shown) == 51
    assert shown[-1].summary == "30 more errors"


def test_a_name_that_belongs_in_several_blocks_has_them_in_a_list() -> None:
    hints = [unknown_hint("x", (), homes).otherwise for homes in (("job",), ("job", "group"), ("job", "group", "task"))]

    assert hints == [f"It belongs in a {words} block." for words in ("job", "job or group", "job, group or task")]
    assert "multiregion" not in homes()["count"]


def test_what_is_damaged_stays_told_when_its_object_is_thrown_away() -> None:
    spoilt = "".join(f'  vault {{\n    rolee{number} = "x"\n  }}\n' for number in range(30))
    text = f'job "j" {{\n{spoilt}  group "g" {{\n    task "t" {{\n      driver = "x"\n    }}\n  }}\n}}\n'
    with pytest.raises(IncompleteJob) as caught:
        parse_job_with_findings(text, filename="j.hcl")

    assert ("TaskGroups", 0, "Tasks", 0) not in caught.value.partial.damaged
    assert ("TaskGroups", 0) not in caught.value.partial.damaged
