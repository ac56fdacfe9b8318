"""`yurt alloc restart`, `signal`, `stop` and `keep`."""

from __future__ import annotations

import signal

from yurt.cli.api.lookup import api_path, find_alloc
from yurt.cli.declaration import DETACH, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import local_time, parse_duration


def restart_tasks(call: Invocation) -> int:
    """Restart one task, the running ones, or all; prints nothing on success."""
    from yurt.cli.api.choose import chosen_task, named_task

    task_name = named_task(call)
    is_all = call.flags.is_on("all-tasks")
    if task_name and is_all:
        raise UsageError("The -all-tasks option is not allowed when restarting a specific task")
    alloc = find_alloc(call, call.args[0])
    task = chosen_task(alloc, task_name) if task_name else ""
    call.api.put(api_path("client", "allocation", alloc["ID"], "restart"), {"TaskName": task, "AllTasks": is_all})
    return 0


def signal_tasks(call: Invocation) -> int:
    """Send a signal to one task or to all; prints nothing on success."""
    from yurt.cli.api.choose import chosen_task, named_task

    name = call.flags.text("s")
    if not name.isdigit() and f"SIG{name.upper().removeprefix('SIG')}" not in signal.Signals.__members__:
        raise UsageError(f'"{name}" is not a signal; use a name such as SIGHUP or SIGUSR1')
    task_name = named_task(call)
    alloc = find_alloc(call, call.args[0])
    task = chosen_task(alloc, task_name) if task_name else ""
    call.api.put(api_path("client", "allocation", alloc["ID"], "signal"), {"Task": task, "Signal": name})
    return 0


def stop_alloc(call: Invocation) -> int:
    """Stop it and follow the evaluation that replaces it."""
    from yurt.cli.views.detach import follow_or_detach

    alloc = find_alloc(call, call.args[0])
    query = {"no_shutdown_delay": call.flags.is_on("no-shutdown-delay")}
    answer: Json = call.api.put(api_path("allocation", alloc["ID"], "stop"), {}, query) or {}
    eval_id = answer.get("EvalID") or ""
    return follow_or_detach(call, eval_id, detached=lambda: call.screen.line(eval_id))


def keep_alloc(call: Invocation) -> int:
    """Put off its end for being idle."""
    try:
        duration = parse_duration(call.flags.text("for"))
    except ValueError as error:
        raise UsageError(f"-for: {error}") from None
    if duration <= 0:
        raise UsageError("-for needs a duration above 0, such as 2h")
    alloc = find_alloc(call, call.args[0])
    answer: Json = call.api.put(api_path("allocation", alloc["ID"], "keep"), {"Duration": duration}) or {}
    if call.flags.is_on("json"):
        call.screen.json(answer)
        return 0
    until = local_time(int(answer.get("KeptUntil") or 0))
    call.screen.line(f'Allocation "{call.short(alloc["ID"])}" does not end for being idle before {until}')
    if answer.get("Keeps"):
        call.screen.line(f"Others wait for its node pool; it was kept {answer['Keeps']} times while that was so")
    return 0


COMMANDS = (
    CliCommand(
        "alloc keep",
        "Put off the end of an allocation that does not use its devices",
        keep_alloc,
        (text("for", "For how long.", default="2h"), switch("json", "The answer as JSON."), VERBOSE),
        (1, 1),
        "<allocation>",
        "one argument: <allocation>",
        details="For allocations of groups with a policy on idle devices. While other jobs wait for the node pool, it "
        "can be done as often as the policy's interactive block says, three times unless it says otherwise.",
    ),
    CliCommand(
        "alloc restart",
        "Restart the running tasks of an allocation, or one of them",
        restart_tasks,
        (
            switch("all-tasks", "Also tasks that have ended."),
            text("task", "Only this task; wins over the argument."),
            VERBOSE,
        ),
        (1, 2),
        "<allocation> [<task>]",
        "one or two arguments: <allocation> [<task>]",
    ),
    CliCommand(
        "alloc signal",
        "Send a signal to the tasks of an allocation, or to one of them",
        signal_tasks,
        (
            text("s", "The signal by name.", default="SIGKILL"),
            text("task", "Only this task; wins over the argument."),
            VERBOSE,
        ),
        (1, 2),
        "<allocation> [<task>]",
        "one or two arguments: <allocation> [<task>]",
    ),
    CliCommand(
        "alloc stop",
        "Stop an allocation; its job starts a replacement",
        stop_alloc,
        (DETACH, VERBOSE, switch("no-shutdown-delay", "Do not wait for shutdown_delay.")),
        (1, 1),
        "<allocation>",
        "one argument: <allocation>",
    ),
)
