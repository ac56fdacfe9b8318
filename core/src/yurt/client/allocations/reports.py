"""Reports allocations to the servers: a first change at once, later ones in batches.

A report whose status differs from the last acknowledged one is urgent; others wait up to 200 ms for a batch. Reports of
one allocation replace each other, so the queue is never longer than the list of allocations. Nothing is sent before the
first contact; a failed report is sent again and never dropped.
"""

from __future__ import annotations

import asyncio
import logging

from yurt.client.ports import ServerPort
from yurt.client.timed_waits import wait_or_sleep
from yurt.runtime.env import Env
from yurt.sdk.errors import YurtError
from yurt.structs.commands import AllocUpdate
from yurt.structs.rpc import UpdateAllocsRequest

GATHER_S = 0.2
RETRY_S = 5.0
DEV_RETRY_S = 1.0
BATCH_MAX = 500

log = logging.getLogger(__name__)


class Reporter:
    """The queue of reports and the loop that sends them."""

    def __init__(self, server: ServerPort, env: Env, *, node_id: str, retry_s: float = RETRY_S) -> None:
        self._server = server
        self._env = env
        self._node_id = node_id
        self._retry_s = retry_s
        self._pending: dict[str, AllocUpdate] = {}
        self._acked: dict[str, AllocUpdate] = {}
        self._last: dict[str, AllocUpdate] = {}
        self._open = asyncio.Event()
        self._wake = asyncio.Event()
        self._urgent = asyncio.Event()
        self._again = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def offer(self, update: AllocUpdate) -> None:
        """Queue a report, unless the servers have acknowledged the same one."""
        self._last[update.id] = update
        if update == self._acked.get(update.id):
            self._pending.pop(update.id, None)
            return
        self._pending[update.id] = update
        self._idle.clear()
        self._wake.set()
        if self._is_urgent(update):
            self._urgent.set()

    def status_of(self, alloc_id: str) -> str | None:
        """The status in the last report."""
        last = self._last.get(alloc_id)
        return last.client_status if last else None

    def open(self) -> None:
        """Allow sending, once the first list of the servers is carried out."""
        self._open.set()

    def resend(self, alloc_id: str = "") -> None:
        """Send the last reports of all allocations, or of one, again, because the servers may have missed them."""
        for update in tuple(self._last.values()):
            if not alloc_id or update.id == alloc_id:
                self._acked.pop(update.id, None)
                self.offer(update)
        self._again.set()

    def forget(self, alloc_id: str) -> None:
        """Drop all reports of an allocation that the servers no longer list."""
        for reports in (self._pending, self._acked, self._last):
            reports.pop(alloc_id, None)
            if not reports:
                reports.clear()  # deletions alone do not shrink a dictionary

    async def wait_idle(self) -> None:
        """Wait until everything offered so far is acknowledged."""
        await self._idle.wait()

    async def run(self) -> None:
        """Send until cancelled."""
        await self._open.wait()
        while True:
            await self._wake.wait()
            # Small changes gather for a moment, so that a node sends one request for many; a new status does not wait.
            await wait_or_sleep(self._env, self._urgent, GATHER_S)
            self._urgent.clear()
            self._wake.clear()
            batch = tuple(self._pending.values())[:BATCH_MAX]
            self._again.clear()
            if batch and not await self._send(batch):
                await wait_or_sleep(self._env, self._again, self._retry_s)
                self._urgent.set()
            del batch  # else the sent reports stay in memory until the next batch
            if self._pending:
                self._wake.set()
            else:
                self._idle.set()

    def _is_urgent(self, update: AllocUpdate) -> bool:
        acked = self._acked.get(update.id)
        return acked is None or acked.client_status != update.client_status

    async def _send(self, batch: tuple[AllocUpdate, ...]) -> bool:
        try:
            await self._server.update_allocs(UpdateAllocsRequest(node_id=self._node_id, updates=batch))
        except YurtError as error:
            log.warning("reporting allocations failed: count=%d retry_s=%g error=%s", len(batch), self._retry_s, error)
            return False
        if self._again.is_set():
            return True  # the servers forgot a report that they had stored, so it is sent again
        for update in batch:
            if update.id in self._last:
                self._acked[update.id] = update
            # A newer report that came while this one was on its way stays pending.
            if self._pending.get(update.id) is update:
                del self._pending[update.id]
        return True
