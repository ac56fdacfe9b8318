"""`yurt deployment pause`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path, find_deployment
from yurt.cli.command import VERBOSE, Command, Invocation


def run(call: Invocation) -> int:
    """Pause it: nothing more is placed or promoted until it is resumed."""
    deployment = find_deployment(call, call.args[0])
    body = {"DeploymentID": deployment["ID"], "Pause": True}
    call.api.put(api_path("deployment", "pause", deployment["ID"]), body)
    call.screen.line(f'Deployment "{call.short(deployment["ID"])}" paused')
    return 0


COMMAND = Command(
    "deployment pause",
    "Pause a deployment.",
    run,
    (VERBOSE,),
    (1, 1),
    "<deployment id>",
    "one argument: <deployment id>",
)
