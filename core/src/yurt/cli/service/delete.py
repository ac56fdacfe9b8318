"""`yurt service delete`."""

from __future__ import annotations

from yurt.cli.api.lookup import api_path
from yurt.cli.command import Command, Invocation


def run(call: Invocation) -> int:
    """Forget one instance of a service."""
    call.api.delete(api_path("service", *call.args))
    call.screen.line("Successfully deleted service registration")
    return 0


COMMAND = Command(
    "service delete",
    "Forget one instance of a service; the agent that runs it does not register it again by itself.",
    run,
    (),
    (2, 2),
    "<service_name> <service_id>",
    "two arguments: <service_name> <service_id>",
)
