"""Each server's snapshot index, reported in etcd: only entries covered by a majority may be deleted.

A server that lags behind the deleted entries gets a snapshot from a peer, so at least a majority must have one: then a
server that has it is always among those that can form a cluster.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, YurtError
from yurt.sdk.value import NANOSECONDS
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.key_layout import KeyLayout, Report
from yurt.storage.etcd.leading import Candidate
from yurt.storage.etcd.membership import list_members
from yurt.storage.etcd.messages import Message

log = logging.getLogger(__name__)

REPORT_PAUSE_S: Final = 1.0
REPORT_EVERY_S: Final = 600.0
SILENCE_MAX_S: Final = 24 * 3600
"""The seconds of silence after which a server does not count any more, if the set of servers is unknown."""


class SnapshotReports:
    """Reports for one server and reads the others' reports; `index` is that of its own snapshot on disk."""

    def __init__(self, client: EtcdClient, keys: KeyLayout, *, candidate: Candidate, env: Env) -> None:
        self.index = 0
        self._client = client
        self._keys = keys
        self._candidate = candidate
        self._env = env
        self._reported_index, self._reported_at = -1, 0.0

    async def servers(self) -> tuple[str, ...]:
        """The servers that count: those of etcd's members, or with an external etcd all that have reported within a
        day. A member that has never run has no name, and counts."""
        if self._candidate.own_endpoint:
            return tuple(peer.name for peer in await list_members(self._client) if not peer.is_learner)
        now = self._env.now()
        reports = await self._reports()
        return tuple(
            sorted(server for server, report in reports.items() if now - report.at < SILENCE_MAX_S * NANOSECONDS)
        )

    async def majority_index(self) -> int:
        """The highest index that is covered by snapshots on the disks of a majority of servers."""
        reports, nothing = await self._reports(), Report(index=0, at=0)
        reached = sorted((reports.get(server, nothing).index for server in await self.servers()), reverse=True)
        return reached[len(reached) // 2] if reached else 0

    async def report(self) -> None:
        """Report this server's snapshot index; raises Unavailable."""
        index = self.index
        text = msgspec.json.encode(Report(index=index, at=self._env.now()))
        await self._client.put(self._keys.snapshot(self._candidate.name), text)
        self._reported_index, self._reported_at = index, self._env.monotonic()

    async def report_snapshots(self) -> None:
        """Report at the start, periodically, and after a failed report; until cancelled."""
        while True:
            is_old = self._env.monotonic() - self._reported_at > REPORT_EVERY_S
            if is_old or self._reported_index != self.index:
                try:
                    await self.report()
                except YurtError as error:
                    log.debug("snapshot report delayed: error=%s", error)
            await self._env.sleep(REPORT_PAUSE_S)

    async def _reports(self) -> dict[str, Report]:
        found = await self._client.range(self._keys.snapshots, self._keys.snapshots_end)
        reports = {row.key[len(self._keys.snapshots) :].decode(): _report_of(row) for row in found.kvs}
        return reports | {self._candidate.name: Report(index=self.index, at=self._env.now())}


def _report_of(row: Message) -> Report:
    """A server's report; raises Conflict for an invalid one, without which the majority cannot be determined."""
    try:
        return msgspec.json.decode(row.value, type=Report)
    except msgspec.DecodeError as error:
        raise Conflict(f"the key {row.key.decode()} in etcd can not be read: {error}") from error
