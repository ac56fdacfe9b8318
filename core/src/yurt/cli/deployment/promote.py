"""`yurt deployment promote`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_deployment
from yurt.cli.command import DETACH, VERBOSE, Command, Invocation
from yurt.cli.flags import texts
from yurt.cli.views.follow import follow_or_detach

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Promote the canaries of a deployment."""
    return promote(call, find_deployment(call, call.args[0]))


def promote(call: Invocation, deployment: Json) -> int:
    """Promote the canaries of all groups, or of those that -group names, and follow the evaluation."""
    groups = call.flags.texts("group")
    body: Json = {"DeploymentID": deployment["ID"], "All": not groups}
    if groups:
        body["Groups"] = groups
    answer: Json = call.api.put(api_path("deployment", "promote", deployment["ID"]), body) or {}
    eval_id = answer.get("EvalID") or ""
    return follow_or_detach(call, eval_id, detached=lambda: call.screen.line(f"Evaluation ID: {call.short(eval_id)}"))


COMMAND = Command(
    "deployment promote",
    "Promote the canaries of a deployment, so that they replace the old version.",
    run,
    (DETACH, VERBOSE, texts("group", "Only this group; may be repeated.")),
    (1, 1),
    "<deployment id>",
    "one argument: <deployment id>",
)
