"""`yurt operator raft remove-peer`."""

from __future__ import annotations

from yurt.cli.command import Command, Invocation
from yurt.cli.errors import UsageError
from yurt.cli.flags import text


def run(call: Invocation) -> int:
    """Take a server out."""
    peer_id, address = call.flags.text("peer-id"), call.flags.text("peer-address")
    if bool(peer_id) == bool(address):
        raise UsageError("Give -peer-id, as `yurt operator raft list-peers` shows it, or -peer-address")
    call.api.delete("/v1/operator/raft/peer", {"id": peer_id} if peer_id else {"address": address})
    call.screen.line(f'Removed peer with id "{peer_id}"' if peer_id else f'Removed peer with address "{address}"')
    return 0


COMMAND = Command(
    "operator raft remove-peer",
    "Take a server that is gone out of those that keep the cluster's log.",
    run,
    (
        text("peer-id", "The id of the server."),
        text("peer-address", "Its address for other agents (host:port), instead of the id."),
    ),
    details="""
A server whose agent runs joins again at once. Of a server that will not come back, `yurt server force-leave`
is the shorter way: it takes the server out here too.
""",
)
