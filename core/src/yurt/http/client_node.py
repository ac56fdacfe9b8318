"""A client node as a whole: its use of resources, and removing what terminal allocations left."""

from __future__ import annotations

from aiohttp import web

from yurt.http.call import Call, empty_answer, json_answer
from yurt.http.routing import route
from yurt.http.targets import node_of_query


async def stats(call: Call) -> web.Response:
    """GET /v1/client/stats."""
    return json_answer(call, await node_of_query(call).host_stats())


async def collect(call: Call) -> web.Response:
    """GET /v1/client/gc."""
    await node_of_query(call).collect_garbage(None)
    return empty_answer()


ROUTES = (
    route("/v1/client/stats", get=stats),
    route("/v1/client/gc", get=collect, write=collect),
)
