"""`yurt node meta read`."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import find_node
from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.flags import text
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """The metadata of a node."""
    is_json = wants_data(call)
    node_id = call.flags.text("node-id")
    query = {"node_id": find_node(call, node_id)["ID"]} if node_id else None
    found: Json = call.api.get("/v1/client/metadata", query=query)
    if is_json:
        return show_data(call, found)
    for title, name in (("All Meta", "Meta"), ("Dynamic Meta", "Dynamic")):
        values = found.get(name) or {}
        call.screen.title(title)
        if not values:
            call.screen.line("none")
            continue
        call.screen.pairs([(key, "<unset>" if value is None else value) for key, value in sorted(values.items())])
    return 0


COMMAND = Command(
    "node meta read",
    "Show the metadata of a node, and what of it was changed while it ran.",
    run,
    (
        *JSON_FLAGS,
        text("node-id", "The node, by its id or the first characters of it; without it the one of the agent asked."),
    ),
    (0, 0),
)
