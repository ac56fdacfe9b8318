"""The plugins of this agent: their status, and reloading their code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from aiohttp import web

from yurt.access import needs
from yurt.http import routes
from yurt.http.call import Call, json_answer
from yurt.http.errors import Refused
from yurt.http.routes import AGENT
from yurt.structs.plugins import PluginReloaded


class PluginsPort(Protocol):
    """What an agent with a client offers."""

    def rows(self) -> list[Mapping[str, Any]]:
        """The plugins."""
        ...

    async def reload(self, name: str) -> PluginReloaded:
        """Reload the code of a plugin."""
        ...


PLUGINS: web.AppKey[PluginsPort] = web.AppKey("yurt_plugins", PluginsPort)


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


ROUTES = (
    routes.get("/v1/yurt/plugins", list_plugins, needs=needs.AGENT_READ, answered_by=AGENT),
    routes.write("/v1/yurt/plugin/{name}/reload", reload, needs=needs.AGENT_WRITE, answered_by=AGENT),
)
