"""Removing allocations that the servers have forgotten: they end, then their directories and records go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator

from yurt.client.allocations.alloc_dir import remove_alloc_dir
from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.context import ClientContext
from yurt.runtime.supervise import attempted, supervised

AT_ONCE = 8
"""Ended allocations that are removed together: a task of its own for each of thousands takes 4 KB each."""


class Removals:
    """Removes allocations of one client. `forget` is called when nothing of an allocation is left."""

    def __init__(
        self,
        allocs: AllocTable,
        context: ClientContext,
        *,
        group: asyncio.TaskGroup,
        forget: Callable[[str], None],
    ) -> None:
        self._allocs = allocs
        self._context = context
        self._group = group
        self._forget = forget

    def begin(self, alloc_ids: Iterable[str]) -> None:
        """Begin to remove them: those that still run each on its own, since their ends may take long."""
        ended: list[str] = []
        for alloc_id in alloc_ids:
            if alloc_id in self._allocs.live:
                supervised(self._group, f"removal of {alloc_id[:8]}", self.remove(alloc_id))
            else:
                ended.append(alloc_id)
        left = iter(ended)
        for _ in range(min(len(ended), AT_ONCE)):
            supervised(self._group, "removal of ended allocations", self._remove_each(left))

    async def _remove_each(self, alloc_ids: Iterator[str]) -> None:
        for alloc_id in alloc_ids:
            await attempted(f"removal of {alloc_id[:8]}", self.remove(alloc_id))

    async def remove(self, alloc_id: str) -> None:
        """End an allocation, remove its directory and its record."""
        runner = self._allocs.live.get(alloc_id)
        if runner is not None:
            runner.stop()
            await runner.wait_over()
            await runner.wait_cleaned()
        context = self._context
        await context.networks.release(alloc_id)
        await context.csi.volumes.release(alloc_id)
        await asyncio.to_thread(remove_alloc_dir, context.config.alloc_dir, alloc_id)
        await context.store.delete_alloc(alloc_id)
        self._allocs.forget(alloc_id)
        self._forget(alloc_id)
