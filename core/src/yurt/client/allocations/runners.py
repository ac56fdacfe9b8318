"""Starts allocation runners, supervises them, and replaces them by records when their allocations have ended."""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Mapping, Sequence

from yurt.client.allocations.alloc_log_lines import lifecycle_line
from yurt.client.allocations.alloc_runner import AllocRunner
from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.allocations.lost_records import LostRecords
from yurt.client.allocations.reports import Reporter
from yurt.client.allocations.start_slots import StartSlots
from yurt.client.context import ClientContext
from yurt.client.csi.manager import is_plugin
from yurt.client.hooks.client_hooks import ClientHooks
from yurt.runtime.supervise import supervised
from yurt.storage.client_db import AllocRecord
from yurt.structs.alloc import Allocation, TaskState
from yurt.structs.commands import AllocUpdate
from yurt.structs.status import CLIENT_FAILED, CLIENT_RUNNING, ClientStatus

log = logging.getLogger(__name__)


class Runners:
    """Runs the allocations of a table; a failing runner fails only its own allocation."""

    def __init__(
        self,
        table: AllocTable,
        context: ClientContext,
        *,
        group: asyncio.TaskGroup,
        reporter: Reporter,
        lost: LostRecords,
    ) -> None:
        self._table = table
        self._context = context
        self._hooks = ClientHooks(context, context.config.added)
        self._group = group
        self._reporter = reporter
        self._lost = lost
        self._slots = StartSlots(context.env)
        self._is_ending = False

    def begin(self, alloc: Allocation, record: AllocRecord | None = None) -> None:
        """Run an allocation; `record` continues an allocation of an earlier agent. No effect from `stop_all` on."""
        if self._is_ending:
            log.info(
                "allocation not started, because all tasks of this node end: alloc=%s name=%s", alloc.id, alloc.name
            )
            return
        runner = AllocRunner(alloc, self._context, hooks=self._hooks, group=self._group, report=self.report)
        after = self._predecessors(alloc)
        self._table.begin(runner)
        supervised(
            self._group,
            f"allocation {alloc.id[:8]}",
            self._until_retired(runner, record, after=after, is_rebuilt=self._lost.take(alloc.id)),
            on_error=lambda error: self._broke(runner, error),
        )

    def _predecessors(self, alloc: Allocation) -> tuple[weakref.ref[AllocRunner], ...]:
        """The runners of the node's allocations that this one replaces or preempts."""
        live = self._table.live
        ids = (alloc.previous_allocation, *alloc.preempted_allocations)
        return tuple(weakref.ref(live[each]) for each in ids if each in live)

    async def _until_retired(
        self,
        runner: AllocRunner,
        record: AllocRecord | None,
        *,
        after: Sequence[weakref.ref[AllocRunner]],
        is_rebuilt: bool,
    ) -> None:
        """Run an allocation to its end, then replace its runner by a record."""
        try:
            await runner.run(record, after=after, slots=self._slots, is_rebuilt=is_rebuilt)
        finally:
            runner.hooked.may_start.set()  # one that failed takes no slot
            self._slots.release(runner.id)
        while not await runner.wait_cleaned():
            log.warning("drivers still free resources of ended tasks: allocation=%s", runner.id)
        self._table.retire(runner)

    def _broke(self, runner: AllocRunner, error: Exception) -> None:
        runner.end()
        self.report_end(runner.id, CLIENT_FAILED, f"running the allocation failed: {error}")

    def report(self, update: AllocUpdate) -> None:
        """Report an allocation to the servers, and log its start, end or failure."""
        if update.client_status == CLIENT_RUNNING:
            self._slots.release(update.id)
        runner = self._table.live.get(update.id)
        line = lifecycle_line(runner.alloc.name if runner else "", self._reporter.status_of(update.id), update)
        if line:
            log.info("%s", line)
        self._reporter.offer(update)

    def report_end(self, alloc_id: str, status: ClientStatus, description: str) -> None:
        """Report the end of an allocation without a runner: it never started, or its runner failed."""
        runner = self._table.live.get(alloc_id)
        states: Mapping[str, TaskState] = runner.states if runner is not None else {}
        self.report(
            AllocUpdate(
                id=alloc_id,
                node_id=self._context.node().id,
                client_status=status,
                client_description=description,
                task_states=states,
            )
        )

    async def stop_all(self) -> None:
        """Kill every task and wait for the ends; CSI plugins end last, since other tasks may use their volumes.

        No further allocation starts: the servers replace services that end, and this node counts as ready until its
        heartbeats are missed.
        """
        self._is_ending = True
        for is_last in (False, True):
            ending = [runner for runner in self._table.live.values() if is_plugin(runner.task_group) == is_last]
            # All are stopped before the first is awaited, so that their kill time-outs run at the same time.
            for runner in ending:
                runner.stop_at_once()
            for runner in ending:
                await runner.wait_over()

    async def finish_cleaning(self) -> None:
        """Wait, within a bound, until the drivers have freed the resources of ended tasks, such as containers."""
        await asyncio.gather(*(runner.wait_cleaned() for runner in self._table.live.values()))
