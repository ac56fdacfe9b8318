"""The contract of commands: words that a package adds to the command line, as in `yurt racks list`.

An entry point of the group `yurt.commands.v1` names the first word, and the module with the commands that begin with
it:

    [project.entry-points."yurt.commands.v1"]
    racks = "yurt_site_tools.racks"

The module is imported when somebody types that word and for nothing else; its plugin function `yurt_commands`
(`yurt.sdk.plugin`) returns the commands. Words of Yurt's own commands are taken. This module imports nothing heavy, and
a command's module should import what only a run needs inside its functions, so that help and completion stay fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

ENTRY_POINT_GROUP: Final = "yurt.commands.v1"
SUMMARY_MAX: Final = 72
"""Characters of a summary."""
SWITCH: Final = "bool"
TEXT: Final = "text"
NUMBER: Final = "int"
TEXTS: Final = "list"
FlagKind = Literal["bool", "text", "int", "list"]
Query = Mapping[str, str | int | bool]


class CommandFailed(Exception):
    """Ends a command with a message on standard error and an exit code."""

    def __init__(self, text: str, *, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class CommandFlag(NamedTuple):
    """A flag: `-name` for a switch, `-name=value` for the other kinds; a flag of the kind `list` may be repeated."""

    name: str
    kind: FlagKind
    help: str


class CommandCall(Protocol):
    """One run of a command: its arguments, the agent's API, and standard output.

    Methods that ask the agent raise `yurt.sdk.errors.YurtError` with its answer, which ends the command by itself.
    """

    @property
    def args(self) -> Sequence[str]:
        """The positional arguments."""
        ...

    def is_on(self, flag: str) -> bool:
        """Whether a switch was given."""
        ...

    def text(self, flag: str) -> str:
        """The value of a text flag; "" when it was not given."""
        ...

    def number(self, flag: str) -> int:
        """The value of a number flag; 0 when it was not given."""
        ...

    def texts(self, flag: str) -> Sequence[str]:
        """All values of a flag that may be repeated."""
        ...

    def get(self, path: str, query: Query | None = None) -> Any:
        """The decoded JSON of a GET request, for example `get("/v1/nodes", {"prefix": "a"})`."""
        ...

    def put(self, path: str, body: Any = None, query: Query | None = None) -> Any:
        """The decoded JSON answer of a PUT request with a JSON body."""
        ...

    def delete(self, path: str, query: Query | None = None) -> Any:
        """The decoded JSON answer of a DELETE request."""
        ...

    def line(self, text: str = "") -> None:
        """Print a line."""
        ...

    def table(self, titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """Print a table with a title for each column."""
        ...

    def json(self, value: Any) -> None:
        """Print indented JSON."""
        ...


class PackageCommand(NamedTuple):
    """One command of a package.

    `name` is the whole name (`racks list`), `run` returns the exit code, `arguments` is the least and the most number
    of positional arguments (-1: any number), `usage` names them for the help (`<rack> [<node>]`), and `details` is what
    the help says below the summary. Every command also has the flags of commands that ask an agent: -address, -token
    and so on.
    """

    name: str
    summary: str
    run: Callable[[CommandCall], int]
    flags: tuple[CommandFlag, ...] = ()
    arguments: tuple[int, int] = (0, 0)
    usage: str = ""
    details: str = ""


def problem_of(command: PackageCommand, word: str) -> str:
    """The problem with the declaration of a command below a first word; "" when there is none."""
    if command.name.split()[:1] != [word] or command.name != " ".join(command.name.split()):
        return f'the command "{command.name}" must begin with "{word}", with one space between its words'
    if not command.summary or len(command.summary) > SUMMARY_MAX or command.summary.endswith("."):
        return f'the summary of "{command.name}" must have 1 to {SUMMARY_MAX} characters and no full stop'
    strange = [flag.name for flag in command.flags if flag.kind not in (SWITCH, TEXT, NUMBER, TEXTS)]
    if strange:
        return f'the flag -{strange[0]} of "{command.name}" must be of the kind {SWITCH}, {TEXT}, {NUMBER} or {TEXTS}'
    least, most = command.arguments
    if least < 0 or -1 < most < least:
        return f'"{command.name}" takes {least} to {most} arguments, which is impossible; -1 means any number'
    return ""
