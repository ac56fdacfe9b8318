"""`yurt operator raft list-peers`, `remove-peer` and `transfer-leadership`: the servers that keep the log."""

from __future__ import annotations

from yurt.cli.declaration import JSON_FLAGS, CliCommand, Invocation
from yurt.cli.errors import CliError, UsageError
from yurt.cli.flags import switch, text
from yurt.cli.json_object import Json
from yurt.cli.terminal.data import show_data, wants_data


def list_peers(call: Invocation) -> int:
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


def remove_peer(call: Invocation) -> int:
    """Take a server out."""
    peer_id, address = call.flags.text("peer-id"), call.flags.text("peer-address")
    if bool(peer_id) == bool(address):
        raise UsageError("Give -peer-id, as `yurt operator raft list-peers` shows it, or -peer-address")
    call.api.delete("/v1/operator/raft/peer", {"id": peer_id} if peer_id else {"address": address})
    call.screen.line(f'Removed peer with id "{peer_id}"' if peer_id else f'Removed peer with address "{address}"')
    return 0


def transfer_leadership(call: Invocation) -> int:
    """Transfer leadership to another server."""
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


COMMANDS = (
    CliCommand(
        "operator raft list-peers",
        "List the servers that keep the log, and show which one leads",
        list_peers,
        (switch("stale", "Answer also when nobody leads."), *JSON_FLAGS),
    ),
    CliCommand(
        "operator raft remove-peer",
        "Remove a server that is gone from those that keep the log",
        remove_peer,
        (
            text("peer-id", "The id of the server."),
            text("peer-address", "Its address for other agents (host:port), instead of the id."),
        ),
        details="""
A server whose agent runs joins again at once. Of a server that will not come back, `yurt server force-leave`
is the shorter way: it takes the server out here too.
""",
    ),
    CliCommand(
        "operator raft transfer-leadership",
        "Transfer leadership to another server",
        transfer_leadership,
        (
            text("peer-id", "The id of the server that is to lead."),
            text("peer-address", "Its address for other agents (host:port), instead of the id."),
        ),
    ),
)
