"""The disk hook: moves the sticky data of an allocation to the allocation that replaces it."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from yurt.client.allocations.client_alloc import ClientAlloc
from yurt.client.files import alloc_dir
from yurt.client.ports import ServerPort
from yurt.client.timed_waits import finish_unless
from yurt.lifecycle import events
from yurt.sdk.errors import YurtError
from yurt.sdk.hooks import AllocHookOf

MIB = 1024 * 1024


class DiskHook(AllocHookOf[ClientAlloc]):
    """Moves data as the group's `ephemeral_disk` block says (`sticky`, `migrate`)."""

    name = "disk"

    def __init__(self, root: str, server: ServerPort) -> None:
        self._root = root
        self._server = server

    async def prepare(self, alloc: ClientAlloc) -> None:
        """Move the data of the replaced allocation here, before a task of this one starts."""
        disk, previous = alloc.group.ephemeral_disk, alloc.alloc.previous_allocation
        if not alloc.is_predecessor_over or not previous or not (disk.sticky or disk.migrate):
            return
        if await asyncio.to_thread(alloc_dir.alloc_path(self._root, previous).is_dir):
            await asyncio.to_thread(alloc_dir.carry_over, self._root, previous, alloc.id, tuple(alloc.tasks))
        elif disk.migrate:
            await finish_unless(alloc.stopping, self._migrate(alloc, previous))

    async def _migrate(self, alloc: ClientAlloc, previous: str) -> None:
        """Fetch the data of a predecessor on another node; without it the allocation starts empty."""
        from yurt.client.allocations.migration import unpack

        limit = alloc.group.ephemeral_disk.size_mb * MIB
        alloc.note(events.task_setup(f"Copying the data of allocation {previous[:8]} from its node"))
        try:
            async with aclosing(self._server.fetch_disk(alloc.alloc.node_id, alloc.id)) as pieces:
                await unpack(pieces, self._root, alloc.id, tasks=tuple(alloc.tasks), limit=limit)
        except YurtError as error:
            alloc.note(events.task_setup(f"The data of allocation {previous[:8]} could not be copied: {error}"))
