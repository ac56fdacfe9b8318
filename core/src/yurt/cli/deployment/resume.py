"""`yurt deployment resume`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_deployment
from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.views.follow import follow_or_detach

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Go on with it."""
    deployment = find_deployment(call, call.args[0])
    body = {"DeploymentID": deployment["ID"], "Pause": False}
    answer: Json = call.api.put(api_path("deployment", "pause", deployment["ID"]), body) or {}
    call.screen.line(f'Deployment "{call.short(deployment["ID"])}" resumed')
    eval_id = answer.get("EvalID") or ""
    return follow_or_detach(call, eval_id, detached=lambda: call.screen.line(f"Evaluation ID: {call.short(eval_id)}"))


COMMAND = Command(
    "deployment resume",
    "Resume a paused deployment.",
    run,
    (DETACH, VERBOSE),
    (1, 1),
    "<deployment id>",
    "one argument: <deployment id>",
)
