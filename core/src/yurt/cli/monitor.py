"""`yurt monitor`: the log of the agent as it is written."""

from __future__ import annotations

import sys

from yurt.cli.api.lookup import find_node
from yurt.cli.command import Command, Invocation
from yurt.cli.flags import switch, text, without_effect


def run(call: Invocation) -> int:
    """Print log lines until interrupted."""
    flags = call.flags
    query = {
        "log_level": flags.text("log-level"),
        "log_json": flags.is_on("json") or None,
        "log_include_location": flags.is_on("log-include-location") or None,
        "node_id": find_node(call, flags.text("node-id"))["ID"] if flags.text("node-id") else None,
        "server_id": flags.text("server-id"),
        "plain": True,
    }
    try:
        for piece in call.api.stream("/v1/agent/monitor", query):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
    except KeyboardInterrupt:
        pass
    return 0


COMMAND = Command(
    "monitor",
    "Follow the log of the agent, at any level, whatever it prints itself.",
    run,
    (
        text("log-level", "TRACE, DEBUG, INFO, WARN or ERROR.", default="INFO"),
        switch("json", "Lines as JSON."),
        without_effect("log-include-location"),
        text("node-id", "The agent of this node."),
        text("server-id", "The agent of this server."),
    ),
)
