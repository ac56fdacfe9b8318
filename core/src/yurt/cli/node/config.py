"""`yurt node config`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import ApiError, CliError, UsageError
from yurt.cli.flags import switch

PATH = "/v1/agent/servers"
NOT_HERE = 501
"""How an agent without a client answers, as Nomad's does."""


def run(call: Invocation) -> int:
    """Send the agent's client to other servers, and list those that it goes to."""
    lists, updates = call.flags.is_on("servers"), call.flags.is_on("update-servers")
    if not lists and not updates:
        raise UsageError("One of -servers and -update-servers is needed")
    if updates and not call.args:
        raise UsageError("-update-servers takes the addresses of the servers, all of them")
    if call.args and not updates:
        raise UsageError(f"Addresses go with -update-servers (got: {' '.join(call.args)})")
    try:
        if updates:
            call.api.put(PATH, None, {"address": tuple(call.args)})
        servers: list[Any] = (call.api.get(PATH) or []) if lists else []
    except ApiError as error:
        if error.status != NOT_HERE:
            raise
        address = call.api.connection.address
        raise CliError(f"The agent at {address} runs no client; name one that does with -address.") from None
    for server in servers:
        call.screen.line(str(server))
    return 0


COMMAND = Command(
    "node config",
    "Show to which servers the client of the agent that is asked goes, or send it to others.",
    run,
    (
        switch("servers", "List the servers that the client knows, one a line."),
        switch("update-servers", "Send the client to the servers of the arguments, in place of those that it knows."),
    ),
    (0, -1),
    "[<address> ...]",
    "addresses",
    details="""
An address is host:port of a server's `rpc` port, 4647 where it is left out. Name every server: the list takes the place
of the one before it, until a server that answers tells of the servers that there are. Both flags together change the
list and show the new one. The change lasts until the agent ends; its configuration file (`client { servers = [...] }`)
keeps it for the next start. The client of an agent that is a server too goes to no other server.
""",
)
