"""`yurt node identity` and `yurt node intro`: the credentials of nodes."""

from __future__ import annotations

from typing import Any, Final

from yurt.cli.api.lookup import find_node
from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import text
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import local_time, parse_duration

TIMES: Final = ("exp", "iat", "nbf")


def show_identity(call: Invocation) -> int:
    """Show the claims of a node's identity."""
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


def renew_identity(call: Invocation) -> int:
    """Have a node request a new identity in a heartbeat that it sends now."""
    call.api.put("/v1/client/identity/renew", {"NodeID": find_node(call, call.args[0])["ID"]})
    return 0


def create_intro_token(call: Invocation) -> int:
    """Create a token, and print how to use it."""
    flags = call.flags
    body = {
        "TTL": _nanoseconds(flags.text("ttl") or "0"),
        "NodeName": flags.text("node-name"),
        "NodePool": flags.text("node-pool"),
    }
    is_data = wants_data(call)
    made = call.api.put("/v1/acl/identity/client-introduction-token", body)
    if is_data:
        return show_data(call, made)
    call.screen.line("Successfully generated client introduction token:\n")
    call.screen.line(made["JWT"])
    return 0


def _nanoseconds(duration: str) -> int:
    try:
        return parse_duration(duration)
    except ValueError as error:
        raise UsageError(f"-ttl: {error}") from None


COMMANDS = (
    CliCommand(
        "node identity get",
        "Show the identity of a node: whose it is, and when it expires",
        show_identity,
        JSON_FLAGS,
        (1, 1),
        "<node_id>",
        "one argument: <node_id>",
    ),
    CliCommand(
        "node identity renew",
        "Have a node ask its servers for a new identity",
        renew_identity,
        (),
        (1, 1),
        "<node_id>",
        "one argument: <node_id>",
        details="The old identity is valid until it expires.",
    ),
    CliCommand(
        "node intro create",
        "Create a token with which a new client registers",
        create_intro_token,
        (
            text("ttl", "How long the token counts; the servers set the default and the most."),
            text("node-name", "Only the node of this name may use it."),
            text("node-pool", "Only a node of this pool may use it; `default` if it is not given."),
            *JSON_FLAGS,
        ),
        details="Give it to the agent as -client-intro-token.",
    ),
)
