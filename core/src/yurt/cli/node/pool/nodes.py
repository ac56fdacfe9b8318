"""`yurt node pool nodes`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.flags import number, text
from yurt.cli.lookup import api_path
from yurt.cli.output import show_data, wants_data

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """The nodes of a pool."""
    is_data, flags = wants_data(call), call.flags
    query = {
        "filter": flags.text("filter"),
        "per_page": flags.number("per-page") or None,
        "next_token": flags.text("page-token"),
    }
    answer = call.api.read(api_path("node", "pool", call.args[0], "nodes"), query)
    nodes: list[Json] = answer.data or []
    if is_data:
        return show_data(call, nodes)
    if not nodes:
        call.screen.line(f'No nodes in node pool "{call.args[0]}"')
        return 0
    rows = [
        [
            call.short(node["ID"]), node["NodePool"], node["Datacenter"], node["Name"], node.get("NodeClass") or "",
            bool(node.get("Drain")), node["SchedulingEligibility"], node["Status"],
        ]
        for node in nodes
    ]  # fmt: skip
    call.screen.table("ID|Node Pool|DC|Name|Class|Drain|Eligibility|Status", rows)
    if answer.next_token:
        call.screen.line("\nResults have been paginated. To get the next page run:\n")
        call.screen.line(f"yurt node pool nodes -page-token {answer.next_token} {call.args[0]}")
    return 0


COMMAND = Command(
    "node pool nodes",
    "List the nodes of a node pool.",
    run,
    (
        text("filter", "Only nodes that the expression matches."),
        number("per-page", "How many at a time."),
        text("page-token", "Where to go on."),
        VERBOSE,
        *JSON_FLAGS,
    ),
    (1, 1),
    "<node-pool>",
    "one argument: <node-pool>",
)
