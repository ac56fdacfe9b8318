"""`yurt operator raft list-peers`."""

from __future__ import annotations

from typing import Any

from yurt.cli.command import JSON_FLAGS, Command, Invocation
from yurt.cli.flags import switch
from yurt.cli.terminal.data import show_data, wants_data

Json = dict[str, Any]


def run(call: Invocation) -> int:
    """The servers that keep the log."""
    is_data = wants_data(call)
    query = {"stale": True} if call.flags.is_on("stale") else {}
    answer: Json = call.api.get("/v1/operator/raft/configuration", query) or {}
    if is_data:
        return show_data(call, answer)
    rows = [
        [
            row.get("Node") or "(unknown)",
            row.get("ID"),
            row.get("Address"),
            "leader" if row.get("Leader") else "follower",
            str(bool(row.get("Voter"))).lower(),
            row.get("RaftProtocol"),
        ]
        for row in answer.get("Servers") or ()
    ]
    call.screen.table("Node|ID|Address|State|Voter|RaftProtocol", rows)
    return 0


COMMAND = Command(
    "operator raft list-peers",
    "List the servers that keep the cluster's log, and say which one leads.",
    run,
    (switch("stale", "Answer also when nobody leads."), *JSON_FLAGS),
)
