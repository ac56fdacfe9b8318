"""Random texts made of the language's own pieces, and the inputs that fuzzing once stumbled over.

The coverage-guided harness is `jobspec/fuzz/harness.py` (`make fuzz`); what follows needs nothing but hypothesis and
runs with the other tests.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt_jobspec import JobspecError, format_source, parse_body, parse_job, render, write_job

FUZZ = Path(__file__).resolve().parent.parent / "fuzz"
TOKENS = [
    bytes(line.strip()[1:-1], "utf-8").decode("unicode_escape").encode("latin-1").decode("utf-8")
    for line in (FUZZ / "hcl.dict").read_text().splitlines()
    if line.startswith('"')
]
SMALL = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    '"',
    "=",
    ",",
    ".",
    "\n",
    " ",
    "a",
    "b = ",
    "1",
    "-",
    "!",
    "?",
    ":",
    "$",
    "%",
    "~",
    "\\",
]
SOUP = st.lists(st.sampled_from(TOKENS + SMALL * 3), max_size=30).map("".join)
STUMBLED = {
    "an unclosed label with a sequence": 'a "x${',
    "an unclosed label with a directive": 'a "b" { c "d%{',
    "an unclosed string inside a sequence": 'a = <<EOF\n${"n${"{$n"}',
    "an object as a key in YAML": 'a = yamldecode("a: {{b: 1}: 2}")',
    "bytes that are not UTF-8 in a JSON file": '{"job": {"a": {"meta": {"\udcce": "x"}}}}',
    "half a surrogate pair in a JSON file": '{"job": {"a": {"meta": {"\\ud800": "\\udc00"}}}}',
    "half a surrogate pair in decoded JSON": 'job "a" {\n meta {\n a = jsondecode("\\"\\\\ud800\\"")\n }\n}\n',
    "a for expression behind a line end": 'a = {\n  for k in ["a"] : k => 1 }',
    "a template that ends inside a string inside a directive": '{"job": {"a": {"name": "%{ if \\"${ \\"{$"}}}',
}
NINES = "9" * 5000
CALLS = (
    f'format("%{NINES}d", 1)',
    f'format("%.{NINES}f", 1)',
    f'format("%[{NINES}]d", 1)',
    'format("%f", 1e900)',
    'format("%.2f", -1e900)',
    'format("%.0f", 1e200)',
    'format("%g", 1e-900)',
    "log(1e900, 10)",
    f'yamldecode("0x{"f" * 5000}")',
    f'yamldecode("{NINES}")',
    'yamldecode("{{a: 1}: 2}")',
    'yamldecode("{[a]: 2}")',
    'yamldecode("[{a: 1}: 2]")',
    f'jsondecode("{NINES}")',
    f'parseint("{"z" * 1000}", 36)',
    f'timeadd("2020-01-01T00:00:00Z", "{NINES}h")',
    'cidrhost("10.0.0.0/8", 1e900)',
    'cidrsubnet("10.0.0.0/8", 1e900, 1)',
    'substr("abc", 1e900, 2)',
    "range(1e900)",
    "range(0, 1, 1e-900)",
    "element([1], 1e900)",
    "chunklist([1], 1e900)",
    'indent(1e900, "a")',
    "1e900 * 1e900",
    "-1e900 % 7",
)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call[:40])
def test_a_function_with_an_extreme_argument_gives_a_value_or_an_error(call: str) -> None:
    survives('job "j" {\n  meta {\n    a = jsonencode(' + call + ")\n  }\n}\n")


def survives(text: str) -> None:
    """Nothing but JobspecError comes out, and what was read can be written."""
    for read in (parse_job, parse_body):
        try:
            data = read(text, filename="soup.hcl")
        except JobspecError as error:
            assert render(error.diagnostics, {"soup.hcl": text})
            continue
        json.dumps(data)
        if read is parse_job:
            assert parse_job(write_job(data).text, filename="soup.hcl") == data
    try:
        once = format_source(text)
    except JobspecError:
        return
    assert format_source(once) == once


@pytest.mark.parametrize("name", STUMBLED)
def test_what_fuzzing_found_stays_mended(name: str) -> None:
    survives(STUMBLED[name])


@pytest.mark.parametrize("path", sorted(FUZZ.glob("seeds/*")), ids=lambda path: path.name)
def test_the_seeds_of_the_fuzzer_are_fine(path: Path) -> None:
    survives(path.read_text())


@settings(max_examples=300, deadline=None)
@given(SOUP)
def test_any_soup_of_tokens_is_survived(text: str) -> None:
    survives(text)


@settings(max_examples=300, deadline=None)
@given(SOUP)
def test_any_soup_of_tokens_inside_a_job_is_survived(text: str) -> None:
    survives('job "j" {\n  meta {\n    a = ' + text + "\n  }\n}\n")


@settings(max_examples=200, deadline=None)
@given(SOUP)
def test_any_soup_of_tokens_in_a_template_of_a_json_file_is_survived(text: str) -> None:
    survives(json.dumps({"job": {"j": {"meta": {"a": text}}}}))


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(["string", "number", "list(string)", "map(any)"]))
def test_any_value_of_a_variable_is_survived(setting: str, value: str, kind: str) -> None:
    source = 'variable "a" {\n  type = ' + kind.replace("any", "string") + '\n  sensitive = true\n}\njob "j" {}\n'
    for settings_, environ in (([f"a={setting}"], {}), ([setting], {"NOMAD_VAR_a": value})):
        try:
            parse_job(source, filename="v.hcl", variables=settings_, environ=environ)
        except JobspecError as error:
            assert render(error.diagnostics, {"v.hcl": source})
