"""`yurt job restart`: the tasks of a job, some allocations at a time."""

from __future__ import annotations

import time
from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.declaration import VERBOSE, CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError, UsageError
from yurt.cli.flags import switch, text, texts
from yurt.cli.json_object import Json
from yurt.cli.suggest import did_you_mean
from yurt.cli.terminal.confirm import confirm
from yurt.cli.terminal.text import clock, go_duration, ordinal, parse_duration, plural

RESTART_LIMIT_S = 300.0


def restart_job(call: Invocation) -> int:
    """Restart the running allocations in batches; at the first failure ask the user or stop."""
    flags, screen = call.flags, call.screen
    if flags.text("on-error") not in ("ask", "fail"):
        raise UsageError(f'-on-error must be ask or fail, not "{flags.text("on-error")}"')
    if flags.is_on("all-tasks") and flags.texts("task"):
        raise UsageError("-all-tasks and -task cannot be used together")
    if flags.is_on("reschedule") and (flags.is_on("all-tasks") or flags.texts("task")):
        raise UsageError("-reschedule restarts whole allocations; it cannot be used with -task or -all-tasks")
    job = find_job(call, call.args[0])
    _check_names(call, job)
    allocs = _chosen(call, job)
    if not allocs:
        screen.line("No allocations to restart")
        return 0
    size = batch_size(flags.text("batch-size"), len(allocs))
    wait = None if flags.text("batch-wait") == "ask" else _wait_of(flags.text("batch-wait"))
    screen.line(screen.style(f"==> {clock()}: Restarting {plural(len(allocs), 'allocation')}", "bold"))
    batches = [allocs[at : at + size] for at in range(0, len(allocs), size)]
    for number, batch in enumerate(batches, 1):
        if number > 1 and not _pause(call, wait):
            return 0
        if len(batches) > 1:
            text_of = f"Restarting {ordinal(number)} batch of {plural(len(batch), 'allocation')}"
            screen.line(screen.style(f"==> {clock()}: {text_of}", "bold"))
        for alloc in batch:
            if not _restart_or_ask(call, alloc):
                return 1
    screen.line(screen.style(f"==> {clock()}: Job restart finished", "bold"))
    screen.line("\nJob restarted successfully!")
    return 0


def _check_names(call: Invocation, job: Json) -> None:
    """Refuse unknown groups and tasks before anything is restarted."""
    groups, tasks = call.flags.texts("group"), call.flags.texts("task")
    if not groups and not tasks:
        return
    whole: Json = call.api.get(api_path("job", job["ID"]), {"namespace": job.get("Namespace")})
    tasks_by_group = {
        group["Name"]: {task["Name"] for task in group.get("Tasks") or ()} for group in whole["TaskGroups"]
    }
    for group in groups:
        if group not in tasks_by_group:
            raise CliError(f'The job "{job["ID"]}" has no group "{group}"{did_you_mean(group, tasks_by_group)}')
    found = {name for group, names in tasks_by_group.items() if not groups or group in groups for name in names}
    for task in tasks:
        if task not in found:
            raise CliError(f'The job "{job["ID"]}" has no task "{task}"{did_you_mean(task, found)}')


def _chosen(call: Invocation, job: Json) -> list[Json]:
    """The running allocations of the chosen groups that have the chosen tasks."""
    groups = set(call.flags.texts("group"))
    query = {"namespace": job.get("Namespace")}
    allocs: list[Json] = call.api.get(api_path("job", job["ID"], "allocations"), query) or []
    tasks = set(call.flags.texts("task"))
    return [
        alloc
        for alloc in sorted(allocs, key=lambda each: each["Name"])
        if alloc["ClientStatus"] == "running"
        and alloc["DesiredStatus"] == "run"
        and (not groups or alloc["TaskGroup"] in groups)
        and (not tasks or tasks & set(alloc.get("TaskStates") or {}))
    ]


def batch_size(raw_text: str, total: int) -> int:
    """`3`, or `25%` of all, rounded up."""
    number = raw_text.removesuffix("%")
    if not number.isdigit() or int(number) == 0:
        raise UsageError(f'-batch-size must be a number or a percentage above zero, not "{raw_text}"')
    if raw_text.endswith("%"):
        return max(1, -(-total * min(int(number), 100) // 100))
    return int(number)


def _wait_of(raw_text: str) -> int:
    try:
        return parse_duration(raw_text)
    except ValueError:
        raise UsageError(f'-batch-wait must be a duration or "ask", not "{raw_text}"') from None


def _pause(call: Invocation, wait: int | None) -> bool:
    """Wait between two batches; returns whether to continue."""
    if wait is None:
        return call.flags.is_on("yes") or confirm("Proceed with the next batch?")
    if wait:
        call.screen.line(f"==> {clock()}: Waiting {go_duration(wait)} before restarting the next batch")
        time.sleep(wait / 1e9)
    return True


def _restart_or_ask(call: Invocation, alloc: Json) -> bool:
    short = call.short(alloc["ID"])
    call.screen.line(f'    {clock()}: Restarting allocation "{short}" for group "{alloc["TaskGroup"]}"')
    try:
        _restart(call, alloc)
    except (ApiError, CliError) as error:
        call.screen.error(f'    {clock()}: Allocation "{short}" was not restarted: {error}')
        return call.flags.text("on-error") == "ask" and confirm("Go on with the next allocation?")
    return True


def _restart(call: Invocation, alloc: Json) -> None:
    if call.flags.is_on("reschedule"):
        query = {"no_shutdown_delay": call.flags.is_on("no-shutdown-delay"), "reschedule": True}
        call.api.put(api_path("allocation", alloc["ID"], "stop"), {}, query)
        _until_replaced(call, alloc["ID"])
        return
    for task in call.flags.texts("task") or [""]:
        body = {"TaskName": task, "AllTasks": call.flags.is_on("all-tasks")}
        call.api.put(api_path("client", "allocation", alloc["ID"], "restart"), body)
    _until_running(call, alloc["ID"])


def _until_running(call: Invocation, alloc_id: str) -> None:
    _until(call, alloc_id, lambda alloc: alloc["ClientStatus"] == "running", "did not run again")


def _until_replaced(call: Invocation, alloc_id: str) -> None:
    _until(call, alloc_id, lambda alloc: bool(alloc.get("NextAllocation")), "was not replaced")


def _until(call: Invocation, alloc_id: str, is_done: Any, complaint: str) -> None:
    deadline, index = time.monotonic() + RESTART_LIMIT_S, 0
    while time.monotonic() < deadline:
        answer = call.api.read(api_path("allocation", alloc_id), index=index, wait_s=5.0)
        if is_done(answer.data):
            return
        if answer.data["ClientStatus"] in ("failed", "lost"):
            raise CliError(f"it is {answer.data['ClientStatus']} now")
        index = answer.index
    raise CliError(f"it {complaint} within {RESTART_LIMIT_S:.0f} s")


COMMANDS = (
    CliCommand(
        "job restart",
        "Restart the tasks of a job, some allocations at a time",
        restart_job,
        (
            switch("all-tasks", "Also tasks that have ended."),
            switch("yes", "Skip the confirmation between batches."),
            text("batch-size", "How many allocations at a time: a number or a percentage.", default="1"),
            text("batch-wait", "How long to wait between batches, or ask.", default="0s"),
            text("on-error", "What to do when an allocation fails: ask or fail.", default="ask"),
            switch("no-shutdown-delay", "With -reschedule: do not wait for shutdown_delay."),
            switch("reschedule", "Stop the allocations, so that new ones replace them."),
            texts("group", "Only this group; may be repeated."),
            texts("task", "Only this task; may be repeated."),
            VERBOSE,
        ),
        (1, 1),
        "<job>",
        "one argument: <job>",
    ),
)
