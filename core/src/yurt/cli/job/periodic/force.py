"""`yurt job periodic force`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_job
from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.views.follow import follow_or_detach

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Start a child now."""
    job = find_job(call, call.args[0])
    query = {"namespace": job.get("Namespace")}
    answer: Json = call.api.put(api_path("job", job["ID"], "periodic", "force"), None, query) or {}
    eval_id = answer.get("EvalID") or ""
    if not eval_id:
        call.screen.line("Force periodic successful, but the job is queued: another instance still runs.")
        return 0
    return follow_or_detach(
        call,
        eval_id,
        detached=lambda: call.screen.line(f"Force periodic successful\nEvaluation ID: {call.short(eval_id)}"),
    )


COMMAND = Command(
    "job periodic force",
    "Start an instance of a periodic job now, whatever its schedule.",
    run,
    (DETACH, VERBOSE),
    (1, 1),
    "<job id>",
    "one argument: <job id>",
)
