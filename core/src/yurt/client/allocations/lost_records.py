"""A client whose database was damaged: what runs here is found again, and nothing is started beside it.

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
    """The allocations of which something may run here although their records cannot be read."""

    def __init__(self, database: ClientDatabase, alloc_dir: str) -> None:
        self._database = database
        self._alloc_dir = alloc_dir
        self._ids: set[str] = set()

    def sort(self, records: tuple[AllocRecord, ...]) -> tuple[AllocRecord, ...]:
        """The records that can be used; blocking. The others are remembered, and so are directories without any."""
        usable: list[AllocRecord] = []
        if self._database.is_incomplete:  # a record may be there, and older than what runs
            self._ids.update(record.id for record in records)
            records = ()
        for record in records:
            alloc = record.alloc
            if record.error or alloc is None or alloc.job is None or alloc.job.group(alloc.task_group) is None:
                log.error("the client's record of an allocation cannot be read, what runs of it is looked for: "
                          "allocation=%s: %s", record.id, record.error or "it has no job")  # fmt: skip
                self._ids.add(record.id)
            else:
                usable.append(record)
        if self._database.is_incomplete and os.path.isdir(self._alloc_dir):
            self._ids.update(set(os.listdir(self._alloc_dir)) - {record.id for record in usable})
        return tuple(usable)

    @property
    def ids(self) -> frozenset[str]:
        """Those that were not taken up yet."""
        return frozenset(self._ids)

    def take(self, alloc_id: str) -> bool:
        """Whether an allocation is one of them; it is none from now on."""
        is_lost = alloc_id in self._ids
        self._ids.discard(alloc_id)
        return is_lost

    def unclaimed(self) -> None:
        """The servers have told of all allocations of this node: what is left is nobody's."""
        if self._ids:
            log.warning("directories of allocations that the servers do not know are left, and what may run of them: "
                        "allocations=%s", ",".join(sorted(self._ids)))  # fmt: skip
        self._ids.clear()
