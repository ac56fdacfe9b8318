"""Completion: commands, flags, files and live ids; its installation in the user's shells."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from yurt.cli.completion import candidates
from yurt.cli.main import main

ALLOC_ID = "bbbbbbbb-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("yurt jo", ["job"]),
        ("yurt job pe", ["periodic"]),
        ("yurt job periodic ", ["force"]),
        ("yurt alloc logs -std", ["-stderr", "-stdout"]),
        ("yurt operator root keyring ro", ["rotate"]),
        ("yurt job run --check", ["--check-index"]),
        ("yurt nothing x", []),
        ("yurt job run -check-index ", []),
    ],
)
def test_words_and_flags_are_completed(line: str, expected: list[str]) -> None:
    assert candidates(line) == expected


def test_every_noun_and_short_name_is_offered() -> None:
    assert {"job", "run", "operator", "var"} <= set(candidates("yurt "))


def test_files_are_offered_where_a_path_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "web.nomad.hcl").write_text("")
    (tmp_path / "web").mkdir()
    (tmp_path / ".hidden").write_text("")
    monkeypatch.chdir(tmp_path)

    assert candidates("yurt run we") == ["web.nomad.hcl", "web/"]
    assert candidates(f"yurt job run -var-file {tmp_path}/we") == [f"{tmp_path}/web.nomad.hcl", f"{tmp_path}/web/"]
    assert candidates("yurt fmt ") == ["web.nomad.hcl", "web/"]


def test_ids_come_from_the_agent(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOMAD_ADDR", api.address)
    api.answers["/v1/search"] = {"Matches": {"allocs": [ALLOC_ID]}}
    assert candidates("yurt alloc logs -f bb") == [ALLOC_ID]
    assert api.asked[-1][3] == {"Prefix": "bb", "Context": "allocs"}

    api.answers["/v1/search"] = {"Matches": {"jobs": ["web", "work"]}}
    assert candidates("yurt stop -namespace prod w") == ["web", "work"]
    assert api.asked[-1][1] == "/v1/search?namespace=prod" and api.asked[-1][3]["Context"] == "jobs"
    assert candidates("yurt job status web ") == []

    api.answers["/v1/search"] = {"Matches": {"namespaces": ["prod"]}}
    assert candidates("yurt job status -namespace p") == ["prod"]


def test_an_agent_that_does_not_answer_says_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NOMAD_ADDR", "http://127.0.0.1:1")
    monkeypatch.setenv("COMP_LINE", "yurt job status ")

    assert main([]) == 0
    assert capsys.readouterr() == ("", "")


def test_it_is_installed_once_and_taken_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    bash, fish = tmp_path / ".bashrc", tmp_path / ".config" / "fish" / "completions" / "yurt.fish"
    bash.write_text("alias ll='ls -l'\n")
    fish.parent.parent.mkdir(parents=True)

    assert main(["-autocomplete-install"]) == 0
    assert bash.read_text().startswith("alias ll='ls -l'\ncomplete -C ") and fish.exists()
    assert main(["-autocomplete-install"]) == 1
    assert bash.read_text().count("complete -C") == 1
    assert main(["-autocomplete-uninstall"]) == 0
    assert bash.read_text() == "alias ll='ls -l'\n" and not fish.exists()
    assert not (tmp_path / ".zshrc").exists()


@pytest.mark.parametrize("text", ["", "alias ll='ls -l'"])
def test_files_without_completion_stay_as_they_are(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    bash = tmp_path / ".bashrc"
    bash.write_text(text)

    assert main(["-autocomplete-uninstall"]) == 1
    assert bash.read_text() == text and "is in none of" in capsys.readouterr().err


def test_lines_below_the_completion_keep_their_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    bash = tmp_path / ".bashrc"
    bash.touch()
    assert main(["-autocomplete-install"]) == 0
    bash.write_text(bash.read_text() + "alias ll='ls -l'\n")
    text = bash.read_text()

    assert main(["-autocomplete-install"]) == 1
    assert bash.read_text() == text


def test_the_value_of_a_flag_is_completed_behind_its_equals_sign(
    api: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bash replaces what follows the sign, and says so; zsh and fish replace the whole word."""
    monkeypatch.setenv("NOMAD_ADDR", api.address)
    api.answers["/v1/search"] = {"Matches": {"namespaces": ["prod"]}}

    assert candidates("yurt job status -namespace=pr") == ["-namespace=prod"]
    assert candidates("yurt job status -short=t") == []
    monkeypatch.setenv("COMP_LINE", "yurt job status -namespace=pr")
    monkeypatch.setattr("sys.argv", ["yurt", "yurt", "pr", "="])
    assert main([]) == 0
    assert capsys.readouterr().out == "prod\n"


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_loads_its_completion_where_nothing_else_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".zshrc").touch()
    assert main(["-autocomplete-install"]) == 0

    script = ["zsh", "-fc", "source ~/.zshrc && (( $+functions[compdef] )) && print -r -- $_comps[yurt]"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=30, check=False, env=os.environ)

    assert (done.returncode, "yurt" in done.stdout, done.stderr) == (0, True, "")


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_with_it(tmp_path: Path) -> None:
    program = tmp_path / "yurt"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m yurt.cli.main "$@"\n')
    program.chmod(0o755)
    script = f"COMP_LINE='yurt job sc' COMP_POINT=11 {program} yurt sc job"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=30, check=True, env=os.environ
    )

    assert done.stdout.split() == ["scale", "scaling-events"]
