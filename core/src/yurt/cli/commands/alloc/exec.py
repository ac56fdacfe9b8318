"""`yurt alloc exec`: a command in a task."""

from __future__ import annotations

import json

from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text
from yurt.cli.terminal.session_flags import SESSION_FLAGS, session_manner


def run_command(call: Invocation) -> int:
    """Run a command in a task; its exit code is ours."""
    from yurt.cli.api.choose import chosen_alloc, chosen_task
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


COMMANDS = (
    CliCommand(
        "alloc exec",
        "Run a command in a task",
        run_command,
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
    ),
)
