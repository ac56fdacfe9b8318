"""Commands of packages, as the command line runs them; a package's code is imported for its own word only."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from yurt.cli.declaration import CLIENT_FLAGS, CliCommand
from yurt.cli.errors import CliError
from yurt.cli.flags import Flag
from yurt.cli.package_nouns import package_nouns
from yurt.sdk.commands import NUMBER, SWITCH, TEXTS, CommandFailed, PackageCommand, problem_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from yurt.cli.declaration import Invocation
    from yurt.sdk.commands import Query

_EMPTY: Mapping[str, Any] = {SWITCH: False, NUMBER: 0, TEXTS: ()}


def package_commands(word: str) -> dict[str, CliCommand]:
    """The commands below a package's word; imports its module. Raises CliError for an invalid one."""
    noun = package_nouns()[word]
    try:
        declared = _call_plugin(word, noun.module)
    except (Exception, SystemExit) as error:
        if os.environ.get("YURT_DEBUG"):
            raise
        raise CliError(
            f"the commands of {noun.distribution} cannot be loaded from {noun.module}: {type(error).__name__}: "
            f"{error}; YURT_DEBUG=1 shows where"
        ) from None
    problems = [problem_of(command, word) for command in declared]
    problem = next(filter(None, problems), "") or ("" if declared else "it declares no command")
    if problem:
        raise CliError(f"the commands of {noun.distribution} in {noun.module} are not valid: {problem}")
    return {command.name: _adapted(command) for command in declared}


def _call_plugin(word: str, module: str) -> tuple[PackageCommand, ...]:
    import pluggy

    from yurt.sdk import plugin as declarations

    manager = pluggy.PluginManager(declarations.PROJECT)
    manager.add_hookspecs(declarations)
    manager.register(import_module(module), name=word)
    manager.check_pending()
    return tuple(command for found in manager.hook.yurt_commands() for command in found or ())


def _adapted(command: PackageCommand) -> CliCommand:
    """The command as the command line runs it."""
    reserved = {flag.name for flag in CLIENT_FLAGS}
    flags = tuple(
        Flag(flag.name, flag.kind, flag.help, _EMPTY.get(flag.kind, ""))
        for flag in command.flags
        if flag.name not in reserved
    )
    return CliCommand(
        command.name,
        command.summary,
        lambda call: _run(command, call),
        flags,
        command.arguments,
        command.usage,
        takes=command.usage or "no arguments",
        details=command.details,
    )


def _run(command: PackageCommand, call: Invocation) -> int:
    try:
        return command.run(_PackageCall(call))
    except CommandFailed as error:
        raise CliError(str(error), code=error.code) from None


class _PackageCall:
    """The `CommandCall` of an invocation."""

    def __init__(self, call: Invocation) -> None:
        self._call = call

    @property
    def args(self) -> Sequence[str]:
        return tuple(self._call.args)

    def is_on(self, flag: str) -> bool:
        return self._call.flags.is_on(flag)

    def text(self, flag: str) -> str:
        return self._call.flags.text(flag)

    def number(self, flag: str) -> int:
        return self._call.flags.number(flag)

    def texts(self, flag: str) -> Sequence[str]:
        return tuple(self._call.flags.texts(flag))

    def get(self, path: str, query: Query | None = None) -> Any:
        return self._call.api.get(path, query)

    def put(self, path: str, body: Any = None, query: Query | None = None) -> Any:
        return self._call.api.put(path, body, query)

    def delete(self, path: str, query: Query | None = None) -> Any:
        return self._call.api.delete(path, query)

    def line(self, text: str = "") -> None:
        self._call.screen.line(text)

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        self._call.screen.table("|".join(titles), rows)

    def json(self, value: Any) -> None:
        self._call.screen.json(value)
