"""Room in etcd: entries that a majority of servers has in snapshots are deleted, old revisions are compacted.

A server that lags behind what was deleted gets a snapshot from a peer, so at least a majority must have one: then a
server that has it is always among those that can form a cluster.

When etcd's quota is exhausted it stores nothing, neither a new term nor how far a snapshot reaches; so it is not to
come to that. From half of the quota on every server saves snapshots and the log is kept as short as they allow; space
that is free inside a member's file is given back to the disk. Appends are refused when a tenth of the quota is left,
until there is room again. Should the quota be exhausted nevertheless (it may be another one's etcd, or a smaller quota
than before), deleting and compacting still work, so each server makes room in the member beside it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, YurtError
from yurt.sdk.value import NANOSECONDS
from yurt.storage.etcd.client import Compacted, EtcdClient
from yurt.storage.etcd.keys import Keys, Report, remove
from yurt.storage.etcd.leading import Leading, Term
from yurt.storage.etcd.members import list_members, member_status, no_space_alarms
from yurt.storage.etcd.reading import LogReader
from yurt.storage.log import LogFull

log = logging.getLogger(__name__)

TRIM_INDEXES: Final = 5_000
"""Indexes deleted in one transaction, so that appends get their turn."""
COMPACT_EVERY_S: Final = 300.0
REPORT_PAUSE_S: Final = 1.0
REPORT_EVERY_S: Final = 600.0
GONE_S: Final = 24 * 3600
"""A server that has said nothing for so long is waited for no more, where nobody says who the servers are."""
CROWDED, LARGE, FULL = 0.5, 0.75, 0.9
"""Parts of the quota: from where the log is kept short, a file is rewritten that is not dense, appends are refused."""
DENSE: Final = 0.75
"""A file of which a larger part is in use is not worth being rewritten."""
GROWTH: Final = 2
"""Bytes that an entry's byte may take in the file until it is looked at again."""
LOOK_S: Final = 0.5
REWRITE_PAUSE_S: Final = 5.0
"""Up to so many seconds apart members rewrite their files: they answer nothing meanwhile."""
ROOM_PAUSE_S: Final = 15.0
"""Seconds between two attempts to make room."""


async def _keep_on() -> None:
    """There is nobody to lead instead."""


class Space:
    """Deletes and compacts, for one server; `snapshot_index` is what that one has on its own disk."""

    def __init__(self, client: EtcdClient, keys: Keys, *, reader: LogReader, leading: Leading, env: Env) -> None:
        self.snapshot_index = 0
        self._client = client
        self._keys = keys
        self._reader = reader
        self._leading = leading
        self._name, self._own_endpoint = leading.name, leading.own_endpoint
        self._env = env
        self._reported_index, self._reported_at = -1, 0.0
        self.quota_bytes = 0
        self.is_crowded = asyncio.Event()
        self.hand_over: Callable[[], Awaitable[None]] = _keep_on
        self._size = self._in_use = self._counted_from = 0
        self._counted_in: Term | None = None
        self._is_full = asyncio.Event()
        leading.on_no_space = self._is_full.set

    async def servers(self) -> tuple[str, ...]:
        """The servers that count: those of etcd's members, or with an etcd that stands by itself all that were there
        within a day. A member that has not run yet has no name, and counts.
        """
        if self._own_endpoint:
            return tuple(peer.name for peer in await list_members(self._client) if not peer.is_learner)
        now = self._env.now()
        reports = await self._reports()
        return tuple(sorted(server for server, report in reports.items() if now - report.at < GONE_S * NANOSECONDS))

    @property
    def size(self) -> int:
        """How much of the quota is taken: bytes of the file, and what may have been added since it was looked at.

        What is free inside the file is not counted on: an entry takes pages that lie side by side, and those of deleted
        ones are free only some transactions later.
        """
        term = self._leading.term
        added = term.stored_bytes - self._counted_from if term is not None and term is self._counted_in else 0
        return self._size + GROWTH * added

    def check_room(self) -> None:
        """Raises LogFull when nothing more is to be appended."""
        if self.quota_bytes and self.size >= FULL * self.quota_bytes:
            raise LogFull(
                f"etcd is nearly full ({self.size} bytes of {self.quota_bytes}), nothing was stored; room is being made"
            )

    async def watch_room(self) -> None:
        """Look how full the member beside is, and have it give back what is free in its file; until cancelled."""
        was_full = False
        while self.quota_bytes and self._own_endpoint:
            try:
                await self._look()
                is_full = self.size >= FULL * self.quota_bytes
                if is_full and not was_full:
                    log.error(
                        "etcd is nearly full, nothing more is appended until there is room: %d bytes of %d; "
                        "when this comes again, give it more (etcd { quota_bytes = ... })",
                        self.size,
                        self.quota_bytes,
                    )
                was_full = is_full
                if self._size >= LARGE * self.quota_bytes and self._in_use <= DENSE * self._size:
                    await self._rewrite()
            except YurtError as error:
                log.debug("etcd does not tell its size: %s", error)
            await self._env.sleep(LOOK_S)

    async def _look(self) -> None:
        term = self._leading.term
        before = term.stored_bytes if term is not None else 0
        status = await member_status(self._client, self._own_endpoint)
        self._size, self._in_use = status.size, status.size_in_use
        self._counted_in, self._counted_from = term, before
        if self._in_use >= CROWDED * self.quota_bytes:
            self.is_crowded.set()
        else:
            self.is_crowded.clear()

    async def _rewrite(self) -> None:
        """Give free space back to the disk, apart from the other servers, and not while this one leads."""
        await self._env.sleep(self._env.random() * REWRITE_PAUSE_S)
        if self._leading.term is not None:
            await self.hand_over()
        await self._defragment(self._own_endpoint)

    async def report(self) -> None:
        """Say how far this server's snapshot reaches; raises Unavailable."""
        index = self.snapshot_index
        text = msgspec.json.encode(Report(index=index, at=self._env.now()))
        await self._client.put(self._keys.snapshot(self._name), text)
        self._reported_index, self._reported_at = index, self._env.monotonic()

    async def report_snapshots(self) -> None:
        """Say it at first, at times, and whenever it could not be said at once; until cancelled."""
        while True:
            is_old = self._env.monotonic() - self._reported_at > REPORT_EVERY_S
            if is_old or self._reported_index != self.snapshot_index:
                try:
                    await self.report()
                except YurtError as error:
                    log.debug("the snapshot's index is told later: %s", error)
            await self._env.sleep(REPORT_PAUSE_S)

    async def majority_index(self) -> int:
        """The highest index up to which a majority of servers has the state on disk."""
        reports, nothing = await self._reports(), Report(index=0, at=0)
        reached = sorted((reports.get(server, nothing).index for server in await self.servers()), reverse=True)
        return reached[len(reached) // 2] if reached else 0

    async def trim(self, below: int, *, keep: int) -> None:
        """Delete what lies more than `keep` below an index and below what a majority has; only the leader does."""
        term = self._leading.term
        if term is None:
            return
        revision = await self._delete_below(min(below - keep, await self.majority_index()), term)
        if revision:
            await self._compact(revision)

    async def compact_at_times(self) -> None:
        """While this server leads, forget revisions of etcd that are some minutes old; until cancelled."""
        while True:
            try:
                before = (await self._client.range(self._keys.format)).header.revision
                await self._env.sleep(COMPACT_EVERY_S)
                if self._leading.term is not None:
                    await self._compact(before)
            except YurtError as error:
                log.debug("etcd was not compacted: %s", error)
                await self._env.sleep(ROOM_PAUSE_S)

    async def make_room_when_full(self) -> None:
        """When the quota is exhausted, delete, compact, defragment and take the alarm back; until cancelled."""
        while True:
            await self._is_full.wait()
            log.error(
                "etcd's quota is exhausted, it stores nothing more; room is made by deleting what a majority has in "
                "snapshots. When this comes again, give etcd a larger quota or its disk more space"
            )
            try:
                await self._make_room()
            except YurtError as error:
                log.error("no room could be made in etcd, it is tried again: %s", error)
            await self._env.sleep(ROOM_PAUSE_S)
            self._is_full.clear()

    async def _make_room(self) -> None:
        await self._delete_below(await self.majority_index(), None)
        await self._compact((await self._client.range(self._keys.format)).header.revision, is_waited_for=True)
        endpoints = (self._own_endpoint,) if self._own_endpoint else self._client.endpoints
        own_ids = set()
        for endpoint in endpoints:
            own_ids.add(await self._defragment(endpoint))
        for alarm in await no_space_alarms(self._client):
            if not self._own_endpoint or alarm.memberID in own_ids:
                await self._client.disarm(alarm)

    async def _defragment(self, endpoint: str) -> int:
        """Have a member rewrite its file; its id."""
        before = await member_status(self._client, endpoint)
        await self._client.defragment(endpoint)
        after = await member_status(self._client, endpoint)
        log.warning("etcd at %s was defragmented: %d bytes before, %d now", endpoint, before.size, after.size)
        return after.member_id

    async def _delete_below(self, bound: int, term: Term | None) -> int:
        """Delete the entries that end below an index; the revision after it, 0 when there was nothing to do."""
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
            log.debug("%s", error)

    async def _reports(self) -> dict[str, Report]:
        found = await self._client.range(self._keys.snapshots, self._keys.snapshots_end)
        told = {
            row.key[len(self._keys.snapshots) :].decode(): msgspec.json.decode(row.value, type=Report)
            for row in found.kvs
        }
        return told | {self._name: Report(index=self.snapshot_index, at=self._env.now())}
