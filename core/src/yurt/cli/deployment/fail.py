"""`yurt deployment fail`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_deployment
from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.views.follow import follow_or_detach

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """End it as failed."""
    deployment = find_deployment(call, call.args[0])
    answer: Json = call.api.put(api_path("deployment", "fail", deployment["ID"]), {}) or {}
    short = call.short(deployment["ID"])
    reverted = answer.get("RevertedJobVersion")
    extra = "" if reverted is None else f" Auto-reverted to job version {reverted}."
    call.screen.line(f'Deployment "{short}" failed.{extra}')
    eval_id = answer.get("EvalID") or ""
    if eval_id and not call.flags.is_on("detach"):
        call.screen.line()
    return follow_or_detach(call, eval_id, detached=lambda: call.screen.line(f"Evaluation ID: {call.short(eval_id)}"))


COMMAND = Command(
    "deployment fail",
    "End a deployment as failed; the job goes back to its last stable version where auto_revert says so.",
    run,
    (DETACH, VERBOSE),
    (1, 1),
    "<deployment id>",
    "one argument: <deployment id>",
)
