"""`yurt operator raft transfer-leadership`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import text

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """Have another server lead."""
    peer_id, address = call.flags.text("peer-id"), call.flags.text("peer-address")
    if bool(peer_id) == bool(address):
        raise UsageError("Give -peer-id, as `yurt operator raft list-peers` shows it, or -peer-address")
    query = {"id": peer_id} if peer_id else {"address": address}
    answer: Json = call.api.put("/v1/operator/raft/transfer-leadership", None, query) or {}
    if answer.get("Err"):
        raise CliError(str(answer["Err"]))
    after: Json = answer.get("To") or {}
    if answer.get("Noop"):
        call.screen.line(f"{after.get('Node')} leads already")
    else:
        call.screen.line(f"{after.get('Node')} leads now")
    return 0


COMMAND = Command(
    "operator raft transfer-leadership",
    "Have another server lead.",
    run,
    (
        text("peer-id", "The id of the server that is to lead."),
        text("peer-address", "Its address for other agents (host:port), instead of the id."),
    ),
)
