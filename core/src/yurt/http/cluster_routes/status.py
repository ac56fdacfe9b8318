"""Status of the cluster: leader, peers, regions."""

from __future__ import annotations

from aiohttp import web

from yurt.http.call import Call, json_answer, shows_only
from yurt.http.cluster import leader_address
from yurt.server.failures import no_leader
from yurt.structs.member import LEFT


async def leader(call: Call) -> web.Response:
    """GET /v1/status/leader: where the leader is reached by other agents."""
    address = leader_address(call.cluster, call.server_facts, call.agent)
    if not address:
        raise no_leader()
    shows_only(call, ())
    return json_answer(call, address)


async def peers(call: Call) -> web.Response:
    """GET /v1/status/peers: where the servers that keep the log are reached by other agents."""
    if not call.server_facts.leader_name:
        raise no_leader()
    return json_answer(call, sorted(peer.address for peer in await call.cluster.log_peers() if peer.address))


async def regions(call: Call) -> web.Response:
    """GET /v1/regions."""
    names = {call.agent.region}
    if call.has_server:
        names |= {each.region for each in call.cluster.members() if each.status != LEFT}
    return json_answer(call, sorted(names))


# What regions share is asked for by servers of other regions alone: other agents save the import.


async def shared_digests(call: Call) -> web.Response:
    """GET /v1/regions/shared/:table: the digest of each row that all regions share."""
    from yurt.http.cluster_routes.region_replication import digests

    return await digests(call)


async def shared_rows(call: Call) -> web.Response:
    """GET /v1/regions/shared/:table/rows: the shared rows whose keys are named."""
    from yurt.http.cluster_routes.region_replication import rows

    return await rows(call)
