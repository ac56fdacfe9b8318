"""Deletes log entries that snapshots of a majority of servers cover, and compacts old etcd revisions."""

from __future__ import annotations

import logging
from typing import Final

from yurt.sdk.errors import Conflict, YurtError
from yurt.storage.etcd.client import Compacted, EtcdClient
from yurt.storage.etcd.key_layout import KeyLayout, remove
from yurt.storage.etcd.leading import EtcdTerm, Leading
from yurt.storage.etcd.quota_usage import EtcdQuotaUsage
from yurt.storage.etcd.reading import EntryReader
from yurt.storage.etcd.snapshot_reports import SnapshotReports

log = logging.getLogger(__name__)

TRIM_INDEXES: Final = 5_000
"""The number of indexes deleted in one transaction, so that appends can run in between."""
COMPACT_EVERY_S: Final = 300.0
RETRY_PAUSE_S: Final = 15.0


class Compaction:
    """Trims the log and compacts etcd, for one server."""

    def __init__(
        self,
        client: EtcdClient,
        keys: KeyLayout,
        *,
        reader: EntryReader,
        leading: Leading,
        reports: SnapshotReports,
        quota_usage: EtcdQuotaUsage,
    ) -> None:
        self._client = client
        self._keys = keys
        self._reader = reader
        self._leading = leading
        self._reports = reports
        self._quota_usage = quota_usage
        self._env = leading.env

    async def trim(self, below: int, *, keep: int) -> None:
        """Delete entries more than `keep` below an index that the majority's snapshots cover; on the leader only."""
        term = self._leading.term
        if term is None:
            return
        revision = await self._delete_below(min(below - keep, await self._reports.majority_index()), term)
        if revision:
            await self._compact(revision)

    async def trim_all(self) -> None:
        """Delete all entries that the majority's snapshots cover, and wait for a full compaction; on any server."""
        await self._delete_below(await self._reports.majority_index(), None)
        await self._compact(await self._revision(), is_waited_for=True)

    async def compact_at_times(self) -> None:
        """While leading, compact revisions that are some minutes old; until cancelled."""
        while True:
            try:
                before = await self._revision()
                await self._env.sleep(COMPACT_EVERY_S)
                if self._leading.term is not None:
                    await self._compact(before)
            except YurtError as error:
                log.debug("etcd was not compacted: %s", error)
                await self._env.sleep(RETRY_PAUSE_S)

    async def compact_as_it_grows(self) -> None:
        """While leading, compact etcd step by step as the log grows; until cancelled."""
        while self._quota_usage.quota_bytes:
            revision = self._quota_usage.next_compaction(self._env.monotonic())
            if revision and self._leading.term is None:
                self._quota_usage.compacted(revision, now=self._env.monotonic())  # the leader has compacted it
            elif revision:
                try:
                    await self._compact(revision)
                except YurtError as error:
                    log.debug("etcd was not compacted: %s", error)
            await self._env.sleep(self._quota_usage.look_pause_s(self._env.monotonic()))

    async def _revision(self) -> int:
        return int((await self._client.range(self._keys.format)).header.revision)

    async def _delete_below(self, bound: int, term: EtcdTerm | None) -> int:
        """Delete entries that end below an index; returns the resulting revision, 0 when there were none."""
        first = await self._reader.first_index()
        if not first or first >= bound:
            return 0
        last_key = await self._reader.entry_key(bound)
        last, revision = self._keys.first_index(last_key), 0
        compare = [] if term is None else [self._leading.fence(term)]
        for edge in range(first + TRIM_INDEXES, last + TRIM_INDEXES, TRIM_INDEXES):
            end = self._keys.entry(min(edge, last))
            answer = await self._client.txn(compare, [remove(self._keys.log, end)])
            if not answer.succeeded:
                raise Conflict("another server leads by now, the log is trimmed there")
            revision = answer.header.revision
        return revision

    async def _compact(self, revision: int, *, is_waited_for: bool = False) -> None:
        try:
            await self._client.compact(revision, is_waited_for=is_waited_for)
        except Compacted as error:
            log.debug("etcd revision is compacted already: %s", error)
        self._quota_usage.compacted(revision, now=self._env.monotonic())
