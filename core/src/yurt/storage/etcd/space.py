"""Room in etcd: entries that a majority of servers has in snapshots are deleted, old revisions are compacted.

A server that lags behind what was deleted gets a snapshot from a peer, so at least a majority must have one: then a
server that has it is always among those that can form a cluster.

When etcd's quota is exhausted it stores nothing, neither a new term nor how far a snapshot reaches; so it is not to
come to that. From half of the quota on every server saves snapshots and the log is kept as short as they allow; space
that is free inside a member's file is given back to the disk, by one server at a time and by the leading one last.
Appends are refused when a tenth of the quota is left in any member's file (see `room`), until there is room again.
Should the quota be exhausted nevertheless (it may be another one's etcd, or a smaller quota than before), deleting and
compacting still work, so each server makes room in the member beside it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from yurt.sdk.errors import Conflict, YurtError
from yurt.sdk.value import NANOSECONDS
from yurt.storage.etcd.client import Compacted, EtcdClient, NoSpace
from yurt.storage.etcd.keys import Keys, Report, remove
from yurt.storage.etcd.leading import Leading, Term
from yurt.storage.etcd.members import list_members, member_status, no_space_alarms
from yurt.storage.etcd.messages import Message
from yurt.storage.etcd.reading import LogReader
from yurt.storage.etcd.room import Rooms
from yurt.storage.etcd.turns import Turns
from yurt.storage.log import LogFull

log = logging.getLogger(__name__)

TRIM_INDEXES: Final = 5_000
"""Indexes deleted in one transaction, so that appends get their turn."""
COMPACT_EVERY_S: Final = 300.0
REPORT_PAUSE_S: Final = 1.0
REPORT_EVERY_S: Final = 600.0
GONE_S: Final = 24 * 3600
"""A server that has said nothing for so long is waited for no more, where nobody says who the servers are."""
LOOK_S, LOOK_CROWDED_S = 0.5, 0.2
"""Seconds between two looks at the member beside: usually, and when room may run short."""
LAST_WAIT_S: Final = 10.0
"""For so long at most a leading server lets the others go first with rewriting their files."""
TURN_S, TURN_BYTES_PER_S = 5.0, 32 * 1024 * 1024
"""How long a rewriting may take: some seconds, and as the quota is large."""
ROOM_PAUSE_S: Final = 15.0
"""Seconds between two attempts to make room."""


async def _keep_on() -> None:
    """There is nobody to lead instead."""


class Space:
    """Deletes and compacts, for one server; `snapshot_index` is what that one has on its own disk."""

    def __init__(self, client: EtcdClient, keys: Keys, *, reader: LogReader, leading: Leading, rooms: Rooms) -> None:
        self.snapshot_index = 0
        self._client = client
        self._keys = keys
        self._reader = reader
        self._leading = leading
        self._name, self._own_endpoint, self._env = leading.name, leading.own_endpoint, leading.env
        self._reported_index, self._reported_at = -1, 0.0
        self._rooms = rooms
        limit_s = TURN_S + rooms.quota_bytes / TURN_BYTES_PER_S
        self._turns = Turns(client, keys.turn, name=leading.name, limit_s=limit_s, env=leading.env)
        self._loose_since: float | None = None
        self.is_crowded = asyncio.Event()
        self.hand_over: Callable[[], Awaitable[None]] = _keep_on
        self._is_full = asyncio.Event()
        leading.on_no_space = self._is_full.set
        leading.check_room = self.check_room
        leading.on_stored = reader.on_read = rooms.appended.add

    async def servers(self) -> tuple[str, ...]:
        """The servers that count: those of etcd's members, or with an etcd that stands by itself all that were there
        within a day. A member that has not run yet has no name, and counts.
        """
        if self._own_endpoint:
            return tuple(peer.name for peer in await list_members(self._client) if not peer.is_learner)
        now = self._env.now()
        reports = await self._reports()
        return tuple(sorted(server for server, report in reports.items() if now - report.at < GONE_S * NANOSECONDS))

    def check_room(self, size: int) -> None:
        """Raises LogFull when an entry of so many bytes is not to be appended."""
        quota, now = self._rooms.quota_bytes, self._env.monotonic()
        if quota and self._rooms.is_full(size, now):
            self._rooms.refused(size)
            taken, server = self._rooms.largest(now)
            raise LogFull(
                f"etcd is nearly full ({taken} bytes of {quota} at {server}, compaction needs "
                f"{self._rooms.reserve(now)}), nothing was stored; room is being made"
            )

    async def watch_room(self) -> None:
        """Look how full the member beside is, and have it give back what is free in its file; until cancelled."""
        was_full = False
        while self._rooms.quota_bytes:
            try:
                await self._look()
                was_full = self._tell_full(was_full)
                await self._rewrite_in_turn()
            except NoSpace:
                self._is_full.set()
            except YurtError as error:
                log.debug("etcd does not tell its size: %s", error)
            await self._pause()

    async def wait_rooms_wanted(self) -> None:
        """Return when the others are to be asked how large their files are; never without a quota."""
        if not self._rooms.quota_bytes:
            await asyncio.Event().wait()
        while not self._rooms.is_asking_due(self._env.monotonic()):
            await self._pause()
        self._rooms.asked(self._env.monotonic())

    async def _pause(self) -> None:
        await self._env.sleep(LOOK_CROWDED_S if self._rooms.is_near(self._env.monotonic()) else LOOK_S)

    async def _look(self) -> None:
        self._rooms.look(await member_status(self._client, self._own_endpoint))
        if self._rooms.is_crowded:
            self.is_crowded.set()
        else:
            self.is_crowded.clear()

    def _tell_full(self, was_full: bool) -> bool:
        """Say it once when room is running out; whether it is."""
        now = self._env.monotonic()
        taken, server = self._rooms.largest(now)
        is_full = self._rooms.is_full(0, now)
        if is_full and not was_full:
            log.error(
                "etcd is nearly full, nothing more is appended until there is room: %d bytes of %d at %s; "
                "when this comes again, give it more (etcd { quota_bytes = ... })",
                taken,
                self._rooms.quota_bytes,
                server,
            )
        return is_full

    async def _rewrite_in_turn(self) -> None:
        """Give free space back to the disk, apart from the other servers, and not while this one leads."""
        if not self._rooms.is_loose:
            self._loose_since = None
            return
        now = self._env.monotonic()
        if self._loose_since is None:
            self._loose_since = now
        leads_on = self._rooms.is_another_loose(now) and now - self._loose_since < LAST_WAIT_S
        if self._leading.term is not None and leads_on:
            return
        async with self._turns.turn() as is_own:
            if is_own:
                await self._rewrite()

    async def _rewrite(self) -> None:
        if self._leading.term is not None:
            await self.hand_over()
        self._rooms.rewrite()
        await self._defragment(self._own_endpoint)
        await self._look()

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

    async def compact_as_it_grows(self) -> None:
        """While this server leads, have etcd forget old revisions step by step; until cancelled."""
        while self._rooms.quota_bytes:
            revision = self._rooms.next_compaction(self._env.monotonic())
            if revision and self._leading.term is None:
                self._rooms.compacted(revision, now=self._env.monotonic())  # the leader has it done
            elif revision:
                try:
                    await self._compact(revision)
                except YurtError as error:
                    log.debug("etcd was not compacted: %s", error)
            await self._pause()

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
        self._rooms.compacted(revision, now=self._env.monotonic())

    async def _reports(self) -> dict[str, Report]:
        found = await self._client.range(self._keys.snapshots, self._keys.snapshots_end)
        told = {row.key[len(self._keys.snapshots) :].decode(): _report_of(row) for row in found.kvs}
        return told | {self._name: Report(index=self.snapshot_index, at=self._env.now())}


def _report_of(row: Message) -> Report:
    """Raises Conflict where somebody wrote what is none: a majority can not be made out without it."""
    try:
        return msgspec.json.decode(row.value, type=Report)
    except msgspec.DecodeError as error:
        raise Conflict(f"the key {row.key.decode()} in etcd can not be read: {error}") from error
