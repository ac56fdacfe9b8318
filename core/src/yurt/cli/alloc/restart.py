"""`yurt alloc restart`."""

from __future__ import annotations

from yurt.cli.api.choose import chosen_task
from yurt.cli.api.lookup import api_path, find_alloc
from yurt.cli.command import VERBOSE, Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text


def run(call: Invocation) -> int:
    """Restart one task, the running ones, or all; silent when it went well."""
    given = call.flags.text("task") or (call.args[1] if len(call.args) > 1 else "")
    is_all = call.flags.is_on("all-tasks")
    if given and is_all:
        raise UsageError("The -all-tasks option is not allowed when restarting a specific task")
    alloc = find_alloc(call, call.args[0])
    task = chosen_task(alloc, given) if given else ""
    call.api.put(api_path("client", "allocation", alloc["ID"], "restart"), {"TaskName": task, "AllTasks": is_all})
    return 0


COMMAND = Command(
    "alloc restart",
    "Restart the running tasks of an allocation, or one of them.",
    run,
    (switch("all-tasks", "Also tasks that have ended."), text("task", "Only this task."), VERBOSE),
    (1, 2),
    "<allocation> [<task>]",
    "one or two arguments: <allocation> [<task>]",
)
