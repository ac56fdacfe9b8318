"""`yurt alloc exec`."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from yurt.cli.api.choose import chosen_alloc, chosen_task
from yurt.cli.api.lookup import api_path
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text

if TYPE_CHECKING:
    from yurt.cli.terminal.session import Manner

NO_ESCAPE = "none"
SESSION_FLAGS = (
    switch("i", "Pass standard input on.", default=True),
    switch("t", "Give the command a terminal; the default when you sit at one."),
    text("e", 'The character that begins an escape at the start of a line, or "none".', default="~"),
)


def session_manner(call: Invocation) -> Manner:
    """How a session with a command is held, as the flags say."""
    from yurt.cli.terminal.session import Manner

    flags = call.flags
    is_at_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    has_input = flags.is_on("i")
    tty = flags.is_on("t") if flags.is_given("t") else is_at_terminal and has_input
    escape = flags.text("e")
    if tty and not has_input:
        raise UsageError("-t needs -i: nobody works at a terminal that takes no input")
    if escape not in ("", NO_ESCAPE) and len(escape.encode()) != 1:
        raise UsageError('-e takes one character, or "none"')
    return Manner(
        has_input=has_input,
        is_terminal=tty,
        is_raw=tty and sys.stdin.isatty(),
        escape=b"" if escape in ("", NO_ESCAPE) or not sys.stdin.isatty() else escape.encode(),
    )


def run(call: Invocation) -> int:
    """Run a command in a task; its exit code is ours."""
    from yurt.cli.terminal.session import converse

    manner = session_manner(call)
    name, *command = call.args
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        raise UsageError("This command takes at least two arguments: <allocation> <command>")
    alloc = chosen_alloc(call, name)
    task = chosen_task(alloc, call.flags.text("task"))
    query: dict[str, str | int | bool | None] = {
        "task": task, "tty": manner.is_terminal, "command": json.dumps(command),
    }  # fmt: skip
    socket = call.api.websocket(api_path("client", "allocation", alloc["ID"], "exec"), query)
    return converse(socket, manner)


COMMAND = Command(
    "alloc exec",
    "Run a command in a task, with your terminal.",
    run,
    (
        *SESSION_FLAGS,
        text("task", "The task; needed when the allocation has several."),
        switch("job", "The argument is a job; its newest running allocation is taken."),
        text("group", "With -job: only allocations of this group."),
    ),
    (1, -1),
    "<allocation> <command> [<argument> ...]",
    "at least two arguments: <allocation> <command>",
    details="""
Flags come before the allocation; everything after it is the command. The exit code is the command's own, 1 when it
could not be run. At a terminal, ~. at the start of a line ends the session, whatever the command does, and ~~ sends
one ~.
""",
    stop_at_argument=True,
)
