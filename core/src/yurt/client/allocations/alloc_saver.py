"""Persists each change of an allocation's state before it is reported.

`version` counts the changes; `wait_saved` waits until all changes so far are on disk.
"""

from __future__ import annotations

import asyncio

from yurt.client.allocations.client_alloc import ClientAlloc
from yurt.client.devices.activity import DeviceActivity
from yurt.client.timed_waits import LightEvent
from yurt.storage.client_db import ClientDatabase


class AllocSaver:
    """Stores the record of one allocation."""

    def __init__(self, alloc: ClientAlloc, store: ClientDatabase, activity: DeviceActivity) -> None:
        self.version = 1
        self.changed = LightEvent()
        """Set by each change since the last round of the runner."""
        self._alloc = alloc
        self._store = store
        self._activity = activity
        self._saved_version = 0
        self._saved = asyncio.Condition()
        self._next: LightEvent | None = None
        """Set by the next change of any kind; None while nobody waits for one."""

    @property
    def is_saved(self) -> bool:
        """Whether every change is on disk."""
        return self._saved_version == self.version

    def on_change(self) -> None:
        """Count a change and wake the runner."""
        self.version += 1
        self.wake()

    def wake(self) -> None:
        """Wake the runner and all waits for a change: something outside of the stored states has changed."""
        self.changed.set()
        if self._next is not None:
            self._next.set()
            self._next = None

    async def wait_change(self) -> None:
        """Wait for the next change after this call."""
        if self._next is None:
            self._next = LightEvent()
        await self._next.wait()

    async def wait_saved(self) -> None:
        """Wait until every change so far is on disk."""
        target_version = self.version
        async with self._saved:
            await self._saved.wait_for(lambda: self._saved_version >= target_version)

    async def save(self) -> None:
        """Store the states of all tasks."""
        version, alloc = self.version, self._alloc
        if alloc.is_unsaved:
            alloc.is_unsaved = False
            await self._store.put_alloc(alloc.alloc)
        records = {name: runner.record for name, runner in alloc.tasks.items()}
        await self._store.put_tasks(alloc.id, records, alloc.health_status, self._activity.totals(alloc.id))
        async with self._saved:
            self._saved_version = max(version, self._saved_version)
            self._saved.notify_all()
