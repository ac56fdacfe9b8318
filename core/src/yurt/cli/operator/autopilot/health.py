"""`yurt operator autopilot health`."""

from __future__ import annotations

import json
from typing import Any

from yurt.cli.api.client import ApiClient, error_of
from yurt.cli.command import Command, Invocation
from yurt.cli.flags import switch

Json = dict[str, Any]

NOT_WELL = 429
HEADER = "ID|Name|Address|SerfStatus|Version|Leader|Voter|Healthy|LastContact|LastTerm|LastIndex|StableSince"


def run(call: Invocation) -> int:
    """Whether the servers are well; 1 when they are not."""
    health = _health(call.api)
    code = 0 if health.get("Healthy") else 1
    if call.flags.is_on("json"):
        call.screen.json(health)
        return code
    call.screen.line(f"Healthy: {str(bool(health.get('Healthy'))).lower()}")
    call.screen.line(f"FailureTolerance: {health.get('FailureTolerance') or 0}")
    call.screen.line(f"Leader: {health.get('Leader') or ''}")
    call.screen.line(f"Voters: \n\t{', '.join(health.get('Voters') or ())}")
    call.screen.line("Servers: ")
    rows = [[row.get(key) for key in HEADER.split("|")] for row in health.get("Servers") or ()]
    call.screen.table(HEADER, rows)
    return code


def _health(api: ApiClient) -> Json:
    """The answer, which is a document with status 429 too, when something is not well; other answers are errors."""
    answer = api.raw("GET", "/v1/operator/autopilot/health")
    try:
        found = json.loads(answer.body) if answer.status in (200, NOT_WELL) else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise error_of(answer)
    return found


COMMAND = Command(
    "operator autopilot health",
    "Show whether the servers are well; ends with 1 when they are not.",
    run,
    (switch("json", "Print the answer of the API as JSON."),),
)
