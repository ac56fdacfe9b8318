"""`yurt alloc fs` and `yurt alloc logs`: files of an allocation and what its tasks write."""

from __future__ import annotations

import sys

from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import VERBOSE, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import number, switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import bytes_text, local_time, parse_time

TAIL_LINES = 10


def show_files(call: Invocation) -> int:
    """List a folder, or print a file."""
    from yurt.cli.api.choose import chosen_alloc

    alloc = chosen_alloc(call, call.args[0])
    path = call.args[1] if len(call.args) > 1 else "/"
    entry: Json = call.api.get(api_path("client", "fs", "stat", alloc["ID"]), {"path": path})
    if call.flags.is_on("stat"):
        _show_entries(call, [entry], with_type=True)
    elif entry["IsDir"]:
        found = call.api.get(api_path("client", "fs", "ls", alloc["ID"]), {"path": path}) or []
        _show_entries(call, found, with_type=False)
    else:
        _print_file(call, alloc, path)
    return 0


def _show_entries(call: Invocation, entries: list[Json], *, with_type: bool) -> None:
    is_human = call.flags.is_on("H")
    rows = []
    for entry in entries:
        size = bytes_text(entry["Size"]) if is_human else str(entry["Size"])
        name = entry["Name"] + ("/" if entry["IsDir"] else "")
        row = [entry["FileMode"], size, local_time(parse_time(entry["ModTime"])), name]
        if with_type:
            row.insert(3, entry.get("ContentType") or "")
        rows.append(row)
    call.screen.table(
        "Mode|Size|Modified Time|Content Type|Name" if with_type else "Mode|Size|Modified Time|Name", rows
    )


def _print_file(call: Invocation, alloc: Json, path: str) -> None:
    from yurt.cli.api.frames import FileSource
    from yurt.cli.commands.alloc.following import StartPosition, print_source

    flags = call.flags
    lines, characters = flags.number("n"), flags.number("c")
    if flags.is_on("tail") and lines < 0 and characters < 0:
        lines = TAIL_LINES
    print_source(call.api, FileSource(alloc["ID"], path), StartPosition(lines, characters), follow=flags.is_on("f"))


def show_logs(call: Invocation) -> int:
    """Print the log of a task, its end, or new output."""
    from yurt.cli.api.choose import chosen_alloc, chosen_task, named_task
    from yurt.cli.api.frames import LogSource
    from yurt.cli.commands.alloc.following import StartPosition, print_source

    flags = call.flags
    if flags.is_on("stdout") and flags.is_on("stderr"):
        raise UsageError("-stdout and -stderr cannot be used together")
    alloc = chosen_alloc(call, call.args[0])
    task = chosen_task(alloc, named_task(call))
    lines, characters = flags.number("n"), flags.number("c")
    if flags.is_on("tail") and lines < 0 and characters < 0:
        lines = TAIL_LINES
    source = LogSource(alloc["ID"], task, "stderr" if flags.is_on("stderr") else "stdout")
    has_output = print_source(call.api, source, StartPosition(lines, characters), follow=flags.is_on("f"))
    if not has_output and _failed_to_start(alloc, task):
        print(f"The task never started; why, shows: yurt alloc status {call.short(alloc['ID'])}", file=sys.stderr)
    return 0


def _failed_to_start(alloc: Json, task: str) -> bool:
    state: Json = (alloc.get("TaskStates") or {}).get(task) or {}
    return bool(state.get("Failed")) and not any(event["Type"] == "Started" for event in state.get("Events") or ())


COMMANDS = (
    CliCommand(
        "alloc fs",
        "List and print files of an allocation",
        show_files,
        (
            switch("H", "Sizes for humans."),
            switch("stat", "Facts about the file instead of its content, also with -f or -tail."),
            switch("f", "Follow the file, through another server when the one asked goes away."),
            switch("tail", "Begin near the end."),
            number("n", "Print the last lines only, as many as given.", default=-1),
            number("c", "Print the last bytes only, as many as given.", default=-1),
            switch("job", "The argument is a job; its newest running allocation is taken."),
            text("group", "With -job: only allocations of this group."),
            VERBOSE,
        ),
        (1, 2),
        "<allocation> [<path>]",
        "one or two arguments: <allocation> [<path>]",
        exclusive=(("n", "c"),),
    ),
    CliCommand(
        "alloc logs",
        "Print the standard output or standard error of a task",
        show_logs,
        (
            switch(
                "f", "Follow: print what comes until interrupted, through another server when the one asked goes away."
            ),
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
        exclusive=(("n", "c"),),
    ),
)
