"""Connects the parts that run the allocations of this node, from the servers' list to the reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.allocations.alloc_watch import AllocWatch
from yurt.client.allocations.assignments import Assignments
from yurt.client.allocations.lost_records import LostRecords
from yurt.client.allocations.readiness import Readiness
from yurt.client.allocations.removals import Removals
from yurt.client.allocations.reports import DEV_RETRY_S, RETRY_S, Reporter
from yurt.client.allocations.runners import Runners
from yurt.client.context import ClientContext
from yurt.client.files.alloc_dir import remove_alloc_dir
from yurt.client.timed_waits import wait_or_sleep


class AllocService:
    """Runs the allocations that the servers assign to the node, and those of an earlier agent."""

    def __init__(
        self,
        table: AllocTable,
        context: ClientContext,
        *,
        node_id: str,
        group: asyncio.TaskGroup,
        register_again: Callable[[], None],
    ) -> None:
        """`register_again` has the node registered again."""
        config, env, store, server = context.config, context.env, context.store, context.server
        self._context = context
        self._table = table
        self._lost = LostRecords(store, config.alloc_dir)
        self.reporter = Reporter(server, env, node_id=node_id, retry_s=DEV_RETRY_S if config.dev else RETRY_S)
        self.watch = AllocWatch(server, env, store, node_id=node_id, register_again=register_again, is_dev=config.dev)
        self.readiness = Readiness(table, self.watch, self.reporter)
        self.runners = Runners(table, context, group=group, reporter=self.reporter, lost=self._lost)
        self.removals = Removals(
            table,
            (context.networks.release, context.csi.volumes.release, self._remove_dir, store.delete_alloc),
            group=group,
            forget=self.reporter.forget,
        )
        self._assignments = Assignments(
            table, self.runners, removals=self.removals, reporter=self.reporter, lost=self._lost
        )

    async def _remove_dir(self, alloc_id: str) -> None:
        await self._table.wait_data_taken(alloc_id)  # a replacement takes the data when its turn to start comes
        await asyncio.to_thread(remove_alloc_dir, self._context.config.alloc_dir, alloc_id)
        self._context.users.release(alloc_id)

    async def restore(self, fingerprinted: asyncio.Task[None]) -> None:
        """Continue the allocations of an earlier agent once the node is fingerprinted; networks are read meanwhile."""
        context = self._context
        records = await asyncio.to_thread(self._lost.sort, await context.store.allocs())
        alloc_ids = {record.id for record in records} | self._lost.ids
        await context.env.in_thread(context.users.restore, records, self._lost.ids, context.config.alloc_dir)
        await context.networks.open(alloc_ids)
        await fingerprinted
        self.watch.restore(records)
        self._assignments.restore(records)
        await context.csi.volumes.open(alloc_ids)

    async def wait_recovered(self, within_s: float) -> None:
        """Wait, up to a time limit, until the tasks of an earlier agent are recovered."""
        env = self._context.env
        ends_at = env.monotonic() + within_s
        for runner in list(self._table.live.values()):
            await wait_or_sleep(env, runner.recovered, max(ends_at - env.monotonic(), 0.01))

    async def follow(self, least_index: int) -> None:
        """Follow the servers' list until cancelled; lists older than `least_index` are ignored."""
        await self.watch.run(least_index=least_index, apply=self._assignments.apply)
