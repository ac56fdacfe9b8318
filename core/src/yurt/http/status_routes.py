"""Who leads, who is there, which regions exist."""

from __future__ import annotations

from aiohttp import web

from yurt.http.call import Call, json_answer
from yurt.http.routing import route
from yurt.sdk.errors import Unavailable


async def leader(call: Call) -> web.Response:
    """GET /v1/status/leader."""
    if not call.server.is_leader:
        raise Unavailable("No cluster leader")
    return json_answer(call, call.agent.rpc_addr)


async def peers(call: Call) -> web.Response:
    """GET /v1/status/peers."""
    if not call.server.is_leader:
        raise Unavailable("No cluster leader")
    return json_answer(call, [call.agent.rpc_addr])


async def regions(call: Call) -> web.Response:
    """GET /v1/regions."""
    return json_answer(call, [call.agent.region])


ROUTES = (
    route("/v1/status/leader", get=leader),
    route("/v1/status/peers", get=peers),
    route("/v1/regions", get=regions),
)
