"""`yurt monitor export`: the lines of an agent's log that its machine has kept."""

from __future__ import annotations

import sys

from yurt.cli.api.lookup import find_node
from yurt.cli.command import Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text


def run(call: Invocation) -> int:
    """Print them; with -follow what comes, until interrupted."""
    flags = call.flags
    if flags.is_on("on-disk") == bool(flags.text("service-name")):
        raise UsageError("one of -service-name and -on-disk must be given")
    query = {
        "service_name": flags.text("service-name"),
        "on_disk": flags.is_on("on-disk") or None,
        "logs_since": flags.text("logs-since"),
        "follow": flags.is_on("follow") or None,
        "node_id": find_node(call, flags.text("node-id"))["ID"] if flags.text("node-id") else None,
        "server_id": flags.text("server-id"),
        "plain": True,
    }
    for piece in call.api.stream("/v1/agent/monitor/export", query):
        sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    return 0


COMMAND = Command(
    "monitor export",
    "Print the lines of an agent's log that systemd's journal has kept.",
    run,
    (
        text("service-name", "The unit of the agent; its name begins with yurt or nomad."),
        text("logs-since", "From how long ago on.", default="72h"),
        switch("follow", "Print what comes too, until interrupted."),
        switch("on-disk", "The agent's own log file; agents of Yurt write none, and say so."),
        text("node-id", "The agent of this node."),
        text("server-id", "The agent of this server."),
    ),
)
