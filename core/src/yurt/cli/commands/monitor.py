"""`yurt monitor`: the log of an agent, live or as stored on its machine."""

from __future__ import annotations

import sys

from yurt.cli.api.lookup import find_node
from yurt.cli.declaration import CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.tree import NOUNS


def follow_log(call: Invocation) -> int:
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
        _print_stream(call, "/v1/agent/monitor", query)
        print("The log has ended: its agent is stopping.", file=sys.stderr)
    except KeyboardInterrupt:
        pass
    return 0


def export_log(call: Invocation) -> int:
    """Print stored lines; with -follow also new ones, until interrupted."""
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
    _print_stream(call, "/v1/agent/monitor/export", query)
    return 0


def _print_stream(call: Invocation, path: str, query: Json) -> None:
    from yurt.cli.terminal.closed_output import ending_with_reader

    with ending_with_reader():
        for piece in call.api.stream(path, query):
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()


COMMANDS = (
    CliCommand(
        "monitor",
        NOUNS["monitor"],
        follow_log,
        (
            text("log-level", "TRACE, DEBUG, INFO, WARN or ERROR.", default="INFO"),
            switch("json", "Lines as JSON."),
            switch("log-include-location", "Each line names the line of source that logged it."),
            text("node-id", "The agent of this node."),
            text("server-id", "The agent of this server."),
        ),
        details="The level may differ from the agent's own log_level.",
        exclusive=(("node-id", "server-id"),),
    ),
    CliCommand(
        "monitor export",
        "Print an agent's log as the journal or its log file has kept it",
        export_log,
        (
            text("service-name", "The unit of the agent; its name begins with yurt or nomad."),
            text("logs-since", "Start this long ago; with -on-disk, selects rotated files by age.", default="72h"),
            switch("follow", "Also print new lines, until interrupted."),
            switch("on-disk", "The agent's own file (log_file) and its rotated predecessors."),
            text("node-id", "The agent of this node."),
            text("server-id", "The agent of this server."),
        ),
        exclusive=(("node-id", "server-id"),),
    ),
)
