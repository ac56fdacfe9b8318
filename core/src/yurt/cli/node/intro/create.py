"""`yurt node intro create`."""

from __future__ import annotations

from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import text
from yurt.cli.terminal.data import show_data, wants_data
from yurt.cli.terminal.text import parse_duration


def run(call: Invocation) -> int:
    """Make a token, and say how it is used."""
    flags = call.flags
    asked = {
        "TTL": _nanoseconds(flags.text("ttl") or "0"),
        "NodeName": flags.text("node-name"),
        "NodePool": flags.text("node-pool"),
    }
    is_data = wants_data(call)
    made = call.api.put("/v1/acl/identity/client-introduction-token", asked)
    if is_data:
        return show_data(call, made)
    call.screen.line("Successfully generated client introduction token:\n")
    call.screen.line(made["JWT"])
    return 0


def _nanoseconds(given: str) -> int:
    try:
        return parse_duration(given)
    except ValueError as error:
        raise UsageError(f"-ttl: {error}") from None


COMMAND = Command(
    "node intro create",
    "Make a token with which a new client registers: give it to the agent as -client-intro-token.",
    run,
    (
        text("ttl", "How long the token counts; the servers set the default and the most."),
        text("node-name", "Only the node of this name may use it."),
        text("node-pool", "Only a node of this pool may use it."),
        *JSON_FLAGS,
    ),
)
