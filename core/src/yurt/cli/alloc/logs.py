"""`yurt alloc logs`."""

from __future__ import annotations

import sys
from typing import Any

from yurt.cli.alloc.following import Begin, print_source
from yurt.cli.api.choose import chosen_alloc, chosen_task
from yurt.cli.api.frames import LogSource
from yurt.cli.command import VERBOSE, Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import number, switch, text

Json = dict[str, Any]

TAIL_LINES = 10


def run(call: Invocation) -> int:
    """Print the log of a task, its end, or what comes."""
    flags = call.flags
    if flags.is_on("stdout") and flags.is_on("stderr"):
        raise UsageError("-stdout and -stderr cannot be used together")
    alloc = chosen_alloc(call, call.args[0])
    task = chosen_task(alloc, flags.text("task") or (call.args[1] if len(call.args) > 1 else ""))
    lines, characters = flags.number("n"), flags.number("c")
    if flags.is_on("tail") and lines < 0 and characters < 0:
        lines = TAIL_LINES
    source = LogSource(alloc["ID"], task, "stderr" if flags.is_on("stderr") else "stdout")
    has_output = print_source(call.api, source, Begin(lines, characters), follow=flags.is_on("f"))
    if not has_output and _failed_to_start(alloc, task):
        print(f"The task never started; why, shows: yurt alloc status {call.short(alloc['ID'])}", file=sys.stderr)
    return 0


def _failed_to_start(alloc: Json, task: str) -> bool:
    state: Json = (alloc.get("TaskStates") or {}).get(task) or {}
    return bool(state.get("Failed")) and not any(event["Type"] == "Started" for event in state.get("Events") or ())


COMMAND = Command(
    "alloc logs",
    "Print what a task writes to its standard output or error.",
    run,
    (
        switch("f", "Follow: print what comes until interrupted, through another server when the one asked goes away."),
        switch("tail", "Begin near the end."),
        number("n", "Print the last lines only, as many as given.", default=-1),
        number("c", "Print the last bytes only, as many as given.", default=-1),
        switch("stderr", "Standard error instead of standard output."),
        switch("stdout", "Standard output, which is the default."),
        switch("job", "The argument is a job; its newest running allocation is taken."),
        text("task", "The task; needed when the allocation has several."),
        text("group", "With -job: only allocations of this group."),
        VERBOSE,
    ),
    (1, 2),
    "<allocation> [<task>]",
    "one or two arguments: <allocation> [<task>]",
)
