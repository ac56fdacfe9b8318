"""Manual pages name every command and flag, and are roff that the formatter accepts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from yurt.cli.tree import NOUNS, command, command_names

from docs.manual_pages import main, pages


def test_every_command_and_flag_is_in_the_page_of_its_noun() -> None:
    found = pages()

    assert set(found) == {"yurt.1", *(f"yurt-{word}.1" for word in NOUNS)}
    for name in command_names():
        page = found[f"yurt-{name.split()[0]}.1"].replace("\\-", "-")
        assert f".SS yurt {name}\n" in page
        assert all(f"\\fB-{flag.name}\\fP" in page for flag in command(name).flags if flag.has_effect)


def test_no_line_of_text_is_taken_for_a_request() -> None:
    requests = (".TH", ".SH", ".SS", ".TP", ".PP", ".B ", ".BR ")
    for page in pages().values():
        assert all(line.startswith(requests) for line in page.splitlines() if line.startswith("."))


@pytest.mark.skipif(shutil.which("groff") is None, reason="needs groff")
def test_groff_formats_every_page_without_a_warning(tmp_path: Path) -> None:
    assert main([str(tmp_path)]) == 0
    files = sorted(str(path) for path in tmp_path.iterdir())
    done = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", *files], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stderr == ""
