"""`yurt server join`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError
from yurt.cli.server.only import of_server

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Make servers known to each other."""
    answer: Json = of_server(call, lambda: call.api.put("/v1/agent/join", None, {"address": tuple(call.args)})) or {}
    if answer.get("error"):
        raise CliError(f"Error joining: {answer['error']}")
    call.screen.line(f"Joined {answer.get('num_joined') or 0} servers successfully")
    return 0


COMMAND = Command(
    "server join",
    "Make other servers known to the agent's server, and to all that it knows.",
    run,
    (),
    (1, -1),
    "<address> [<address> ...]",
    "addresses",
    details="""
An address is host:port of a server's `serf` port, 4648 where it is left out. One server that answers is enough:
it tells of the others. Servers of one region become one cluster, those of other regions stay apart.
""",
)
