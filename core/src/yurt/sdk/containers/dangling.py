"""Removes containers of this client that no task knows: left by an agent that died between making and noting one.

Tasks start and are found again while containers are listed and removed. So each container is looked at again right
before it goes, and one whose task is on its way counts as known.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

from yurt.sdk.containers.watch import Watch
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.value import NANOSECONDS, UnixNano

log = logging.getLogger(__name__)


class ContainerOrigin(NamedTuple):
    """For which task a container was made, and in which second."""

    task_id: str
    at_s: float


List = Callable[[], Awaitable[Mapping[str, ContainerOrigin]]]
"""The removable containers of this client, by their ids."""


class DanglingRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator decided; seconds."""

    enabled: bool
    period_s: float
    grace_s: float
    dry_run: bool


class DanglingRemover:
    """Looks every so often."""

    def __init__(
        self,
        rules: DanglingRules,
        clock: Callable[[], UnixNano],
        *,
        made: List,
        knows: Callable[[str, str], bool],
        remove: Callable[[str], Awaitable[None]],
    ) -> None:
        self.rules = rules
        self.clock = clock
        self.made = made
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
        found, now_s = await self.made(), self.clock() / NANOSECONDS
        old = {container_id: made for container_id, made in found.items() if now_s - made.at_s >= self.rules.grace_s}
        dangling = []
        for container_id, made in old.items():
            if self.knows(container_id, made.task_id):
                continue
            dangling.append(container_id)
            if self.rules.dry_run:
                log.info("container %.12s dangles (dry run: it stays)", container_id)
                continue
            log.info("container %.12s dangles and is removed", container_id)
            with suppress(DriverError):
                await self.remove(container_id)
        return dangling
