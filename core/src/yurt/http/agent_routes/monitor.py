"""The log of an agent as a stream: of this agent, another server, or a client node."""

from __future__ import annotations

import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing

from aiohttp import web

from yurt.api.encode import encode_builtins
from yurt.http.call import Call
from yurt.http.edge.followed import FOLLOWED, FRAMES, PLAIN
from yurt.http.forwarding.at_leader import LEADER_FORWARDING
from yurt.http.forwarding.targets import node_of_query, other_server
from yurt.http.query import flag
from yurt.runtime.log_tap import level_of, log_texts


async def monitor(call: Call) -> web.StreamResponse:
    """GET /v1/agent/monitor."""
    level = call.query.get("log_level", "") or "info"
    level_of(level)
    other = other_server(call)
    if other:
        return await call.request.app[LEADER_FORWARDING].pass_on(call.request, other)
    plain = flag(call.query, "plain")
    async with aclosing(_texts(call, level)) as texts:
        first = await anext(texts)  # an error before the first text has its own status
        kind = "text/plain; charset=utf-8" if plain else "application/json"
        response = web.StreamResponse(headers={"Content-Type": kind, FOLLOWED: PLAIN if plain else FRAMES})
        await response.prepare(call.request)
        if first:
            await response.write(_piece(first, plain=plain))
        async for text in texts:
            await response.write(_piece(text, plain=plain))
    await response.write_eof()
    return response


def _texts(call: Call, level: str) -> AsyncGenerator[str]:
    """The log of the node that is named, or of this agent."""
    as_json, has_location = flag(call.query, "log_json"), flag(call.query, "log_include_location")
    if call.query.get("node_id", ""):
        return node_of_query(call).monitor(level=level, as_json=as_json, has_location=has_location)
    return log_texts(level=level, as_json=as_json, has_location=has_location)


def _piece(text: str, *, plain: bool) -> bytes:
    data = text.encode()
    return data if plain else encode_builtins({"Data": base64.b64encode(data).decode()} if data else {}) + b"\n"
