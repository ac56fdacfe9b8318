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

    @property
    def is_saved(self) -> bool:
        """Whether every change is on disk."""
        return self._saved_version == self.version

    def on_change(self) -> None:
        """Count a change and wake the runner."""
        self.version += 1
        self.changed.set()

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
