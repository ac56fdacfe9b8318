"""Commands are found, helped and refused; a command costs nothing before it is known."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from typing import Any

import pytest
from yurt.cli.help import command_help, group_help, root_help
from yurt.cli.main import main
from yurt.cli.tree import ALIASES, COMMON, NOUNS, command, command_names, find, group_names

SUMMARY_MAX = 72
"""So that a line of a list fits a terminal."""


@pytest.mark.parametrize("name", command_names())
def test_every_command_has_a_summary_of_one_line_and_a_help(name: str) -> None:
    found = command(name)

    assert found.name == name
    assert found.summary and len(found.summary) <= SUMMARY_MAX and not found.summary.endswith(".")
    assert command_help(found).startswith(f"Usage: yurt {name}")
    assert all(flag.help for flag in found.all_flags if flag.has_effect)
    assert len({flag.name for flag in found.all_flags}) == len(found.all_flags)


def test_a_summary_is_the_same_in_the_list_and_in_the_help() -> None:
    for name in command_names():
        above = name.rpartition(" ")[0]
        shown = root_help() if not above else group_help(above) if above in group_names() else ""
        summary = command(name).summary
        assert summary in shown or above == "monitor"
        assert f"{summary}." in " ".join(command_help(command(name)).split())


def test_the_nouns_are_sorted_and_the_common_ones_among_them() -> None:
    assert list(NOUNS) == sorted(NOUNS)
    assert set(COMMON) <= set(NOUNS)


def test_a_flag_without_effect_is_accepted_and_in_no_help(api: Any, run: Any) -> None:
    api.answers["/v1/job/x"] = {}

    assert run("job", "validate", "-vault-namespace=a", "nothing.hcl")[2].startswith("nothing.hcl: there is no such")
    assert "-vault-namespace" not in run("job", "validate", "-help")[1]
    assert "-hcl2-strict" in run("job", "validate", "-help")[1]
    assert "did you mean" not in run("job", "validate", "-vault-namespacf=a", "x")[2]


def test_every_alias_leads_to_a_command_and_nearly_every_command_to_a_group() -> None:
    assert set(ALIASES.values()) <= set(command_names())
    above = {name.rpartition(" ")[0] for name in command_names() if " " in name}
    assert above - set(group_names()) == {"monitor"}, "one command that has another below it, as in Nomad"


def test_the_longest_command_is_found_and_flat_names_are_aliases() -> None:
    assert find(["job", "periodic", "force", "x"]) == ("job periodic force", command("job periodic force"), ["x"])
    assert find(["run", "x.hcl", "-detach"]) == ("job run", command("job run"), ["x.hcl", "-detach"])
    assert find(["status", "x"]) == ("status", command("status"), ["x"])
    assert find(["job", "tag", "-help"]) == ("job tag", None, ["-help"])
    assert find(["jbo"]) == ("", None, ["jbo"])


@pytest.mark.parametrize("noun", sorted(NOUNS))
def test_a_noun_in_several_modules_names_the_second_words_of_each(noun: str) -> None:
    path = f"yurt.cli.commands.{noun.replace('-', '_')}"
    for module, words in getattr(import_module(path), "MODULES", {}).items():
        assert {found.name.split()[1] for found in import_module(f"{path}.{module}").COMMANDS} == set(words)


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
    ("words", "hint", "code"),
    [
        (["jbo"], 'did you mean "job"', 127),
        (["job", "rnu"], 'did you mean "job run"', 1),
        (["nodes"], 'did you mean "node"', 127),
        (["job", "why"], 'did you mean "job why-not"', 1),
        (["event"], 'There is no command "event".', 127),
    ],
)
def test_an_unknown_command_gets_a_near_miss(
    words: list[str], hint: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with Nomad, 127 says that the first word is no command; a group is one, which fails."""
    assert main(words) == code
    assert hint in capsys.readouterr().err


def test_too_many_arguments_are_refused_with_the_rule(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "run", "a", "b"]) == 1
    assert main(["job", "plan"]) == 255
    assert "This command takes one argument: <path>" in capsys.readouterr().err


def test_a_group_lists_its_commands() -> None:
    text = group_help("job")

    assert "  run " in text and "  periodic " in text


HEAVY = ("aiohttp", "asyncio", "http.client", "msgspec", "numpy", "rich", "yurt.structs")


@pytest.mark.parametrize("noun", sorted(NOUNS))
def test_help_imports_one_noun_and_nothing_heavy(noun: str) -> None:
    names = [name for name in command_names() if name.split()[0] == noun]
    own = {noun.replace("-", "_")}
    probe = (
        "import sys; from yurt.cli.main import main; main(['-help']);"
        f"[main([*name.split(), '-help']) for name in {names}];"
        "nouns = {n.split('.')[3] for n in sys.modules if n.startswith('yurt.cli.commands.')};"
        f"sys.exit(','.join([n for n in {HEAVY} if n in sys.modules] + sorted(nouns - {own})) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=30, check=False)

    assert done.returncode == 0, done.stderr


def test_a_command_that_runs_imports_its_own_module_alone(api: Any) -> None:
    api.answers["/v1/jobs"] = []
    probe = (
        f"import sys; from yurt.cli.main import main; main(['job', 'status', '-address', {api.address!r}]);"
        "loaded = {n for n in sys.modules if n.startswith('yurt.cli.commands.')};"
        "sys.exit(','.join(sorted(loaded - {'yurt.cli.commands.job', 'yurt.cli.commands.job.status'})) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, timeout=30, check=False)

    assert (done.returncode, done.stdout) == (0, "No running jobs\n"), done.stderr
