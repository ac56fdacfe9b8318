"""Recovers allocations whose records in the client's database are damaged: no running task is lost or started twice.

Three sources remain of such an allocation: its directory, which exists before a task starts; the task states that the
servers have; and the runs that drivers find by their ids, which drivers store themselves (the start files of shims, the
labels of containers). A run that is found is recovered. A task that had started according to the servers, and that no
driver finds, has ended unseen: its restart policy decides. Finally, a shim locks its task's directory, so that even a
process that nobody found prevents a second one.
"""

from __future__ import annotations

import logging
import os

from yurt.storage.client_db import AllocRecord, ClientDatabase

log = logging.getLogger(__name__)


class LostRecords:
    """Allocations without a readable record, whose tasks may still run."""

    def __init__(self, database: ClientDatabase, alloc_dir: str) -> None:
        self._database = database
        self._alloc_dir = alloc_dir
        self._ids: set[str] = set()

    def sort(self, records: tuple[AllocRecord, ...]) -> tuple[AllocRecord, ...]:
        """Return the readable records; remember the others, and directories without a record, as lost. Blocking."""
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
        """The ids of lost allocations that are not recovered yet."""
        return frozenset(self._ids)

    def take(self, alloc_id: str) -> bool:
        """Remove an allocation from the lost ones; returns whether it was among them."""
        is_lost = alloc_id in self._ids
        self._ids.discard(alloc_id)
        return is_lost

    def unclaimed(self) -> None:
        """Forget the remaining lost allocations, which the servers' complete list does not have; returns their ids."""
        if self._ids:
            log.warning("directories and tasks of allocations unknown to the servers are left alone: "
                        "allocations=%s", ",".join(sorted(self._ids)))  # fmt: skip
        self._ids.clear()
