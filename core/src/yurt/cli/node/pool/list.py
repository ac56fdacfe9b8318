"""`yurt node pool list`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.paging import PAGE_FLAGS, page_query, show_next_page
from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.flags import text
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """All node pools."""
    is_json = wants_data(call)
    answer = call.api.read("/v1/node/pools", page_query(call))
    pools: list[Json] = answer.data or []
    if is_json:
        return show_data(call, pools)
    if not pools:
        call.screen.line("No node pools")
        return 0
    call.screen.table("Name|Description", [[pool["Name"], pool.get("Description") or ""] for pool in pools])
    show_next_page(call, answer.next_token)
    return 0


COMMAND = Command(
    "node pool list",
    "List node pools.",
    run,
    (
        text("filter", "Only pools that the expression matches."),
        *PAGE_FLAGS,
        *JSON_FLAGS,
    ),
)
