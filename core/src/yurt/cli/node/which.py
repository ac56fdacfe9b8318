"""Which node a command means: by id, or with -self the one of the agent that is asked."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import api_path, find_node
from yurt.cli.command import Invocation
from yurt.cli.errors import CliError, UsageError

Json = dict[str, Any]


def chosen_node(call: Invocation) -> Json:
    """The whole node."""
    if not call.flags.is_on("self"):
        if not call.args:
            raise UsageError("This command takes one argument: <node>, or -self")
        return find_node(call, call.args[0])
    about: Json = call.api.get("/v1/agent/self") or {}
    node_id = ((about.get("stats") or {}).get("client") or {}).get("node_id")
    if not node_id:
        raise CliError("The agent that was asked runs no client, so it has no node of its own")
    node: Json = call.api.get(api_path("node", node_id))
    return node
