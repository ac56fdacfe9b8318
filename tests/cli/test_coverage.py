"""Every command and every flag of Nomad exists, or is in a table of exceptions with its reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from yurt.cli.declaration import CLIENT_FLAGS, COLOR_FLAGS
from yurt.cli.main import main
from yurt.cli.tree import ALIASES, command, command_names, find, group_names
from yurt.cli.unsupported import ABSENT, ABSENT_FLAGS, LOCAL, NO_EFFECT, absent_command, absent_flag

REFERENCE = Path(__file__).resolve().parents[3] / "shared" / "reference" / "cli-commands.md"
CLIENT = frozenset(flag.name for flag in CLIENT_FLAGS)


class Listed(NamedTuple):
    """A row of the list: what Nomad has."""

    name: str
    aliases: tuple[str, ...]
    is_group: bool
    flags: frozenset[str]


def rows(text: str) -> Iterator[Listed]:
    """The rows of the table of commands."""
    for line in text.partition("Custom flags detail")[0].splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) != 3 or cells[0] in ("Command", "---"):
            continue
        name, arguments, flags = cells
        name, _, also = name.partition(" (also: ")
        own = set(re.findall(r"(?:^| )-([A-Za-z0-9-]+)", flags))
        if flags.startswith("C"):
            own |= CLIENT
        aliases = tuple(word.strip() for word in also.rstrip(")").split(",") if word)
        yield Listed(name, aliases, arguments == "(group)", frozenset(own))


def listed() -> list[Listed]:
    if not REFERENCE.exists():
        pytest.skip("the list of Nomad's commands is not beside this checkout")
    return list(rows(REFERENCE.read_text()))


def missing(row: Listed) -> list[str]:
    """What of a row neither exists nor has an exception."""
    if absent_command(row.name.split()):
        return []
    name = ALIASES.get(row.name, row.name)
    if name not in command_names():
        is_known = name in group_names()
        return [] if is_known else [row.name]
    has = {flag.name for flag in command(name).all_flags}
    lost = [f"{name} -{flag}" for flag in sorted(row.flags - has) if not absent_flag(name, flag)]
    return lost + [f"{alias} for {name}" for alias in row.aliases if ALIASES.get(alias) != name]


def test_every_command_flag_and_short_name_of_nomad_exists_or_has_an_exception() -> None:
    table = listed()

    assert len(table) > 200
    assert [lost for row in table for lost in missing(row)] == []


def test_every_exception_is_about_something_that_nomad_has() -> None:
    table = listed()
    names = {row.name for row in table}
    former = {"keygen", "keyring", "operator keygen", "operator keyring", "operator snapshot agent"}

    assert set(ABSENT) - former <= names
    for name, lost in ABSENT_FLAGS.items():
        (row,) = [each for each in table if each.name == name]
        assert all(any(flag.startswith(start) for flag in row.flags) for start, _ in lost)


def test_what_the_exceptions_name_does_not_exist() -> None:
    assert not set(ABSENT) & {*command_names(), *group_names(), *ALIASES}
    for name in ABSENT_FLAGS:
        effective = {flag.name for flag in command(name).all_flags if flag.has_effect}
        assert not {flag for flag in effective if absent_flag(name, flag)}


def test_every_flag_without_effect_has_a_reason_and_no_other_has_one() -> None:
    found = {
        (name, flag.name) for name in command_names() for flag in command(name).flags if not flag.has_effect
    }  # fmt: skip

    assert found == set(NO_EFFECT)


def test_every_reason_is_a_sentence() -> None:
    reasons = [*ABSENT.values(), *NO_EFFECT.values(), LOCAL]

    assert all(len(reason) > 20 and reason[0].isupper() for reason in reasons)


@pytest.mark.parametrize("name", sorted(ABSENT))
def test_a_command_that_is_absent_says_why(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*name.split(), "x"]) == 1
    assert ABSENT[name] in capsys.readouterr().err


def test_a_flag_that_is_absent_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["operator", "debug", "-vault-token=x"]) == 1
    assert "-vault-token is not available: Yurt does not use Vault" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["fmt", "tls ca info", "operator snapshot inspect", "var init"])
def test_a_command_that_asks_no_agent_takes_the_flags_of_clients(name: str) -> None:
    flags = {flag.name: flag for flag in command(name).all_flags}

    assert set(flags) >= CLIENT
    assert {flag for flag in CLIENT if flags[flag].has_effect} == COLOR_FLAGS


def test_the_agent_takes_no_flags_of_clients_but_its_own() -> None:
    assert find(["agent"])[1] is not None
    assert "token" not in {flag.name for flag in command("agent").all_flags}


ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"`yurt ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)*)((?: [^`]*)?)`")
TOLD_IN = ("core/src/**/*.py", "drivers/*/src/**/*.py", "devices/*/src/**/*.py", "core/src/**/*.js", "docs/[!a]*/*.md")
WRONG_ON_PURPOSE = {
    "docs/howto/common-mistakes.md", "docs/howto/write-a-command.md", "docs/reference/sdk.md",
    "core/src/yurt/sdk/commands.py",
}  # fmt: skip
"""They name mistakes, or the command of an example."""


def unknown_words(line: str) -> Iterator[str]:
    """The commands and flags between backquotes that do not exist."""
    known = {*command_names(), *group_names(), *ALIASES, *ABSENT}
    for words, rest in NAMED.findall(line):
        parts = words.split()
        name = next((" ".join(parts[:n]) for n in (4, 3, 2, 1) if " ".join(parts[:n]) in known), "")
        if not name or (name in group_names() and name not in command_names() and len(parts) > len(name.split())):
            yield words
        elif name in command_names():
            flags = {flag.name for flag in command(name).all_flags} | {"help", "h"}
            yield from (f"{name} -{flag}" for flag in re.findall(r" --?([a-z][a-z0-9-]*)", rest) if flag not in flags)


def test_every_command_that_a_text_names_exists() -> None:
    files = [path for pattern in TOLD_IN for path in ROOT.glob(pattern) if "vendor" not in path.parts]
    wrong = {
        f"{path.relative_to(ROOT)}:{number}: {word}"
        for path in files
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if "`yurt " in line and str(path.relative_to(ROOT)) not in WRONG_ON_PURPOSE
        for word in unknown_words(line)
    }
    assert len(files) > 1000 and wrong == set()
