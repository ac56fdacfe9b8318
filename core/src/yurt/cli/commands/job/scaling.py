"""`yurt job scale` and `yurt job scaling-events`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.declaration import DETACH, VERBOSE, CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import number
from yurt.cli.json_object import Json
from yurt.cli.terminal.text import local_time


def scale_job(call: Invocation) -> int:
    """Change the count of one group."""
    from yurt.cli.views.detach import follow_or_detach

    job = find_job(call, call.args[0])
    count_text = call.args[-1]
    if not count_text.isdigit():
        raise UsageError(f'The count must be a whole number, not "{count_text}"')
    if job.get("Stop"):
        raise CliError(f'The job "{job["ID"]}" is stopped; start it before it is scaled: yurt job start {job["ID"]}')
    group = call.args[1] if len(call.args) == 3 else _only_group(call, job)
    body: Json = {
        "Count": int(count_text),
        "Target": {"Namespace": job.get("Namespace") or "default", "Job": job["ID"], "Group": group},
        "Message": "submitted using the Yurt CLI",
    }
    if call.flags.number("check-index"):
        body |= {"JobModifyIndex": call.flags.number("check-index"), "EnforceIndex": True}
    answer: Json = call.api.put(api_path("job", job["ID"], "scale"), body, {"namespace": job.get("Namespace")}) or {}
    return follow_or_detach(call, answer.get("EvalID") or "")


def _only_group(call: Invocation, job: Json) -> str:
    whole: Json = call.api.get(api_path("job", job["ID"]), {"namespace": job.get("Namespace")})
    groups = [group["Name"] for group in whole.get("TaskGroups") or ()]
    if len(groups) == 1:
        return str(groups[0])
    raise CliError(f'The job "{job["ID"]}" has several groups, so one must be named: {", ".join(groups)}')


def list_scaling_events(call: Invocation) -> int:
    """The newest attempts to scale the groups of a job."""
    job = find_job(call, call.args[0])
    answer: Json = call.api.get(api_path("job", job["ID"], "scale"), {"namespace": job.get("Namespace")}) or {}
    groups: dict[str, Json] = answer.get("TaskGroups") or {}
    found = [(name, event) for name, group in groups.items() for event in group.get("Events") or ()]
    if not found:
        call.screen.line("No events found")
        return 0
    found.sort(key=lambda each: (-(each[1].get("Time") or 0), each[0]))
    if call.is_verbose:
        call.screen.table("Task Group|Count|PrevCount|Error|Message|Eval ID|Date", [_long(call, *one) for one in found])
    else:
        rows = [[name, *_counts(event), local_time(event.get("Time") or 0)] for name, event in found]
        call.screen.table("Task Group|Count|PrevCount|Date", rows)
    return 0


def _counts(event: Json) -> list[str]:
    count = event.get("Count")
    return ["n/a" if count is None else str(count), str(event.get("PreviousCount") or 0)]


def _long(call: Invocation, group: str, event: Json) -> list[str]:
    cells = [str(bool(event.get("Error"))).lower(), event.get("Message") or "", call.short(event.get("EvalID"))]
    return [group, *_counts(event), *cells, local_time(event.get("Time") or 0)]


COMMANDS = (
    CliCommand(
        "job scale",
        "Change the count of a group",
        scale_job,
        (DETACH, VERBOSE, number("check-index", "Scale only when the job's modify index is this one.")),
        (2, 3),
        "<job> [<group>] <count>",
        "two or three arguments: <job> [<group>] <count>",
    ),
    CliCommand(
        "job scaling-events",
        "List the newest attempts to scale the groups of a job",
        list_scaling_events,
        (VERBOSE,),
        (1, 1),
        "<job>",
        "one argument: <job>",
    ),
)
