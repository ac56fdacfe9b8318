"""The flags of commands that hold a session with a task, read without importing what a session needs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from yurt.cli.declaration import Invocation
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
    """How a session with a command is run, according to the flags."""
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
