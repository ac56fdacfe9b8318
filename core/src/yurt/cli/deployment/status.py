"""`yurt deployment status`."""

from __future__ import annotations

from yurt.cli.api.lookup import find_deployment
from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.flags import TEXT, switch, without_effect
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.views.deployments import deployment_text, show_deployments
from yurt.cli.views.follow import follow_deployment


def run(call: Invocation) -> int:
    """Show one deployment, or follow it; without an id all of them."""
    is_json = wants_data(call)
    if not call.args:
        found = call.api.get("/v1/deployments") or []
        if is_json:
            return show_data(call, found)
        show_deployments(call, found, none="No deployment found")
        return 0
    deployment = find_deployment(call, call.args[0])
    if is_json:
        return show_data(call, deployment)
    if call.flags.is_on("monitor"):
        return follow_deployment(call, deployment["ID"], with_allocs=call.is_verbose)
    call.screen.line(deployment_text(deployment, id_length=call.id_length))
    return 0


COMMAND = Command(
    "deployment status",
    "Show a deployment and how far each group is.",
    run,
    (
        VERBOSE,
        switch("monitor", "Follow it until it ends; with -verbose also its allocations."),
        without_effect("wait", kind=TEXT),  # changes are shown at once
        without_effect("ui"),
        *JSON_FLAGS,
    ),
    (0, 1),
    "[<deployment id>]",
    "at most one argument: <deployment id>",
)
