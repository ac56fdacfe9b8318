"""Starts, updates and removes allocations as the servers assign them to this node.

`lifecycle.alloc_list` decides the effect of a list; this module carries out its changes.
"""

from __future__ import annotations

from collections.abc import Iterable

from yurt.client.allocations.alloc_runner import AllocRunner
from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.allocations.lost_records import LostRecords
from yurt.client.allocations.removals import Removals
from yurt.client.allocations.reports import Reporter
from yurt.client.allocations.runners import Runners
from yurt.lifecycle.alloc_list import Changes
from yurt.storage.client_db import AllocRecord
from yurt.structs.alloc import Allocation
from yurt.structs.predicates import is_client_terminal, is_server_terminal
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_UNKNOWN


class Assignments:
    """Brings the running allocations into line with the servers' list."""

    def __init__(
        self, table: AllocTable, runners: Runners, *, removals: Removals, reporter: Reporter, lost: LostRecords
    ) -> None:
        self._table = table
        self._runners = runners
        self._removals = removals
        self._reporter = reporter
        self._lost = lost

    def restore(self, records: Iterable[AllocRecord]) -> None:
        """Continue the allocations of an earlier agent, and answer operations on allocations from then on."""
        for record in records:
            assert record.alloc is not None, record.id
            self._runners.begin(record.alloc, record)
        self._table.set_restored()

    async def apply(self, changes: Changes) -> None:
        """Carry out the changes of a list, and let reports be sent from then on."""
        for alloc in changes.fetched:
            self._take(alloc)
        self._lost.unclaimed()
        self._removals.begin(changes.gone)
        self._reporter.open()

    def _take(self, alloc: Allocation) -> None:
        runner = self._table.live.get(alloc.id)
        if runner is not None:
            runner.take_over(alloc)
            self._table.has_changed.set()
        if alloc.id in self._table:
            if alloc.client_status == CLIENT_UNKNOWN:
                if runner is not None and self._is_unreported(runner):
                    runner.report_unbegun()
                self._reporter.resend(alloc.id)
        elif is_client_terminal(alloc):
            return
        elif is_server_terminal(alloc) and alloc.id not in self._lost.ids:
            self._runners.report_end(alloc.id, CLIENT_COMPLETE, "Stopped before it started on this client")
        elif alloc.job is None or alloc.job.group(alloc.task_group) is None:
            text = f"the servers sent no group {alloc.task_group!r} with allocation {alloc.id}"
            self._runners.report_end(alloc.id, CLIENT_FAILED, text)
        else:
            self._runners.begin(alloc)

    def _is_unreported(self, runner: AllocRunner) -> bool:
        """Whether the servers know nothing of an allocation that has not begun, and the node may be ready without it.

        An allocation that has begun is reported once its state is stored.
        """
        is_waiting = runner.reported.is_set() and not runner.hooked.has_begun
        return is_waiting and self._reporter.status_of(runner.id) is None
