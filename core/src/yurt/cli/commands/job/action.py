"""`yurt job action`: a command that a job declares, in one of its tasks."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path, find_alloc, find_job
from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import text
from yurt.cli.json_object import Json
from yurt.cli.terminal.session_flags import SESSION_FLAGS, session_manner


def run_action(call: Invocation) -> int:
    """Run a command that a job declares, in one of its tasks; its exit code is ours."""
    from yurt.cli.api.choose import newest_running
    from yurt.cli.terminal.session import converse

    manner = session_manner(call)
    if not call.flags.text("job") and not call.flags.text("alloc"):
        raise UsageError("-job or -alloc is needed: an action is of a job")
    name = call.args[0]
    alloc = find_alloc(call, call.flags.text("alloc")) if call.flags.text("alloc") else None
    job_id, namespace = _job(call, alloc)
    group, task = chosen_place(_actions(call, job_id, namespace), name, *_requested(call, alloc))
    alloc = alloc or newest_running(call, job_id, namespace, group)
    query: dict[str, str | int | bool | tuple[str, ...] | None] = {
        "action": name, "allocID": str(alloc["ID"]), "group": group, "task": task, "tty": manner.is_terminal,
        "namespace": namespace,
    }  # fmt: skip
    return converse(call.api.websocket(api_path("job", job_id, "action"), query), manner)


def _job(call: Invocation, alloc: Json | None) -> tuple[str, str]:
    """Id and namespace of the job; that of -alloc is the one of -job where both are given."""
    if alloc is not None and call.flags.text("job") in ("", alloc["JobID"]):
        return alloc["JobID"], alloc["Namespace"]
    job = find_job(call, call.flags.text("job"))
    if alloc is not None:
        raise CliError(f'Allocation "{alloc["ID"][:8]}" is of the job "{alloc["JobID"]}", not of "{job["ID"]}"')
    return job["ID"], job.get("Namespace") or "default"


def _actions(call: Invocation, job_id: str, namespace: str) -> list[Json]:
    return call.api.get(api_path("job", job_id, "actions"), {"namespace": namespace}) or []


def _requested(call: Invocation, alloc: Json | None) -> tuple[str, str]:
    """The requested group and task, "" for any."""
    group = call.flags.text("group")
    if alloc is not None and group not in ("", alloc["TaskGroup"]):
        raise CliError(f'Allocation "{alloc["ID"][:8]}" is of the group "{alloc["TaskGroup"]}", not of "{group}"')
    return (alloc["TaskGroup"] if alloc is not None else group), call.flags.text("task")


def chosen_place(actions: list[Json], name: str, group: str, task: str) -> tuple[str, str]:
    """The group and task with the action; raises CliError with the candidates where none or several have it."""
    fitting = [each for each in actions if group in ("", each["TaskGroupName"]) and task in ("", each["TaskName"])]
    found = [(each["TaskGroupName"], each["TaskName"]) for each in fitting if each["Name"] == name]
    if len(found) == 1:
        return found[0]
    if found:
        places = "".join(f"\n  * -group={of_group} -task={of_task}" for of_group, of_task in found)
        raise CliError(f'Several tasks have the action "{name}"; say which:{places}')
    names = ", ".join(sorted({each["Name"] for each in fitting}))
    raise CliError(
        f'The job has no action "{name}"; ' + (f"its actions: {names}" if names else "its tasks declare none")
    )


COMMANDS = (
    CliCommand(
        "job action",
        "Run an action that a job declares, in one of its tasks",
        run_action,
        (
            text("job", "The job that declares the action."),
            text("alloc", "The allocation to run it in; without it the newest of the group that runs."),
            text("group", "The group; needed when several have a task with this action."),
            text("task", "The task; needed when several have this action."),
            *SESSION_FLAGS,
        ),
        (1, 1),
        "<action>",
        "one argument: <action>",
        details="""
An action is a command in the block `action` of a task. It runs with your terminal.

-job or -alloc is needed. The exit code is the command's own, 1 when it could not be run. At a terminal, ~. at the start
of a line ends the session, whatever the command does, and ~~ sends one ~. The actions of a job are listed by
`yurt job status -verbose`.
""",
    ),
)
