"""`yurt job eval`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.flags import switch
from yurt.cli.views.follow import follow_or_detach

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Make an evaluation of the job and follow it."""
    job = find_job(call, call.args[0])
    body = {
        "JobID": job["ID"],
        "Namespace": job.get("Namespace"),
        "EvalOptions": {"ForceReschedule": call.flags.is_on("force-reschedule")},
    }
    answer: Json = call.api.put(api_path("job", job["ID"], "evaluate"), body, {"namespace": job.get("Namespace")})
    eval_id = answer["EvalID"]
    return follow_or_detach(
        call, eval_id, detached=lambda: call.screen.line(f'Created eval ID: "{call.short(eval_id)}" ')
    )


COMMAND = Command(
    "job eval",
    "Have a job evaluated again.",
    run,
    (switch("force-reschedule", "Replace failed allocations also when they have no attempt left."), DETACH, VERBOSE),
    (1, 1),
    "<job>",
    "one argument: <job>",
)
