"""`yurt node identity renew`."""

from __future__ import annotations

from yurt.cli.api.lookup import find_node
from yurt.cli.command import Command, Invocation


def run(call: Invocation) -> int:
    """Have a node ask for a new identity; it asks with a heartbeat that it sends now."""
    call.api.put("/v1/client/identity/renew", {"NodeID": find_node(call, call.args[0])["ID"]})
    return 0


COMMAND = Command(
    "node identity renew",
    "Have a node ask its servers for a new identity; the old one counts until it expires.",
    run,
    (),
    (1, 1),
    "<node_id>",
    "one argument: <node_id>",
)
