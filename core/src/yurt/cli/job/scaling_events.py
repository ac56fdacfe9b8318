"""`yurt job scaling-events`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import VERBOSE, Command, Invocation
from yurt.cli.terminal.text import local_time

Json = dict[str, Any]


def run(call: Invocation) -> int:
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
    told = [str(bool(event.get("Error"))).lower(), event.get("Message") or "", call.short(event.get("EvalID"))]
    return [group, *_counts(event), *told, local_time(event.get("Time") or 0)]


COMMAND = Command(
    "job scaling-events",
    "List the newest attempts to scale the groups of a job, newest first.",
    run,
    (VERBOSE,),
    (1, 1),
    "<job>",
    "one argument: <job>",
)
