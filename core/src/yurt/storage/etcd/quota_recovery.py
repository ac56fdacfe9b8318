"""Recovers from etcd's exhausted quota: etcd accepts no writes then, but still deletes and compacts.

`defragmentation` prevents that, but etcd may have other users, or the quota may be smaller than before. Each
server frees space in its own member, or with an external etcd in all members.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from yurt.sdk.errors import YurtError
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.compaction import Compaction
from yurt.storage.etcd.leading import Leading
from yurt.storage.etcd.membership import defragment, no_space_alarms

log = logging.getLogger(__name__)

PAUSE_S: Final = 15.0
"""The pause between two attempts to free space, in seconds."""


class ExhaustedQuota:
    """Frees space for one server whenever `alarm` is set."""

    def __init__(self, client: EtcdClient, *, leading: Leading, compaction: Compaction, alarm: asyncio.Event) -> None:
        self._client = client
        self._own_endpoint, self._env = leading.own_endpoint, leading.env
        self._compaction = compaction
        self._alarm = alarm

    async def free_space_when_full(self) -> None:
        """When the quota is exhausted, delete, compact, defragment and disarm the alarm; until cancelled."""
        while True:
            await self._alarm.wait()
            log.error(
                "etcd's quota is exhausted, it stores nothing more; room is made by deleting what a majority has in "
                "snapshots. When this comes again, give etcd a larger quota or its disk more space"
            )
            try:
                await self._free_space()
            except YurtError as error:
                log.error("no room could be made in etcd, it is tried again: %s", error)
            await self._env.sleep(PAUSE_S)
            self._alarm.clear()

    async def _free_space(self) -> None:
        await self._compaction.trim_all()
        endpoints = (self._own_endpoint,) if self._own_endpoint else self._client.endpoints
        own_ids = set()
        for endpoint in endpoints:
            own_ids.add(await defragment(self._client, endpoint))
        for alarm in await no_space_alarms(self._client):
            if not self._own_endpoint or alarm.memberID in own_ids:
                await self._client.disarm(alarm)
