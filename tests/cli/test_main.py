"""Commands are found, helped and refused; a command costs nothing before it is known."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
from yurt.cli.help import command_help, group_help
from yurt.cli.main import find, main
from yurt.cli.tree import ALIASES, COMMANDS, GROUPS


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_has_a_module_that_knows_its_name_and_its_help(name: str) -> None:
    command = import_module(COMMANDS[name][0]).COMMAND

    assert command.name == name
    assert command_help(command).startswith(f"Usage: yurt {name}")
    assert all(flag.help for flag in command.all_flags if flag.has_effect)
    assert len({flag.name for flag in command.all_flags}) == len(command.all_flags)


def test_a_flag_without_effect_is_accepted_and_in_no_help(api: Any, run: Any) -> None:
    api.answers["/v1/jobs"] = []

    assert run("job", "status", "-ui")[0] == 0
    assert "-ui" not in run("job", "status", "-help")[1]
    assert "-short" in run("job", "status", "-help")[1]
    assert 'did you mean "-ui"' not in run("job", "status", "-uj")[2]


def test_every_alias_leads_to_a_command_and_nearly_every_command_to_a_group() -> None:
    assert set(ALIASES.values()) <= set(COMMANDS)
    above = {name.rpartition(" ")[0] for name in COMMANDS if " " in name}
    assert above - set(GROUPS) == {"monitor"}, "one command that has another below it, as in Nomad"


def test_the_longest_command_is_found_and_flat_names_are_aliases() -> None:
    assert find(["job", "periodic", "force", "x"]) == ("job periodic force", ["x"])
    assert find(["run", "x.hcl", "-detach"]) == ("job run", ["x.hcl", "-detach"])
    assert find(["status", "x"]) == ("status", ["x"])


@pytest.mark.parametrize(
    "words", [["-h"], ["--help"], ["job", "-help"], ["job", "run", "-h"], ["job", "run", "x", "-h"]]
)
def test_help_goes_to_standard_output_and_ends_with_zero(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("Usage: yurt")


@pytest.mark.parametrize("words", [["-version"], ["--version"], ["version"]])
def test_the_version_is_printed_with_one_or_two_dashes(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("Yurt v")


@pytest.mark.parametrize(
    ("words", "hint"),
    [(["jbo"], 'did you mean "job"'), (["job", "rnu"], 'did you mean "job run"'), (["nodes"], 'did you mean "node"')],
)
def test_an_unknown_command_gets_a_near_miss(words: list[str], hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 127
    assert hint in capsys.readouterr().err


def test_too_many_arguments_are_refused_with_the_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "run", "a", "b"]) == 1
    assert main(["job", "plan"]) == 255
    assert "This command takes one argument: <path>" in capsys.readouterr().err


def test_a_group_lists_its_commands() -> None:
    text = group_help("job")

    assert "  run " in text and "  periodic " in text


def test_help_imports_nothing_but_the_standard_library_and_the_cli() -> None:
    probe = (
        "import sys; from yurt.cli.main import main; main(['--help']); main(['job', 'run', '-h']);"
        "sys.exit(','.join(n for n in ('msgspec', 'aiohttp', 'numpy', 'rich', 'asyncio') if n in sys.modules) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 0, done.stderr
