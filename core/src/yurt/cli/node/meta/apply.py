"""`yurt node meta apply`."""

from __future__ import annotations

from yurt.cli.api.lookup import find_node
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import text


def run(call: Invocation) -> int:
    """Change the metadata of a node that runs."""
    meta: dict[str, str | None] = {key: None for key in call.flags.text("unset").split(",") if key}
    for word in call.args:
        key, mark, value = word.partition("=")
        if not mark or not key:
            raise UsageError(f"{word!r} is not a key=value pair")
        meta[key] = value
    if not meta:
        raise UsageError("Must specify at least one key=value pair, or -unset")
    node_id = call.flags.text("node-id")
    found = find_node(call, node_id)["ID"] if node_id else ""
    call.api.put("/v1/client/metadata", {"NodeID": found, "Meta": meta}, query={"node_id": found} if found else None)
    node = f'node "{found}"' if found else "the agent's node"
    call.screen.line(f"Metadata of {node} changed: {', '.join(sorted(meta))}")
    return 0


COMMAND = Command(
    "node meta apply",
    "Change the metadata of a node while it runs; it is kept over restarts.",
    run,
    (
        text("node-id", "The node, by its id or the first characters of it; without it the one of the agent asked."),
        text("unset", "Keys to take away, separated by commas."),
    ),
    (0, -1),
    "[key=value ...]",
    "key=value pairs, or -unset",
)
