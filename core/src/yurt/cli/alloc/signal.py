"""`yurt alloc signal`."""

from __future__ import annotations

import signal

from yurt.cli.api.choose import chosen_task
from yurt.cli.api.lookup import api_path, find_alloc
from yurt.cli.command import VERBOSE, Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import text


def run(call: Invocation) -> int:
    """Send a signal to one task or to all; silent when it went well."""
    name = call.flags.text("s")
    if not name.isdigit() and f"SIG{name.upper().removeprefix('SIG')}" not in signal.Signals.__members__:
        raise UsageError(f'"{name}" is not a signal; use a name such as SIGHUP or SIGUSR1')
    given = call.flags.text("task") or (call.args[1] if len(call.args) > 1 else "")
    alloc = find_alloc(call, call.args[0])
    task = chosen_task(alloc, given) if given else ""
    call.api.put(api_path("client", "allocation", alloc["ID"], "signal"), {"Task": task, "Signal": name})
    return 0


COMMAND = Command(
    "alloc signal",
    "Send a signal to the tasks of an allocation, or to one of them.",
    run,
    (text("s", "The signal by name.", default="SIGKILL"), text("task", "Only this task."), VERBOSE),
    (1, 2),
    "<allocation> [<task>]",
    "one or two arguments: <allocation> [<task>]",
)
