"""`yurt alloc pause`: stop a task for a while, and let it run again."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.declaration import VERBOSE, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json

STATES = ("pause", "run", "scheduled")


def pause_task(call: Invocation) -> int:
    """Change whether a task may run, or show it."""
    from yurt.cli.api.choose import chosen_alloc, chosen_task, named_task

    requested = call.flags.text("state")
    if requested not in STATES:
        raise UsageError(f'-state is one of {", ".join(STATES)}, not "{requested}"')
    alloc = chosen_alloc(call, call.args[0])
    task = chosen_task(alloc, named_task(call))
    path = api_path("client", "allocation", alloc["ID"], "pause")
    if call.flags.is_on("status"):
        found: Json = call.api.get(path, {"task": task}) or {}
        call.screen.line(found.get("ScheduleState") or "run")
        return 0
    call.api.put(path, {"Task": task, "ScheduleState": requested})
    return 0


COMMANDS = (
    CliCommand(
        "alloc pause",
        "Pause a task of an allocation, or let it run again",
        pause_task,
        (
            text("state", "pause stops the task, run lets it run, scheduled follows its schedule.", default="pause"),
            switch("status", "Print the present state and change nothing, whatever -state says."),
            text("task", "The task; needed when the allocation has several. Wins over the argument."),
            switch("job", "The first argument is a job: its newest running allocation."),
            text("group", "With -job: only allocations of this group."),
            VERBOSE,
        ),
        (1, 2),
        "<allocation|job> [<task>]",
        "one or two arguments: <allocation> [<task>]",
        details="A paused task has ended and starts again when it may run; its allocation stays where it is. Restarts "
        "of the agent keep the pause. For a task with a schedule block, pause and run override the schedule until "
        "-state=scheduled; -status prints scheduled_pause outside its hours.",
    ),
)
