"""Client garbage collection: removes directories of ended allocations, oldest first, beyond a count or a disk usage.

Only the directory goes. The record stays until the servers stop listing the allocation, so that an ended allocation
is never taken for a new one (invariant D4).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from yurt.client.allocations.alloc_table import AllocTable, EndedAlloc
from yurt.client.config import ClientConfig
from yurt.client.files.alloc_dir import alloc_path, remove_alloc_dir
from yurt.client.host_usage import disk_used_percent
from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, NotFound

log = logging.getLogger(__name__)


class GarbageCollector:
    """Removes directories at intervals and on request."""

    def __init__(
        self, config: ClientConfig, env: Env, allocs: AllocTable, *, on_removed: Callable[[str], None]
    ) -> None:
        """`on_removed` is called with the allocation of each directory that was removed."""
        self._config = config
        self._env = env
        self._allocs = allocs
        self._on_removed = on_removed
        self._slots = asyncio.Semaphore(max(config.gc_parallel_destroys, 1))

    async def run(self) -> None:
        """Collect at each interval until cancelled."""
        while True:
            await self._env.sleep(self._config.gc_interval_s)
            await self.collect_excess()

    async def collect_excess(self) -> None:
        """Remove the oldest ended allocations while there are too many, or while the disk is too full."""
        ended = await self._collectable()
        present = len(ended) + sum(not runner.is_over for runner in self._allocs.live.values())
        for alloc in ended:
            if self._allocs.awaiting_replacement(alloc.id):
                present -= 1  # it stays in any case, so no other makes way for it
                continue
            reason = await self._reason(present)
            if not reason:
                return
            log.info("removing allocation directory: allocation=%s reason=%s", alloc.id, reason)
            await self._remove(alloc.id)
            present -= 1

    async def _reason(self, present: int) -> str:
        config = self._config
        if present > config.gc_max_allocs:
            return f"{present} allocations are more than gc_max_allocs = {config.gc_max_allocs}"
        space, inodes = await asyncio.to_thread(disk_used_percent, config.alloc_dir)
        if space > config.gc_disk_usage_threshold:
            return f"{space:.0f} % of the disk is used, gc_disk_usage_threshold is {config.gc_disk_usage_threshold:g} %"
        if inodes > config.gc_inode_usage_threshold:
            return f"{inodes:.0f} % of the inodes are used"
        return ""

    async def _collectable(self) -> list[EndedAlloc]:
        """Ended allocations that still have a directory, the earliest end first."""
        ended = sorted(self._allocs.over(), key=lambda each: each.finished_at)
        names = await asyncio.to_thread(self._present)
        return [alloc for alloc in ended if alloc.id in names]

    def _present(self) -> set[str]:
        root = Path(self._config.alloc_dir)
        return {entry.name for entry in root.iterdir()} if root.is_dir() else set()

    async def collect(self, alloc_id: str | None) -> None:
        """Remove the directory of one ended allocation, or of all of them.

        Raises NotFound, Unavailable while the client restores allocations, and Conflict for one that runs or whose
        data its replacement has yet to take.
        """
        if alloc_id is not None:
            await self._allocs.find(alloc_id)
            if not await asyncio.to_thread(alloc_path(self._config.alloc_dir, alloc_id).is_dir):
                raise NotFound(f"unknown allocation {alloc_id!r} on this node, or it is collected already")
            runner = self._allocs.live.get(alloc_id)
            if runner is not None and not runner.is_over:
                raise Conflict(f"allocation {alloc_id} still runs; stop it first")
            replacement = self._allocs.awaiting_replacement(alloc_id)
            if replacement:
                raise Conflict(
                    f"the data of allocation {alloc_id} moves to its replacement {replacement}, "
                    "which has not started yet; try again when it runs"
                )
            await self._remove(alloc_id)
            return
        async with asyncio.TaskGroup() as group:
            for alloc in await self._collectable():
                group.create_task(self._remove(alloc.id))

    async def _remove(self, alloc_id: str) -> None:
        """Remove a directory once no task writes into it, unless a replacement has yet to take its data."""
        runner = self._allocs.live.get(alloc_id)
        if runner is not None:
            await runner.wait_cleaned()
        async with self._slots:
            if self._allocs.awaiting_replacement(alloc_id):  # looked up last, since a replacement may come at any time
                return
            await asyncio.to_thread(remove_alloc_dir, self._config.alloc_dir, alloc_id)
            self._on_removed(alloc_id)
