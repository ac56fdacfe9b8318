"""Allows the node to become ready once its allocations are fetched, restored and reported (invariant E1)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.allocations.alloc_watch import AllocWatch
from yurt.client.allocations.reports import Reporter


class Readiness:
    """Repeats fetching and reporting after each loss of the registration, then allows the status ready again."""

    def __init__(self, table: AllocTable, watch: AllocWatch, reporter: Reporter) -> None:
        self._table = table
        self._watch = watch
        self._reporter = reporter
        self._is_lost = asyncio.Event()
        self._is_lost.set()

    def lose(self, index: int) -> None:
        """Fetch a list of at least `index` and report everything, because the servers withdrew the status ready."""
        self._watch.look_again(index)
        self._reporter.resend()
        for runner in self._table.live.values():
            runner.resend_services()
        self._is_lost.set()

    async def run(self, allow_ready: Callable[[], None]) -> None:
        """Allow the status ready at the start and after each loss, until cancelled."""
        while True:
            await self._is_lost.wait()
            self._is_lost.clear()
            await self._watch.fresh.wait()
            for reported in [runner.reported for runner in self._table.live.values()]:
                await reported.wait()
            await self._reporter.wait_idle()
            if not self._is_lost.is_set():
                allow_ready()
