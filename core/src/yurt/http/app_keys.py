"""What the application carries for handlers that are imported later: keys, and the interfaces behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from yurt.structs.plugins import PluginReloaded


class PluginsPort(Protocol):
    """What an agent with a client offers."""

    def rows(self) -> list[Mapping[str, Any]]:
        """The plugins."""
        ...

    async def reload(self, name: str) -> PluginReloaded:
        """Reload the code of a plugin."""
        ...


FILES: web.AppKey[dict[str, object]] = web.AppKey("yurt_ui_files", dict)
"""The files of the web UI (`yurt.http.ui_routes.shell`), once a page was asked for."""
PLUGINS: web.AppKey[PluginsPort] = web.AppKey("yurt_plugins", PluginsPort)
RELOAD: web.AppKey[Callable[[], None]] = web.AppKey("yurt_reload")
"""Rereads and applies the configuration; raises the error that prevents it. Unset without a configuration file."""
