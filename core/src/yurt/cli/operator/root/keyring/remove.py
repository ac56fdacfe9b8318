"""`yurt operator root keyring remove`."""

from __future__ import annotations

from yurt.cli.command import Command, Invocation
from yurt.cli.flags import switch


def run(call: Invocation) -> int:
    """Forget a key that is not active."""
    force = "true" if call.flags.is_on("force") else None
    call.api.delete(f"/v1/operator/keyring/key/{call.args[0]}", {"force": force})
    call.screen.line(f"Removed encryption key {call.args[0]}")
    return 0


COMMAND = Command(
    "operator root keyring remove",
    "Forget a root key that is not active.",
    run,
    (switch("force", "Even when variables can be read with this key only; they are lost then."),),
    (1, 1),
    "<key ID>",
    "one argument: <key ID>",
)
