"""`yurt job scale`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import number
from yurt.cli.views.follow import follow_or_detach

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Change the count of one group."""
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


COMMAND = Command(
    "job scale",
    "Change how many allocations a group has.",
    run,
    (DETACH, VERBOSE, number("check-index", "Scale only when the job's modify index is this one.")),
    (2, 3),
    "<job> [<group>] <count>",
    "two or three arguments: <job> [<group>] <count>",
)
