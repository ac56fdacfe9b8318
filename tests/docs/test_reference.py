"""The reference pages are what the code says today, and what they claim about values is worked out, not written."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import isclass, isfunction
from pathlib import Path
from pkgutil import walk_packages

import pytest
import yurt.sdk
from yurt_jobspec import parse_job

from docs.generate import PAGES, REFERENCE
from docs.generator import functions, http_api, job_files, job_unavailable, job_values, markdown

DOCS = REFERENCE.parent
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
CELL_END = re.compile(r"(?<!\\)\|")


@pytest.mark.parametrize("name", PAGES)
def test_a_reference_page_is_what_the_code_says(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), f"docs/reference/{name} is stale: run `make docs`"


def test_every_public_name_of_the_sdk_is_told() -> None:
    page = (REFERENCE / "sdk.md").read_text()
    names = {
        name
        for module in map(import_module, (each.name for each in walk_packages(yurt.sdk.__path__, "yurt.sdk.")))
        for name, value in vars(module).items()
        if not name.startswith("_") and (isclass(value) or isfunction(value)) and value.__module__ == module.__name__
    }
    untold = {name for name in names if f"`{name}`" not in page and f"`{name}(" not in page}
    assert len(names) > 200 and {name for name in untold if f"`async {name}(" not in page} == set()


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.relative_to(DOCS).as_posix())
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    broken = [target for target in LINK.findall(page.read_text()) if not (page.parent / target).exists()]
    assert not broken


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.relative_to(DOCS).as_posix())
def test_each_row_of_a_table_has_the_columns_of_its_header(page: Path) -> None:
    """A `|` ends a cell, in inline code too: what comes after the last column is not shown."""
    for table in TABLE.findall(page.read_text()):
        header, *rows = table.splitlines()
        width = len(CELL_END.findall(header))
        assert [row for row in rows if len(CELL_END.findall(row)) != width] == []


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ('substr("allocation", 0, 5)', '"alloc"'),
        ("range(1, 4)", "[1,2,3]"),
        ('cidrsubnet("10.1.0.0/16", 8, 3)', '"10.1.3.0/24"'),
        ('formatdate("YYYY-MM-DD", "2026-01-02T03:04:05Z")', '"2026-01-02"'),
        ('file("motd.txt")', '"hello"'),
        ('try(element([], 0), "none")', '"none"'),
    ],
)
def test_an_example_is_worked_out_by_the_parser(expression: str, result: str) -> None:
    assert functions.evaluate([expression]) == [result]


def test_every_function_has_an_example_that_calls_it() -> None:
    examples = functions.examples()

    wrong = [name for name, (_, example) in examples.items() if f"{name}(" not in example]

    assert len(examples) > 70
    assert not wrong


def test_a_default_that_the_page_takes_from_the_file_format_is_the_parsers() -> None:
    job = parse_job('job "x" {\n constraint {\n attribute = "a"\n value = "b"\n }\n}', filename="x")

    assert job["Constraints"][0]["Operand"] == "="
    assert job_files.OWN_DEFAULTS["Constraint", "operator"] == '`"="`'
    assert (job["ID"], job["Name"]) == ("x", "x")


def test_defaults_differ_by_the_type_of_the_job() -> None:
    text = (REFERENCE / "job-files.md").read_text()

    assert '| `interval` | duration | `"30m"` (service, system); `"24h"` (batch, sysbatch) |' in text


def test_a_block_that_cannot_be_had_is_told_with_the_words_of_the_refusal() -> None:
    verdicts = job_unavailable.verdicts()

    assert verdicts["job > multiregion"][0] == "when it is registered"
    assert verdicts["task > vault"][1].startswith("vault is not available in this version")
    assert verdicts["task > dispatch_payload"] == ("", "")


def test_every_variable_of_a_task_is_told() -> None:
    assert "NOMAD_ALLOC_ID" in job_values.sample_environment()
    assert "NOMAD_PORT_<label>" in job_values.sample_environment()


def test_a_field_that_no_handler_looks_at_is_told_as_ignored() -> None:
    scale = next(line for line in http_api.lines() if http_api.key(line) == "PUT /v1/job/:job_id/scale")

    reads = http_api.reads_of(scale.handler)

    assert reads.ignored == {"PolicyOverride"}
    assert {"Target", "Count"} <= set(reads.body)


def test_a_missing_word_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match=r"things: no words for \['a'\], words for nothing \['c'\]"):
        markdown.require("things", ["a", "b"], ["b", "c"])


@pytest.mark.parametrize(
    ("nanoseconds", "text"), [(0, "0s"), (90 * 60 * 10**9, "90m"), (24 * 3600 * 10**9, "24h"), (250 * 10**6, "250ms")]
)
def test_a_duration_is_written_in_its_largest_unit(nanoseconds: int, text: str) -> None:
    assert markdown.duration(nanoseconds) == text


@pytest.mark.parametrize("line", ["PUT, POST` | `/v1/acl/token` |", "PUT, POST` | `/v1/acl/token/:id` |"])
def test_fields_that_a_body_reads_itself_are_not_called_ignored(line: str) -> None:
    (row,) = (each for each in http_api.page_text().splitlines() if line in each)
    body, _, ignored = row.partition("ignored: ")
    assert "`ExpirationTTL`" in body and "`Roles`" in body
    assert "`Policies`" not in ignored
