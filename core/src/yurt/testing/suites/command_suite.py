"""Conformance suite for command packages: subclass it and provide the module of the entry point.

    class TestMine(CommandSuite):
        word = "racks"

        @pytest.fixture
        def module(self) -> ModuleType:
            return racks

The suite holds it to the contract that `yurt.sdk.commands` writes down: valid declarations, help for each command, and
an end with a message and an exit code, never with a traceback, when no agent answers.
"""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Final

import pluggy
import pytest

from yurt.cli.main import main
from yurt.cli.package_nouns import PackageNoun, package_nouns
from yurt.cli.tree import NOUNS, noun
from yurt.sdk import plugin as declarations
from yurt.sdk.commands import PackageCommand, problem_of

HEAVY: Final = ("aiohttp", "grpc", "numpy", "rich", "requests")
"""Modules that help and completion must not wait for."""
NOBODY: Final = "http://127.0.0.1:9"


class CommandSuite:
    """The tests of a command package's contract."""

    word: str
    """The first word of the commands."""

    @pytest.fixture
    def module(self) -> ModuleType:
        """The module of the entry point."""
        raise NotImplementedError

    @pytest.fixture
    def commands(self, module: ModuleType) -> tuple[PackageCommand, ...]:
        """The commands that the module declares."""
        manager = pluggy.PluginManager(declarations.PROJECT)
        manager.add_hookspecs(declarations)
        manager.register(module)
        manager.check_pending()
        return tuple(command for made in manager.hook.yurt_commands() for command in made or ())

    @pytest.fixture
    def installed(self, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
        """Make the command line know the package's noun, as if it were installed."""
        found = {**package_nouns(), self.word: PackageNoun(module.__name__, "the tested package")}
        for module_name in ("package_nouns", "packages"):
            monkeypatch.setattr(f"yurt.cli.{module_name}.package_nouns", lambda: found)
        noun.cache_clear()

    def test_its_declarations_are_valid(self, commands: tuple[PackageCommand, ...]) -> None:
        assert commands and self.word not in NOUNS
        assert [problem for command in commands if (problem := problem_of(command, self.word))] == []
        assert len({command.name for command in commands}) == len(commands)

    def test_help_does_not_wait_for_heavy_modules(self, module: ModuleType) -> None:
        program = f"import sys, {module.__name__}; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert found.stdout.strip() == "", "import these inside the functions that need them"

    @pytest.mark.usefixtures("installed")
    def test_every_command_has_a_help(
        self, commands: tuple[PackageCommand, ...], capsys: pytest.CaptureFixture[str]
    ) -> None:
        for command in commands:
            assert main([*command.name.split(), "-help"]) == 0
            text = capsys.readouterr().out
            assert command.summary in text and all(f"-{flag.name}" in text for flag in command.flags)

    @pytest.mark.usefixtures("installed")
    def test_a_wrong_command_line_is_refused_before_the_command_runs(
        self, commands: tuple[PackageCommand, ...], capsys: pytest.CaptureFixture[str]
    ) -> None:
        for command in commands:
            assert main([*command.name.split(), "-no-such-flag"]) == 1
            assert "-no-such-flag" in capsys.readouterr().err

    @pytest.mark.usefixtures("installed")
    def test_without_an_agent_it_ends_with_a_message(
        self, commands: tuple[PackageCommand, ...], capsys: pytest.CaptureFixture[str]
    ) -> None:
        for command in commands:
            arguments = ["x"] * command.arguments[0]
            code = main([*command.name.split(), f"-address={NOBODY}", *arguments])
            shown = capsys.readouterr()
            assert "Internal error" not in shown.err and "Traceback" not in shown.err
            assert code == 0 or shown.err
