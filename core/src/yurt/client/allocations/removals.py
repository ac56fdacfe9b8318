"""Removes allocations that the servers no longer list: their tasks end, then directories and records go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from yurt.client.allocations.alloc_table import AllocTable
from yurt.runtime.supervise import attempted, supervised

AT_ONCE = 8
"""The number of concurrent removals of ended allocations: one asyncio task for each of thousands takes 4 KB each."""

Release = Callable[[str], Awaitable[None]]
"""Frees what an allocation uses, by the allocation's id."""


class Removals:
    """Removes the allocations of one client that are no longer listed.

    `releases` run one after the other, the record of the allocation last: a crash before it leaves an allocation that
    the next agent removes again. `forget` is called when nothing is left.
    """

    def __init__(
        self,
        allocs: AllocTable,
        releases: Sequence[Release],
        *,
        group: asyncio.TaskGroup,
        forget: Callable[[str], None],
    ) -> None:
        self._allocs = allocs
        self._releases = releases
        self._group = group
        self._forget = forget

    def begin(self, alloc_ids: Iterable[str]) -> None:
        """Start removing allocations: each live one in a task of its own, since its end may take long."""
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
        """End an allocation and remove all that is left of it."""
        runner = self._allocs.live.get(alloc_id)
        if runner is not None:
            runner.stop()
            await runner.wait_over()
            await runner.wait_cleaned()
        for release in self._releases:
            await release(alloc_id)
        self._allocs.forget(alloc_id)
        self._forget(alloc_id)
