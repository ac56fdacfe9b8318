"""Removes containers of this client that no task knows: left by an agent that died between making and noting one."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from yurt.sdk.containers.engine import Engine
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.value import NANOSECONDS, UnixNano

from yurt_driver_docker import acts
from yurt_driver_docker.config import PluginConfig
from yurt_driver_docker.create import ROLE_LABEL
from yurt_driver_docker.watch import Watch

log = logging.getLogger(__name__)


def is_dangling(listed: Mapping[str, Any], now: UnixNano, grace_s: float) -> bool:
    """Whether a container that no task knows is old enough to go; pause containers are the network's."""
    if (listed.get("Labels") or {}).get(ROLE_LABEL):
        return False
    return now / NANOSECONDS - float(listed.get("Created") or 0) >= grace_s


class Dangling:
    """Looks every so often."""

    def __init__(
        self, engine: Engine, config: PluginConfig, clock: Callable[[], UnixNano], *, knows: Callable[[str], bool]
    ) -> None:
        self.engine = engine
        self.config = config
        self.clock = clock
        self.knows = knows

    async def run(self, watch: Watch) -> None:
        """Look for ever; not at once, so that tasks can be recovered first."""
        if not self.config.options.gc.dangling_containers.enabled:
            return
        while True:
            await asyncio.sleep(self.config.durations.dangling_period_s)
            if watch.up.is_set():
                with suppress(DriverError, NotFound):
                    await self.sweep(watch.owned())

    async def sweep(self, owned: str) -> list[str]:
        """Remove what dangles now, or only tell in a dry run; returns the ids."""
        filters = json.dumps({"label": [owned]})
        listing = await self.engine.ask("/containers/json", {"all": "1", "filters": filters})
        now, grace_s = self.clock(), self.config.durations.dangling_grace_s
        found = [
            str(each["Id"]) for each in listing if not self.knows(str(each["Id"])) and is_dangling(each, now, grace_s)
        ]
        for container_id in found:
            if self.config.options.gc.dangling_containers.dry_run:
                log.info("docker driver: container %.12s dangles (dry run: it stays)", container_id)
                continue
            log.info("docker driver: container %.12s dangles and is removed", container_id)
            await acts.remove_quietly(self.engine, container_id)
        return found
