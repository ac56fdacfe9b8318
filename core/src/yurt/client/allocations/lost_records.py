"""Recovery after damage to the client's database: running tasks are found again, and none is started twice.

Of an allocation without a readable record three things are known: its directory, which is made before anything of it
starts; what its servers were told of its tasks; and what the drivers find by the ids of its runs, which they write down
themselves (the start files of shims, the labels of containers). A run that is found is taken up. A task of which the
servers know more than that it waits, and that nobody finds, has ended unseen: its restart policy decides. Last, a shim
holds a lock on its task's directory, so that a process that nobody found still keeps another one from being started.
"""

from __future__ import annotations

import logging
import os

from yurt.storage.client_db import AllocRecord, ClientDatabase

log = logging.getLogger(__name__)


class LostRecords:
    """Allocations without a readable record of which tasks may still run."""

    def __init__(self, database: ClientDatabase, alloc_dir: str) -> None:
        self._database = database
        self._alloc_dir = alloc_dir
        self._ids: set[str] = set()

    def sort(self, records: tuple[AllocRecord, ...]) -> tuple[AllocRecord, ...]:
        """The usable records; the others, and directories without a record, are remembered as lost. Blocking."""
        usable: list[AllocRecord] = []
        if self._database.is_incomplete:  # a record may be there, and older than what runs
            self._ids.update(record.id for record in records)
            records = ()
        for record in records:
            alloc = record.alloc
            if record.error or alloc is None or alloc.job is None or alloc.job.group(alloc.task_group) is None:
                log.error("unreadable record of an allocation, looking for its running tasks: "
                          "allocation=%s: %s", record.id, record.error or "it has no job")  # fmt: skip
                self._ids.add(record.id)
            else:
                usable.append(record)
        if self._database.is_incomplete and os.path.isdir(self._alloc_dir):
            self._ids.update(set(os.listdir(self._alloc_dir)) - {record.id for record in usable})
        return tuple(usable)

    @property
    def ids(self) -> frozenset[str]:
        """The lost allocations that were not recovered yet."""
        return frozenset(self._ids)

    def take(self, alloc_id: str) -> bool:
        """Whether an allocation was lost; it no longer counts as lost afterwards."""
        is_lost = alloc_id in self._ids
        self._ids.discard(alloc_id)
        return is_lost

    def unclaimed(self) -> None:
        """The servers have listed all allocations of this node: the remaining lost ones belong to none of them."""
        if self._ids:
            log.warning("directories and tasks of allocations unknown to the servers are left alone: "
                        "allocations=%s", ",".join(sorted(self._ids)))  # fmt: skip
        self._ids.clear()
