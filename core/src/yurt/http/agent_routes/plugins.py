"""The plugins of this agent: their status, and reloading their code."""

from __future__ import annotations

from aiohttp import web

from yurt.http.call import PLUGINS, Call, json_answer
from yurt.http.errors import Refused


async def list_plugins(call: Call) -> web.Response:
    """GET /v1/yurt/plugins: the status of this agent's plugins."""
    port = call.request.app.get(PLUGINS)
    rows = port.rows() if port is not None else list(call.agent.plugins)
    return json_answer(call, [dict(row) for row in rows])


async def reload(call: Call) -> web.Response:
    """PUT /v1/yurt/plugin/:name/reload: reload a plugin's code; the tasks of its drivers continue."""
    port = call.request.app.get(PLUGINS)
    if port is None:
        raise Refused(400, "this agent runs no client, and therefore no plugins")
    return json_answer(call, await port.reload(call.part("name")))
