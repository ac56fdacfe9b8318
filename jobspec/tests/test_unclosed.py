"""A `${` that nobody closes is reported once, at its place, and later mistakes are reported too."""

from __future__ import annotations

import json

import pytest
from yurt_jobspec import JobspecError, parse_job

PLACES = {
    "an argument": ('  name = "a/${b"', 16),
    "an argument behind an operator": ('  name = "${1 + "', 18),
    "a call": ('  name = "${upper(b"', 20),
    "a call with a string": ('  name = "${format("%s", b}"', 27),
    "a directive": ('  name = "%{if true"', 20),
    "one of a list": ('  datacenters = ["${a", "b", "c"]', 22),
    "the last of a list": ('  datacenters = ["a", "b", "${c"]', 32),
    "a label": ('  group "${a" {', 10),
    "a sequence with lines": ('  name = "${\n    a"', 6),
    "no quote at all": ('  name = "${a', 3),
}


def places(text: str) -> list[tuple[int | None, int | None]]:
    with pytest.raises(JobspecError) as caught:
        parse_job(text, filename="j.hcl")
    return [(item.line, item.column) for item in caught.value.diagnostics]


@pytest.mark.parametrize("name", PLACES)
def test_an_unclosed_sequence_is_told_once(name: str) -> None:
    line, column = PLACES[name]
    is_later = "\n" in line or line.endswith('"${a')
    body = "  type = null\n  meta {\n    a = 1\n  }\n" + ("  }\n" if line.endswith("{") else "")

    assert places(f'job "j" {{\n{line}\n{body}}}\n') == [(3 if is_later else 2, column)]


@pytest.mark.parametrize("name", [name for name in PLACES if name != "no quote at all"])
def test_a_later_mistake_is_told_too(name: str) -> None:
    line, _ = PLACES[name]
    text = f'job "j" {{\n{line}\n  meta {{\n    a = = 1\n  }}\n  type = "${{x"\n}}\n'

    told = places(text)

    first = 1 + line.count("\n")
    assert told[1:] == [(first + 3, 9), (first + 5, 14)]


def test_a_string_without_its_end_is_told_at_the_end_of_its_line() -> None:
    assert places('job "j" {\n  name = "abc\n}\n') == [(2, 14)]


def test_a_template_in_json_has_one_error_for_one_unclosed_sequence() -> None:
    assert len(places(json.dumps({"job": {"j": {"name": 'a ${upper("${b")}'}}}))) == 1


def test_a_file_of_unclosed_sequences_is_read_in_time() -> None:
    line = "  a = [" + ", ".join('"${b"' for _ in range(90)) + "]\n"

    assert len(places('job "j" {\n' + line * 200 + "}\n")) <= 51


def test_each_mistake_in_a_map_is_told_once() -> None:
    text = 'job "j" {\n  meta = {\n    a = = 1\n    b = "${x"\n  }\n  name = = 2\n}\n'
    assert places(text) == [(3, 9), (4, 14), (6, 10)]
