"""`yurt node identity get`."""

from __future__ import annotations

from typing import Any, Final

from yurt.cli.api.lookup import find_node
from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import local_time

TIMES: Final = ("exp", "iat", "nbf")


def run(call: Invocation) -> int:
    """What the identity of a node says."""
    is_data = wants_data(call)
    node_id = find_node(call, call.args[0])["ID"]
    claims: dict[str, Any] = call.api.get("/v1/client/identity", query={"node_id": node_id})["Claims"]
    if is_data:
        return show_data(call, claims)
    first = sorted(claims, key=lambda name: (name.startswith("nomad_"), name))
    call.screen.table("Claim Key|Claim Value", [(name, _shown(name, claims[name])) for name in first])
    return 0


def _shown(name: str, value: Any) -> Any:
    return local_time(value * 1_000_000_000) if name in TIMES and isinstance(value, int) else value


COMMAND = Command(
    "node identity get",
    "Show what the identity of a node says: whose it is, and until when it counts.",
    run,
    JSON_FLAGS,
    (1, 1),
    "<node_id>",
    "one argument: <node_id>",
)
