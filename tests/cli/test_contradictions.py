"""What excludes each other on a command line is refused before anything is asked, by one rule of all commands."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.cli.declaration import CliCommand
from yurt.cli.flags import BOOL, INT
from yurt.cli.main import main
from yurt.cli.tree import command, command_names

COMMANDS = [command(name) for name in command_names()]
PAIRS = [(each, pair) for each in COMMANDS for pair in each.exclusive]
NOWHERE = "http://127.0.0.1:9"


def is_argument(name: str) -> bool:
    return name.startswith("<")


def kind_of(each: CliCommand, name: str) -> str:
    return next(flag.kind for flag in each.all_flags if flag.name == name)


def line_with(each: CliCommand, pair: tuple[str, str]) -> list[str]:
    """A command line with both, and as many arguments as that takes."""
    at = [each.argument_names().index(name) + 1 for name in pair if is_argument(name)]
    arguments = [f"argument{number}" for number in range(max(each.arguments[0], *at, 0))]
    kinds = {name: kind_of(each, name) for name in pair if not is_argument(name)}
    values = {name: "" if kind == BOOL else "=7" if kind == INT else "=other" for name, kind in kinds.items()}
    return [*each.name.split(), *(f"-{name}{value}" for name, value in values.items()), *arguments]


@pytest.mark.parametrize(("each", "pair"), PAIRS, ids=lambda value: getattr(value, "name", value))
def test_a_declared_pair_exists_and_is_refused(
    each: CliCommand, pair: tuple[str, str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOMAD_ADDR", NOWHERE)
    known = {flag.name for flag in each.all_flags} | set(each.argument_names())
    assert set(pair) <= known
    assert main(line_with(each, pair)) == (each.usage_code or each.failure_code)
    assert "contradict each other; leave out one of both" in capsys.readouterr().err


@pytest.mark.parametrize("each", COMMANDS, ids=lambda each: each.name)
def test_an_argument_and_a_flag_for_the_same_thing_exclude_each_other(each: CliCommand) -> None:
    flags = {flag.name for flag in each.flags}
    same = {
        (name, argument)
        for argument in each.argument_names()[: each.arguments[1] if each.arguments[1] >= 0 else None]
        for name in flags
        if name in argument.strip("<>").replace("|", " ").replace("_", " ").split()
        if each.name not in OTHER_MEANING and kind_of(each, name) != BOOL
    }
    assert same <= set(each.exclusive)


OTHER_MEANING = {"job tag apply", "job tag unset"}
"""Their `<tag>` is the value of -name."""


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("alloc restart a1 web -task other", '-task=other and the argument "web" contradict each other'),
        ("alloc signal a1 web -task other", '-task=other and the argument "web" contradict each other'),
        ("alloc logs a1 web -task other", '-task=other and the argument "web" contradict each other'),
        ("alloc logs a1 -n 3 -c 4", "-n=3 and -c=4 contradict each other"),
        ("volume snapshot list one -plugin two", '-plugin=two and the argument "one" contradict each other'),
        ("node status n1 -filter x", '-filter=x and the argument "n1" contradict each other'),
        ("node drain n1 -disable -force", "-disable and -force contradict each other"),
        ("job status web -no-color -force-color", "-no-color and -force-color contradict each other"),
        ("node meta apply a=1 -unset=b,a", 'the key "a" is set and taken away'),
        ("eval delete e1 -filter x", "one of the two"),
        ("node status n1 -self", "leave out -self or the argument"),
    ],
)
def test_what_is_contradicted_is_named(
    words: str, error: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOMAD_ADDR", NOWHERE)
    assert main(words.split()) == 1
    assert error in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["alloc restart a1 web -task web", "job status web -no-color -force-color=false", "alloc logs a1 web"]
)
def test_what_agrees_is_carried_out(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOMAD_ADDR", NOWHERE)
    main(words.split())
    assert "No agent answers" in capsys.readouterr().err


def test_a_group_with_an_allocation_of_another_is_refused(run: Any, api: Any) -> None:
    alloc = "aaaaaaaa-1111-4222-8333-444444444444"
    api.answers["/v1/allocations"] = [{"ID": alloc, "Namespace": "default"}]
    api.answers[f"/v1/allocation/{alloc}"] = {"ID": alloc, "TaskGroup": "web", "Namespace": "default"}
    code, _, err = run("alloc", "logs", "-group", "db", alloc)
    assert code == 1
    assert f'-group selects among the allocations of a job: {alloc} is one of the group "web"' in err
