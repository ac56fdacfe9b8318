"""`yurt node config` and `yurt node meta`: the servers and the metadata of a node."""

from __future__ import annotations

from typing import Any

from yurt.cli.api.lookup import find_node
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import ApiError, CliError, UsageError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data

PATH = "/v1/agent/servers"
NOT_HERE = 501
"""How an agent without a client answers, as Nomad's does."""


def configure_node(call: Invocation) -> int:
    """Set the servers of the agent's client, and list them."""
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


def apply_meta(call: Invocation) -> int:
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


def read_meta(call: Invocation) -> int:
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


COMMANDS = (
    CliCommand(
        "node config",
        "Show or change the servers that a client uses",
        configure_node,
        (
            switch("servers", "List the servers that the client knows, one a line."),
            switch(
                "update-servers", "Send the client to the servers of the arguments, in place of those that it knows."
            ),
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
    ),
    CliCommand(
        "node meta apply",
        "Change the metadata of a running node",
        apply_meta,
        (
            text(
                "node-id", "The node, by its id or the first characters of it; without it the one of the agent asked."
            ),
            text("unset", "Keys to remove, separated by commas; a key that is also set keeps its new value."),
        ),
        (0, -1),
        "[key=value ...]",
        "key=value pairs, or -unset",
        details="Changes survive restarts of the agent.",
    ),
    CliCommand(
        "node meta read",
        "Show the metadata of a node and its changes at run time",
        read_meta,
        (
            *JSON_FLAGS,
            text(
                "node-id", "The node, by its id or the first characters of it; without it the one of the agent asked."
            ),
        ),
        (0, 0),
    ),
)
