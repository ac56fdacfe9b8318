"""`yurt node pool nodes`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path
from yurt.cli.api.paging import PAGE_FLAGS, page_query, show_next_page
from yurt.cli.command import JSON_FLAGS, VERBOSE, Command, Invocation
from yurt.cli.flags import text
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """The nodes of a pool."""
    is_data = wants_data(call)
    answer = call.api.read(api_path("node", "pool", call.args[0], "nodes"), page_query(call))
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
    show_next_page(call, answer.next_token)
    return 0


COMMAND = Command(
    "node pool nodes",
    "List the nodes of a node pool.",
    run,
    (
        text("filter", "Only nodes that the expression matches."),
        *PAGE_FLAGS,
        VERBOSE,
        *JSON_FLAGS,
    ),
    (1, 1),
    "<node-pool>",
    "one argument: <node-pool>",
)
