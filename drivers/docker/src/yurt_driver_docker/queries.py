"""Queries a Docker engine about its health and its containers."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import aiohttp
from yurt.sdk.containers.common import OWNER_LABEL, ROLE_LABEL, TASK_LABEL
from yurt.sdk.containers.dangling import ContainerOrigin
from yurt.sdk.containers.engine import Engine
from yurt.sdk.driver import Fingerprint
from yurt.sdk.errors import NotFound

from yurt_driver_docker.config import INSTALL, PluginConfig
from yurt_driver_docker.reports import healthy


class DockerQueries:
    """The queries; the last answer's runtimes are kept for the creation of containers."""

    install = INSTALL
    restart = "look at the log of dockerd, and restart it"

    def __init__(self, engine: Engine, config: PluginConfig) -> None:
        self.engine = engine
        self.config = config
        self.runtimes: tuple[str, ...] = ()
        self.has_cdi = False

    @property
    def owned(self) -> str:
        """The label of this client's containers."""
        return f"{OWNER_LABEL}={self.config.owner}"

    async def look(self) -> Fingerprint:
        """The fingerprint of a healthy engine."""
        info: Mapping[str, Any] = await self.engine.ask("/info", is_urgent=True)
        bridge: Mapping[str, Any] = {}
        with suppress(NotFound):
            bridge = await self.engine.ask("/networks/bridge", is_urgent=True)
        self.runtimes = tuple(sorted(info.get("Runtimes") or {}))
        self.has_cdi = bool(info.get("CDISpecDirs"))
        return healthy(info, bridge, self.config)

    def events(self) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The stream of end events of this client's containers."""
        filters = json.dumps({"type": ["container"], "event": ["die", "destroy"], "label": [self.owned]})
        return self.engine.stream("GET", "/events", query={"filters": filters})

    async def states(self) -> dict[str, str]:
        """All containers of this client, with their states."""
        return {str(each["Id"]): str(each.get("State", "")) for each in await self.listing(self.owned)}

    async def listing(self, *labels: str) -> list[dict[str, Any]]:
        """All containers with these labels, as listed by the engine."""
        filters = json.dumps({"label": list(labels)})
        found: list[dict[str, Any]] = await self.engine.ask("/containers/json", {"all": "1", "filters": filters})
        return found

    async def made(self) -> dict[str, ContainerOrigin]:
        """The task and time for which each container was created; without pause containers."""
        found = {str(each["Id"]): (each, each.get("Labels") or {}) for each in await self.listing(self.owned)}
        return {
            container_id: ContainerOrigin(str(labels.get(TASK_LABEL, "")), float(each.get("Created") or 0))
            for container_id, (each, labels) in found.items()
            if not labels.get(ROLE_LABEL)
        }
