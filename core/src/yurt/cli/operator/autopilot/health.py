"""`yurt operator autopilot health`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import Command, Invocation
from yurt.cli.flags import switch

Json = dict[str, Any]

HEADER = "ID|Name|Address|SerfStatus|Version|Leader|Voter|Healthy|LastContact|LastTerm|LastIndex|StableSince"


def run(call: Invocation) -> int:
    """Whether the servers are well."""
    health: Json = call.api.get("/v1/operator/autopilot/health")
    if call.flags.is_on("json"):
        call.screen.json(health)
        return 0
    call.screen.line(f"Healthy: {str(bool(health.get('Healthy'))).lower()}")
    call.screen.line(f"FailureTolerance: {health.get('FailureTolerance') or 0}")
    call.screen.line(f"Leader: {health.get('Leader') or ''}")
    call.screen.line(f"Voters: \n\t{', '.join(health.get('Voters') or ())}")
    call.screen.line("Servers: ")
    rows = [[row.get(key) for key in HEADER.split("|")] for row in health.get("Servers") or ()]
    call.screen.table(HEADER, rows)
    return 0


COMMAND = Command(
    "operator autopilot health",
    "Show whether the servers are well.",
    run,
    (switch("json", "Print the answer of the API as JSON."),),
)
