"""`yurt deployment list`."""

from __future__ import annotations

from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.flags import text
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.views.deployments import show_deployments


def run(call: Invocation) -> int:
    """All deployments."""
    is_json = wants_data(call)
    found = call.api.get("/v1/deployments", {"filter": call.flags.text("filter")}) or []
    if is_json:
        return show_data(call, found)
    show_deployments(call, found, none="No deployments found")
    return 0


COMMAND = Command(
    "deployment list",
    "List deployments, newest first.",
    run,
    (VERBOSE, text("filter", "Only those that the expression matches."), *JSON_FLAGS),
)
