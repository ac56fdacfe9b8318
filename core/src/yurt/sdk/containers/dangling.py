"""Removes dangling containers: those of this client without a task, left by an agent that died during a start.

Tasks start and are recovered while containers are listed and removed. So each container is checked again right before
its removal, and a container whose task is starting is not dangling.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from yurt.sdk.containers.options import DanglingRules
from yurt.sdk.containers.watch import Watch
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.value import NANOSECONDS, UnixNano

log = logging.getLogger(__name__)


class ContainerOrigin(NamedTuple):
    """The task for which a container was created, and the second of its creation."""

    task_id: str
    at_s: float


List = Callable[[], Awaitable[Mapping[str, ContainerOrigin]]]
"""Lists the removable containers of this client, by their ids."""


class DanglingRemover:
    """Periodically removes dangling containers."""

    def __init__(
        self,
        rules: DanglingRules,
        clock: Callable[[], UnixNano],
        *,
        made: List,
        has_task: Callable[[str, str], bool],
        remove: Callable[[str], Awaitable[None]],
    ) -> None:
        self.rules = rules
        self.clock = clock
        self.made = made
        self.has_task = has_task
        self.remove = remove

    async def run(self, watch: Watch) -> None:
        """Sweep until cancelled; the first sweep waits until tasks have been recovered."""
        if not self.rules.enabled:
            return
        while True:
            await asyncio.sleep(self.rules.period_s)
            if watch.up.is_set():
                with suppress(DriverError, NotFound):
                    await self.sweep()

    async def sweep(self) -> list[str]:
        """Remove dangling containers, or only log them in a dry run; returns their ids."""
        found, now_s = await self.made(), self.clock() / NANOSECONDS
        old = {container_id: made for container_id, made in found.items() if now_s - made.at_s >= self.rules.grace_s}
        dangling = []
        for container_id, made in old.items():
            if self.has_task(container_id, made.task_id):
                continue
            dangling.append(container_id)
            if self.rules.dry_run:
                log.info("dangling container found (dry run, not removed): id=%.12s", container_id)
                continue
            log.info("dangling container removed: id=%.12s", container_id)
            with suppress(DriverError):
                await self.remove(container_id)
        return dangling
