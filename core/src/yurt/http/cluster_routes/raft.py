"""The voters of the command log: list, removal, leadership transfer.

Nomad calls this `raft`; here the servers' etcd members keep the log.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, TypeVar

from aiohttp import web

from yurt.http.call import Call, empty_answer, json_answer
from yurt.http.cluster import LogPeer
from yurt.http.errors import Refused, failed_call
from yurt.sdk.errors import NotFound

T = TypeVar("T")


def peer_row(call: Call, peer: LogPeer) -> dict[str, Any]:
    """A server as the API shows it."""
    return {
        "Address": peer.address,
        "ID": peer.id,
        "Leader": is_leader(call, peer),
        "Node": peer.name or "(unknown)",
        "RaftProtocol": "3",
        "Voter": peer.is_voter,
    }


def is_leader(call: Call, peer: LogPeer) -> bool:
    """Whether the server leads, as far as this one knows."""
    server = call.server_facts
    if server.is_leader:
        return peer.address == call.agent.rpc_addr
    return bool(peer.name) and peer.name == server.leader_name


async def configuration(call: Call) -> web.Response:
    """GET /v1/operator/raft/configuration."""
    peers = await call.cluster.log_peers()
    rows = [peer_row(call, peer) for peer in sorted(peers, key=lambda peer: (peer.name, peer.id))]
    return json_answer(call, {"Index": 0, "Servers": rows})


async def remove_peer(call: Call) -> web.Response:
    """DELETE /v1/operator/raft/peer: a server that is alive joins again."""
    requested = _requested_peer(call, "Must specify the peer's ID to remove")
    await _result_of(call, call.cluster.remove_log_peer(requested))
    return empty_answer()


def _requested_peer(call: Call, missing: str) -> str:
    """The server's id or its RPC address; one of them must be there."""
    requested: str = call.query.get("id") or call.query.get("address") or ""
    if not requested:
        raise Refused(400, missing)
    return requested


async def _result_of(call: Call, work: Awaitable[T]) -> T:
    """The result for the named server, or the error in Nomad's words."""
    kind = "id" if call.query.get("id") else "address"

    async def done() -> T:
        try:
            return await work
        except NotFound:
            raise Refused(
                500,
                f'{kind} "{call.query[kind][:128]}" was not found in the Raft configuration; '
                "`yurt operator raft list-peers` lists the servers",
            ) from None

    return await failed_call(done())


async def transfer_leadership(call: Call) -> web.Response:
    """PUT /v1/operator/raft/transfer-leadership: answered once the other server leads."""
    requested = _requested_peer(call, "must specify id or address")
    before, after = await _result_of(call, call.cluster.transfer_leadership(requested))
    answer = {"Err": None, "From": peer_row(call, before), "Noop": before.id == after.id, "To": peer_row(call, after)}
    return json_answer(call, answer)
