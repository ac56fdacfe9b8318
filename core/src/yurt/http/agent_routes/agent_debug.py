"""Debug data of an agent: this one, another server, or a client node.

Where access control is on, policies say to whom the machine (`/v1/agent/host`) and the profiles (`/v1/agent/pprof`) are
told; else `enable_debug` in the configuration of each agent does.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from aiohttp import web

from yurt.api.encode import encode_builtins
from yurt.http.call import Call, json_answer
from yurt.http.edge.followed import FOLLOWED, FRAMES, PLAIN
from yurt.http.errors import Refused
from yurt.http.forwarding.at_leader import LEADER_FORWARDING
from yurt.http.forwarding.targets import node_of_query, other_server
from yurt.http.query import flag
from yurt.runtime.diagnostics import HOST, JOURNAL, LOG_FILE, PROFILE, agent_diagnostics
from yurt.sdk.value import NANOSECONDS, parse_duration

DEFAULT_SINCE = "72h"


async def host(call: Call) -> web.StreamResponse:
    """GET /v1/agent/host: the machine of an agent."""
    other = other_server(call)
    if other:
        return await call.request.app[LEADER_FORWARDING].pass_on(call.request, other)
    async with aclosing(_debug_data(call, HOST, {})) as pieces:
        text = b"".join([piece async for piece in pieces])
    return json_answer(call, {"AgentID": call.query.get("node_id") or call.agent.name, "HostData": json.loads(text)})


async def profile(call: Call) -> web.StreamResponse:
    """GET /v1/agent/pprof/:name: a profile as text."""
    if not call.part("name").isalpha():
        raise Refused(404, "Invalid method")
    other = other_server(call)
    if other:
        return await call.request.app[LEADER_FORWARDING].pass_on(call.request, other)
    options = {name: call.query[name] for name in ("debug", "seconds") if call.query.get(name)}
    async with aclosing(_debug_data(call, PROFILE, {"name": call.part("name"), **options})) as pieces:
        text = b"".join([piece async for piece in pieces])
    return web.Response(
        body=text, content_type="text/plain", charset="utf-8", headers={"X-Content-Type-Options": "nosniff"}
    )


async def export(call: Call) -> web.StreamResponse:
    """GET /v1/agent/monitor/export: an agent's log lines from the host's journal, or from the agent's file."""
    service, on_disk = call.query.get("service_name", ""), flag(call.query, "on_disk")
    if on_disk and service:
        raise Refused(400, "on_disk and service_name cannot be used together")
    if not on_disk and not service:
        raise Refused(400, "either on_disk or service_name must be given")
    options = {"service": service, "since_s": str(_since_s(call)), "follow": str(flag(call.query, "follow")).lower()}
    other = other_server(call)
    if other:
        return await call.request.app[LEADER_FORWARDING].pass_on(call.request, other)
    plain = flag(call.query, "plain")
    async with aclosing(_debug_data(call, LOG_FILE if on_disk else JOURNAL, options)) as pieces:
        first = await anext(pieces, b"")  # an error before the first piece has its own status
        headers = {"Content-Type": "text/plain; charset=utf-8" if plain else "application/json"}
        if flag(call.query, "follow"):
            headers[FOLLOWED] = PLAIN if plain else FRAMES
        response = web.StreamResponse(headers=headers)
        await response.prepare(call.request)
        await response.write(_piece(first, plain=plain))
        async for piece in pieces:
            await response.write(_piece(piece, plain=plain))
    await response.write_eof()
    return response


def _debug_data(call: Call, what: str, options: Mapping[str, str]) -> AsyncGenerator[bytes]:
    """Of the node that is named, or of this agent."""
    if call.query.get("node_id", ""):
        return node_of_query(call).agent_insides(what=what, options=options)
    return agent_diagnostics(what, options, is_debug=call.agent.enable_debug)


def _piece(data: bytes, *, plain: bool) -> bytes:
    return data if plain else encode_builtins({"Data": base64.b64encode(data).decode()} if data else {}) + b"\n"


def _since_s(call: Call) -> int:
    text = call.query.get("logs_since") or DEFAULT_SINCE
    try:
        since_s = parse_duration(text) // NANOSECONDS
    except ValueError:
        since_s = -1
    if since_s < 0:
        raise Refused(400, f'logs_since must be a duration such as 72h, not "{text[:64]}"')
    return since_s
