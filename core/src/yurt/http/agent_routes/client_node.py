"""A client node as a whole: its resource usage, and removal of terminal allocations' data."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from yurt.http.call import Call, empty_answer, json_answer
from yurt.http.errors import Refused
from yurt.http.forwarding.targets import node_of_id, node_of_query
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Value, no_entries


async def stats(call: Call) -> web.Response:
    """GET /v1/client/stats."""
    return json_answer(call, await node_of_query(call).host_stats())


async def usage_history(call: Call) -> web.Response:
    """GET /v1/yurt/node/:id/usage."""
    return json_answer(call, await node_of_id(call, call.part("id")).host_usage_history())


class NodeMetaBody(Value):
    """PUT /v1/client/metadata."""

    node_id: str = ""
    meta: Mapping[str, str | None] = no_entries()


async def read_meta(call: Call) -> web.Response:
    """GET /v1/client/metadata."""
    return json_answer(call, await node_of_query(call).node_meta())


async def apply_meta(call: Call) -> web.Response:
    """PUT /v1/client/metadata."""
    body = await call.body(NodeMetaBody)
    node = node_of_id(call, body.node_id or call.query.get("node_id", ""))
    try:
        return json_answer(call, await node.apply_node_meta(body.meta))
    except Invalid as error:
        raise Refused(400, str(error)) from None


class RenewBody(Value):
    """POST /v1/client/identity/renew."""

    node_id: str = ""


async def read_identity(call: Call) -> web.Response:
    """GET /v1/client/identity."""
    return json_answer(call, {"Claims": await node_of_query(call).node_identity()})


async def renew_identity(call: Call) -> web.Response:
    """POST /v1/client/identity/renew."""
    body = await call.body(RenewBody, optional=True)
    await node_of_id(call, body.node_id or call.query.get("node_id", "")).renew_node_identity()
    return json_answer(call, {})


async def collect(call: Call) -> web.Response:
    """PUT /v1/client/gc, and GET, which Nomad's SDKs send."""
    await node_of_query(call).collect_garbage(None)
    return empty_answer()
