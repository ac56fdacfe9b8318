"""Texts that look like a declared variable are warned of; what may be meant for the node or a shell is not."""

from __future__ import annotations

import pytest
from yurt_jobspec import parse_job_with_findings

HEAD = 'variable "image" {\n  default = "x"\n}\nlocals {\n  tag = "7"\n}\njob "j" {\n'


def warnings(body: str, head: str = HEAD) -> list[tuple[int | None, str | None]]:
    parsed = parse_job_with_findings(f"{head}{body}\n}}\n", filename="j.hcl")
    return [(each.line, each.hint) for each in parsed.warnings]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("${image}", "Write ${var.image} if that is meant."),
        ("a-${ tag }", "Write ${local.tag} if that is meant."),
        ("var.image", "Write var.image without quotes."),
        ("local.tag", "Write local.tag without quotes."),
    ],
)
def test_a_text_that_names_a_variable_is_warned_of(text: str, hint: str) -> None:
    assert warnings(f'meta {{\n  a = "{text}"\n}}') == [(9, hint)]


@pytest.mark.parametrize("text", ["${other}", "$${image}", "${var.image}", "var.other", "see var.image", "${NOMAD_DC}"])
def test_other_texts_are_not_warned_of(text: str) -> None:
    assert warnings(f'meta {{\n  a = "{text}"\n}}') == []


def test_comments_bound_names_and_files_without_variables_are_not_warned_of() -> None:
    assert warnings('# "${image}" and "var.image"') == []
    assert warnings('meta {\n  a = join(",", [for image in ["x"] : "${image}"])\n}') == []
    assert warnings('meta {\n  a = "${image}"\n}', head='job "j" {\n') == []


@pytest.mark.parametrize(
    "body", ['region = "eu" // "${image}"', 'region = "eu" /* "var.image" */', '/*\n "${image}"\n*/', "# ${image}"]
)
def test_comments_are_no_texts(body: str) -> None:
    assert warnings(body) == []


def test_a_heredoc_is_read_as_a_text_also_where_its_lines_begin_with_a_hash() -> None:
    assert warnings("meta {\n  a = <<EOT\n# ${image}\nEOT\n}") == [(10, "Write ${var.image} if that is meant.")]


def test_a_bound_name_is_one_where_it_is_bound_only() -> None:
    loop = '[for image in ["x"] : "${image}"]'
    assert warnings(f'meta {{\n  a = join(",", {loop})\n  b = "${{image}}"\n}}')[0][0] == 10


def test_a_long_line_is_read_once() -> None:
    line = " ".join(f"for ${{image}} x{number}" for number in range(2_000))
    assert len(warnings(f'meta {{\n  a = "{line}"\n}}')) == 50
