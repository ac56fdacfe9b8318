"""Watches the database size of this server's etcd member and schedules its defragmentation.

With an exhausted quota etcd stores nothing, neither a new term nor a report of a snapshot; that must be prevented.
From half of the quota on, every server saves snapshots and the log is kept as short as they allow; free space inside a
member's file is given back to the disk, by one server at a time and by the leading one last. Appends are refused
while only a tenth of the quota is left in any member's file (see `quota_usage`).
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from yurt.sdk.errors import YurtError
from yurt.storage.etcd.client import EtcdClient, NoSpace
from yurt.storage.etcd.handover import Handover
from yurt.storage.etcd.key_layout import KeyLayout
from yurt.storage.etcd.leading import Leading
from yurt.storage.etcd.maintenance_lock import MaintenanceLock
from yurt.storage.etcd.membership import defragment, member_status
from yurt.storage.etcd.quota_usage import EtcdQuotaUsage

log = logging.getLogger(__name__)

LAST_WAIT_S: Final = 10.0
"""The longest time, in seconds, for which a leading server lets the others defragment first."""
TURN_S, TURN_BYTES_PER_S = 5.0, 32 * 1024 * 1024
"""The time limit of a defragmentation: TURN_S, plus the quota divided by TURN_BYTES_PER_S."""


class FileSize:
    """The size of the database of this server's etcd member. `is_crowded` is set while it nears the quota."""

    def __init__(
        self,
        client: EtcdClient,
        keys: KeyLayout,
        *,
        leading: Leading,
        quota_usage: EtcdQuotaUsage,
        handover: Handover,
        alarm: asyncio.Event,
    ) -> None:
        """`alarm` is set when the quota is exhausted."""
        self.is_crowded = asyncio.Event()
        self._client = client
        self._leading = leading
        self._own_endpoint, self._env = leading.own_endpoint, leading.env
        self._quota_usage = quota_usage
        self._handover = handover
        self._alarm = alarm
        limit_s = TURN_S + quota_usage.quota_bytes / TURN_BYTES_PER_S
        self._turns = MaintenanceLock(client, keys.turn, name=leading.name, limit_s=limit_s, env=leading.env)
        self._loose_since: float | None = None

    async def watch_size(self) -> None:
        """Check the size of the member's database and defragment it when worthwhile; until cancelled."""
        was_full = False
        while self._quota_usage.quota_bytes:
            try:
                await self._look()
                was_full = self._report_full(was_full)
                await self._rewrite_in_turn()
            except NoSpace:
                self._alarm.set()
            except YurtError as error:
                log.debug("etcd does not tell its size: %s", error)
            await self._pause()

    async def wait_sizes_due(self) -> None:
        """Return when it is time to query the other servers' sizes; never without a quota."""
        if not self._quota_usage.quota_bytes:
            await asyncio.Event().wait()
        while not self._quota_usage.is_asking_due(self._env.monotonic()):
            await self._pause()
        self._quota_usage.record_query(self._env.monotonic())

    async def _pause(self) -> None:
        await self._env.sleep(self._quota_usage.look_pause_s(self._env.monotonic()))

    async def _look(self) -> None:
        self._quota_usage.look(await member_status(self._client, self._own_endpoint))
        if self._quota_usage.is_crowded:
            self.is_crowded.set()
        else:
            self.is_crowded.clear()

    def _report_full(self, was_full: bool) -> bool:
        """Log once when space runs short; returns whether it is short."""
        now = self._env.monotonic()
        used_bytes, server = self._quota_usage.largest(now)
        is_full = self._quota_usage.is_full(0, now)
        if is_full and not was_full:
            log.error(
                "etcd is nearly full, nothing more is appended until there is room: %d bytes of %d at %s; "
                "when this comes again, give it more (etcd { quota_bytes = ... })",
                used_bytes,
                self._quota_usage.quota_bytes,
                server,
            )
        return is_full

    async def _rewrite_in_turn(self) -> None:
        """Defragment while this server has the turn and does not lead."""
        if not self._quota_usage.is_loose:
            self._loose_since = None
            return
        now = self._env.monotonic()
        if self._loose_since is None:
            self._loose_since = now
        leads_on = self._quota_usage.is_another_loose(now) and now - self._loose_since < LAST_WAIT_S
        if self._leading.term is not None and leads_on:
            return
        async with self._turns.turn() as is_own:
            if is_own:
                await self._rewrite()

    async def _rewrite(self) -> None:
        if self._leading.term is not None:
            await self._handover.resign()
        self._quota_usage.rewrite()
        await defragment(self._client, self._own_endpoint)
        await self._look()
