"""Commands of packages: their first words from the metadata of what is installed, the commands when one is asked for.

The words are read from the `entry_points.txt` files beside the packages: to import `importlib.metadata` alone takes
longer than `yurt -help` does. A package's code is imported for its own words only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from yurt.cli.command import CLIENT_FLAGS, CliCommand
from yurt.cli.errors import CliError
from yurt.cli.flags import Flag
from yurt.sdk.commands import ENTRY_POINT_GROUP, NUMBER, SWITCH, TEXTS, Command, CommandFailed, problem_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from yurt.cli.command import Invocation
    from yurt.sdk.commands import Query

_EMPTY: Mapping[str, Any] = {SWITCH: False, NUMBER: 0, TEXTS: ()}
_SECTION = f"[{ENTRY_POINT_GROUP}]"


class PackageNoun(NamedTuple):
    """A first word of commands, the module that has them, and the distribution with its version."""

    module: str
    distribution: str

    @property
    def summary(self) -> str:
        """What help says of the word; the module is not imported for it."""
        return f"Commands of the package {self.distribution}"


@cache
def package_nouns() -> Mapping[str, PackageNoun]:
    """The words that installed packages add, sorted; of two packages with one word the first on `sys.path` has it."""
    found: dict[str, PackageNoun] = {}
    for folder in sys.path:
        for name, text in _entry_points(folder):
            distribution = " ".join(name.removesuffix(".dist-info").rsplit("-", 1)).replace("_", "-")
            for word, module in _declared(text):
                found.setdefault(word, PackageNoun(module, distribution))
    return dict(sorted(found.items()))


def _entry_points(folder: str) -> Iterator[tuple[str, str]]:
    """The name of each installed distribution of a folder that declares commands, and its entry points."""
    try:
        names = sorted(name for name in os.listdir(folder or ".") if name.endswith(".dist-info"))
    except OSError:
        return
    for name in names:
        try:
            with open(os.path.join(folder, name, "entry_points.txt"), encoding="utf-8") as file:
                text = file.read()
        except (OSError, UnicodeDecodeError):
            continue
        if _SECTION in text:
            yield name, text


def _declared(text: str) -> Iterator[tuple[str, str]]:
    """The words and modules of our section."""
    is_ours = False
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            is_ours = line == _SECTION
        elif is_ours and "=" in line:
            word, _, module = line.partition("=")
            yield word.strip(), module.strip()


def package_commands(word: str) -> dict[str, CliCommand]:
    """The commands that begin with a package's word; imports its module. Raises CliError with what is wrong there."""
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


def _call_plugin(word: str, module: str) -> tuple[Command, ...]:
    import pluggy

    from yurt.sdk import plugin as declarations

    manager = pluggy.PluginManager(declarations.PROJECT)
    manager.add_hookspecs(declarations)
    manager.register(import_module(module), name=word)
    manager.check_pending()
    return tuple(command for found in manager.hook.yurt_commands() for command in found or ())


def _adapted(command: Command) -> CliCommand:
    """The command as the command line runs it."""
    taken = {flag.name for flag in CLIENT_FLAGS}
    flags = tuple(
        Flag(flag.name, flag.kind, flag.help, _EMPTY.get(flag.kind, ""))
        for flag in command.flags
        if flag.name not in taken
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


def _run(command: Command, call: Invocation) -> int:
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
