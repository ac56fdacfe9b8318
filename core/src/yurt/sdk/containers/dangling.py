"""Removes containers of this client that no task knows: left by an agent that died between making and noting one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

import msgspec

from yurt.sdk.containers.watch import Watch
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.value import NANOSECONDS, UnixNano

log = logging.getLogger(__name__)
List = Callable[[], Awaitable[Mapping[str, float]]]
"""The removable containers of this client, with the second of their making."""


class DanglingRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator decided; seconds."""

    enabled: bool
    period_s: float
    grace_s: float
    dry_run: bool


class Dangling:
    """Looks every so often."""

    def __init__(
        self,
        rules: DanglingRules,
        clock: Callable[[], UnixNano],
        *,
        made_at: List,
        knows: Callable[[str], bool],
        remove: Callable[[str], Awaitable[None]],
    ) -> None:
        self.rules = rules
        self.clock = clock
        self.made_at = made_at
        self.knows = knows
        self.remove = remove

    async def run(self, watch: Watch) -> None:
        """Look for ever; not at once, so that tasks can be recovered first."""
        if not self.rules.enabled:
            return
        while True:
            await asyncio.sleep(self.rules.period_s)
            if watch.up.is_set():
                with suppress(DriverError, NotFound):
                    await self.sweep()

    async def sweep(self) -> list[str]:
        """Remove what dangles now, or only tell in a dry run; returns the ids."""
        made_at = await self.made_at()
        now_s = self.clock() / NANOSECONDS
        found = [
            container_id
            for container_id, at_s in made_at.items()
            if not self.knows(container_id) and now_s - at_s >= self.rules.grace_s
        ]
        for container_id in found:
            if self.rules.dry_run:
                log.info("container %.12s dangles (dry run: it stays)", container_id)
                continue
            log.info("container %.12s dangles and is removed", container_id)
            with suppress(DriverError):
                await self.remove(container_id)
        return found
