"""`yurt node pool list`."""

from __future__ import annotations

from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.flags import number, text
from yurt.cli.output import show_data, wants_data


def run(call: Invocation) -> int:
    """All node pools."""
    is_json = wants_data(call)
    flags = call.flags
    query = {
        "filter": flags.text("filter"),
        "per_page": flags.number("per-page") or None,
        "next_token": flags.text("page-token"),
    }
    pools = call.api.get("/v1/node/pools", query) or []
    if is_json:
        return show_data(call, pools)
    if not pools:
        call.screen.line("No node pools")
        return 0
    call.screen.table("Name|Description", [[pool["Name"], pool.get("Description") or ""] for pool in pools])
    return 0


COMMAND = Command(
    "node pool list",
    "List node pools.",
    run,
    (
        text("filter", "Only pools that the expression matches."),
        number("per-page", "How many at a time."),
        text("page-token", "Where to go on."),
        *JSON_FLAGS,
    ),
)
