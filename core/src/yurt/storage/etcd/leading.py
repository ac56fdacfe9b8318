"""Leadership by the epoch in etcd, heartbeats, and the resulting terms.

A term is a write of the key `epoch`; its revision is the fence. Every append compares that revision, so that nothing of
an older term can be stored once a new one has begun, whatever its leader believes. A leader that learns of a later
epoch, that gets no answer for an append, or that etcd does not answer for some seconds, leads no more; it may try
again, with a new epoch.

A heartbeat is a write of the key `alive`. An append renews it, so servers watch `epoch` and `alive` but not `head`,
which changes with each append. An entry that a follower reads is a sign of life too, because leaders of earlier
versions write `alive` only while they append nothing. The watches may be late, so a server reads `lead/` before it
campaigns: it then knows the end of the log, and signs of life that the watches have not brought.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Unavailable, YurtError
from yurt.sdk.value import Value, replace
from yurt.storage.etcd.candidacy import HEARD_S, SILENCE_S, Candidacy, LeaderContact, LeaderObservation, Reason
from yurt.storage.etcd.client import CALL_LIMIT_S, Compacted, EtcdClient, HistoryLost, NoSpace
from yurt.storage.etcd.interruptible_waits import Interrupt
from yurt.storage.etcd.key_layout import Epoch, KeyLayout, LogMark, decode_head, get, is_at, put
from yurt.storage.etcd.leadership_levels import LeadershipLevels
from yurt.storage.etcd.membership import member_status
from yurt.storage.etcd.messages import Message
from yurt.storage.log import Leadership

log = logging.getLogger(__name__)

POLL_S: Final = 0.1
"""The seconds between two decisions while no leader is heard, or while etcd does not answer one."""
PAUSE_MIN_S: Final = 0.01
ALIVE_S: Final = 0.2
"""The seconds between two heartbeats of a leader."""
RENEW_S: Final = 0.1
"""The age of the last heartbeat from which an append renews it: a leader that appends often writes none by itself."""
LOOK_AGE_S: Final = 0.3
"""The age up to which a read of `lead/` suffices for a campaign. While a leader appends, the log's end is reached some
time after the read: the next decision compares with the same end."""
ALIVE_LIMIT_S: Final = 1.0
ANSWER_S: Final = 3.0
"""The seconds without an answer from etcd after which a leader loses its term."""
STATUS_LIMIT_S: Final = 1.0
STATUS_PAUSE_S: Final = 0.5
"""The seconds between two looks at this server's etcd member while the leader is heard; else it looks at each poll."""
FORGOTTEN_S: Final = 2.0
"""The seconds of silence after which a leader is not reported any more."""
RETRY_PAUSE_S: Final = 0.2
NO_LEADER: Final = "this server does not lead"
CLOSED: Final = "the command log is closed"


class Candidate(Value, rename=None):
    """A server that may lead: its name, the endpoint of its etcd member ("": none), and its factor for time-outs.

    A leader must be silent `time_factor` times longer than usual before this server campaigns.
    """

    name: str
    own_endpoint: str = ""
    time_factor: float = 1


class Seen(Value, rename=None):
    """The newest values read of the keys below `lead/`, with their revisions."""

    epoch: Epoch = Epoch()
    epoch_revision: int = 0
    head: LogMark = LogMark()
    head_revision: int = 0
    alive_revision: int = 0

    def with_row(self, row: Message, keys: KeyLayout) -> Seen:
        """A copy with a newer row that was read or watched. Raises ValueError for an invalid row."""
        revision = row.mod_revision
        if row.key == keys.epoch and revision > self.epoch_revision:
            return replace(self, epoch=msgspec.json.decode(row.value, type=Epoch), epoch_revision=revision)
        if row.key == keys.head and revision > self.head_revision:
            return replace(self, head=decode_head(row.value), head_revision=revision)
        if row.key == keys.alive and revision > self.alive_revision:
            return replace(self, alive_revision=revision)
        return self


class EtcdTerm:
    """A term of this server: its number, its fence, and the waits that end with it."""

    def __init__(self, number: int, revision: int, *, head: LogMark, now: float) -> None:
        self.number = number
        self.revision = revision
        self.head = head
        """The end of the log, which only this server can move."""
        self.end = Interrupt()
        self.answered_at = self.alive_at = now
        """The times of etcd's last answer to a write of this term, and to its last heartbeat."""

    def answered(self, now: float, *, is_renewed: bool) -> None:
        """Record that etcd has stored a write of this term, and whether it renewed the heartbeat."""
        self.answered_at = now
        if is_renewed:
            self.alive_at = now


class Leading:
    """Campaigns for one server, maintains its term, and publishes the leader in `levels`.

    `position` is the last index that this server has applied; `on_no_space` is called when etcd has no space left.
    """

    def __init__(
        self,
        client: EtcdClient,
        keys: KeyLayout,
        *,
        candidate: Candidate,
        env: Env,
        position: Callable[[], int],
        on_no_space: Callable[[], None],
    ) -> None:
        self.name = candidate.name
        self.own_endpoint = candidate.own_endpoint
        self.seen = Seen()
        self.term: EtcdTerm | None = None
        self.levels = LeadershipLevels()
        self._client = client
        self._keys = keys
        self.env = env
        self._position = position
        self._on_no_space = on_no_space
        self._candidacy = Candidacy(candidate.name, time_factor=candidate.time_factor)
        self._contact = LeaderContact(env.monotonic())
        self._has_decided = False
        """Whether this server has made its first decision: that one does not wait for the log to be read, so that
        the server that led before its restart leads on at once."""
        self._wake = asyncio.Event()
        """Set when there may be something to decide before the pause of `run` ends."""
        self._own_look = -STATUS_PAUSE_S, False
        """The time of the last look at this server's etcd member, and whether it led."""

    def fence(self, term: EtcdTerm) -> Message:
        """The comparison that the term is still valid."""
        return is_at(self._keys.epoch, term.revision)

    def renewal(self, term: EtcdTerm) -> list[Message]:
        """The write that renews the heartbeat with an append; none while the heartbeat is recent."""
        return [put(self._keys.alive, b"")] if self.env.monotonic() - term.alive_at >= RENEW_S else []

    def has_read(self, revision: int) -> None:
        """Record an entry that was read, with its revision: a sign of life if it is newer than all before."""
        now, heard_at = self.env.monotonic(), self._contact.heard_at
        if self._contact.hear(revision, now) and now - heard_at > FORGOTTEN_S:
            self._publish()

    def learn(self, rows: Sequence[Message]) -> None:
        """Update from keys that were read or watched; older values are ignored."""
        seen = self.seen
        for row in rows:
            try:
                seen = seen.with_row(row, self._keys)
            except (msgspec.DecodeError, ValueError) as error:
                raise Conflict(f"the key {row.key.decode()} in etcd can not be read: {error}") from error
        if seen is self.seen:
            return
        if seen.epoch_revision > self.seen.epoch_revision:
            self._wake.set()
        self.seen = seen
        self._contact.hear(max(seen.epoch_revision, seen.head_revision, seen.alive_revision), self.env.monotonic())
        if self.term is not None and seen.epoch_revision > self.term.revision:
            self.lose(self.term, f"{seen.epoch.server or 'nobody'} leads from now on")
        self._publish()

    def lose(self, term: EtcdTerm, reason: str) -> None:
        """End the term; no effect when another one has begun already."""
        if self.term is not term:
            return
        self.term = None
        self._candidacy.lost(self.env.monotonic(), chance=self.env.random())
        log.info("this server leads no more, its term %d is over: %s", term.number, reason)
        self._publish()
        self._wake.set()
        term.end.raise_()

    def close(self) -> None:
        """End the streams and waits."""
        if self.term is not None:
            self.term.end.raise_()
            self.term = None
        self.levels.close()

    async def look(self, *, timeout_s: float = CALL_LIMIT_S) -> int:
        """Read the keys below `lead/`; returns the revision of the read."""
        asked_at = self.env.monotonic()
        found = await self._client.range(self._keys.lead, self._keys.lead_end, timeout_s=timeout_s)
        self.learn(found.kvs)
        self._contact.looked_at = asked_at
        return int(found.header.revision)

    async def watch(self) -> None:
        """Follow epochs and heartbeats, until cancelled."""
        while True:
            try:
                await self._watch_from(await self.look() + 1)
            except YurtError as error:
                level = logging.DEBUG if isinstance(error, Compacted | Unavailable | HistoryLost) else logging.WARNING
                log.log(level, "who leads is read again: %s", error)
                await self.env.sleep(RETRY_PAUSE_S * (1 + self.env.random()))

    async def run(self) -> None:
        """Campaign, and send heartbeats while leading, until cancelled."""
        while True:
            try:
                if self.term is None:
                    await self._follow()
                else:
                    await self._lead(self.term)
            except NoSpace:
                self._on_no_space()
            except YurtError as error:
                log.debug("etcd: %s", error)
            await self._pause()

    async def campaign(self, reason: Reason) -> None:
        """Try to begin a term, based on the last observation; `term` and `seen` hold the result; raises Unavailable."""
        seen = self.seen
        epoch = Epoch(number=seen.epoch.number + 1, server=self.name)
        compare = [is_at(self._keys.epoch, seen.epoch_revision)]
        if reason == "silence":
            compare += [is_at(self._keys.alive, seen.alive_revision), is_at(self._keys.head, seen.head_revision)]
        look = get(self._keys.lead, self._keys.lead_end)
        success = [put(self._keys.epoch, msgspec.json.encode(epoch)), put(self._keys.alive, b""), look]
        try:
            answer = await self._client.txn(compare, success, [look], timeout_s=self._candidacy.limit_s)
        except YurtError:
            self._candidacy.failed(self.env.monotonic(), chance=self.env.random())
            raise
        now = self.env.monotonic()
        self.learn(answer.responses[-1].response_range.kvs)
        if not answer.succeeded:
            self._candidacy.beaten(now, chance=self.env.random())
        elif self.seen.epoch_revision == answer.header.revision:
            self._candidacy.won(now, chance=self.env.random())
            self.term = EtcdTerm(epoch.number, answer.header.revision, head=self.seen.head, now=now)
            log.info("this server leads, term %d, from index %d (%s)", epoch.number, self.seen.head.index, reason)
            self._publish()

    async def vacate(self, term: EtcdTerm, heir: str) -> bool:
        """Resign in favour of another server; returns whether this server still held the term."""
        self.lose(term, f"it is given {'to ' + heir if heir else 'away'}")
        self._candidacy.resigned(self.env.monotonic())
        epoch = Epoch(number=term.number, heir=heir)
        answer = await self._client.txn([self.fence(term)], [put(self._keys.epoch, msgspec.json.encode(epoch))])
        return bool(answer.succeeded)

    async def _watch_from(self, revision: int) -> None:
        watch = self._client.watch(*self._keys.signs, start_revision=revision)
        async with contextlib.aclosing(watch) as changes:
            async for response in changes:
                self.learn([event.kv for event in response.events])

    async def _pause(self) -> None:
        """Wait until there may be something to decide."""
        timer = self.env.call_later(self._pause_s(), self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        self._wake.clear()

    def _pause_s(self) -> float:
        """The seconds until the next heartbeat is due, or until a follower has something to decide unless it is woken.

        A follower that hears its leader decides nothing before the leader has been silent for a while, or its own
        member leads.
        """
        now = self.env.monotonic()
        if self.term is not None:
            due = self.term.alive_at + ALIVE_S
        elif self.seen.epoch.server in ("", self.name) or self._own_look[1]:
            return POLL_S
        elif self.own_endpoint:
            due = min(self._contact.heard_at + HEARD_S, self._own_look[0] + STATUS_PAUSE_S)
        else:
            due = self._contact.heard_at + min(SILENCE_S * self._candidacy.time_factor, FORGOTTEN_S)
        return max(due - now, PAUSE_MIN_S) if due > now else POLL_S

    async def _follow(self) -> None:
        own_leads = await self._own_leads()
        if self.env.monotonic() - self._contact.heard_at > FORGOTTEN_S:
            await self._look_again()
            self._publish()
        reason = self._candidacy.decide(self._observe(own_leads))
        if reason:
            await self._look_again()
            reason = self._candidacy.decide(self._observe(own_leads))
        self._has_decided = True
        if reason:
            await self.campaign(reason)

    async def _look_again(self) -> None:
        """Read `lead/` unless it was read just now."""
        if self.env.monotonic() - self._contact.looked_at <= LOOK_AGE_S:
            return
        try:
            await self.look(timeout_s=self._candidacy.limit_s)
        except YurtError:
            self._candidacy.failed(self.env.monotonic(), chance=self.env.random())
            self._publish()  # a server that etcd does not answer forgets its leader
            raise

    def _observe(self, own_leads: bool | None) -> LeaderObservation:
        now, seen = self.env.monotonic(), self.seen
        return LeaderObservation(
            now=now,
            leader=seen.epoch.server,
            successor=seen.epoch.heir,
            silent_s=now - self._contact.heard_at,
            is_caught_up=not self._has_decided or self._position() >= seen.head.index,
            own_leads=own_leads,
        )

    async def _lead(self, term: EtcdTerm) -> None:
        if self.env.monotonic() < term.alive_at + ALIVE_S:
            return
        try:
            answer = await self._client.txn([self.fence(term)], [put(self._keys.alive, b"")], timeout_s=ALIVE_LIMIT_S)
        except HistoryLost as error:
            self.lose(term, str(error))
            raise
        except YurtError as error:
            if self.env.monotonic() - term.answered_at >= ANSWER_S:
                self.lose(term, f"etcd has not taken anything for {ANSWER_S:g} s: {error}")
            raise
        if answer.succeeded:
            term.answered(self.env.monotonic(), is_renewed=True)
        else:
            self.lose(term, "another one has begun")

    async def _own_leads(self) -> bool | None:
        """Whether this server's etcd member leads; None without one.

        While a leader is heard the answer may be `STATUS_PAUSE_S` old: followers would ask ten times a second.
        """
        if not self.own_endpoint:
            return None
        now, is_led = self.env.monotonic(), self.seen.epoch.server not in ("", self.name)
        looked_at, has_led = self._own_look
        if is_led and now < self._contact.heard_at + HEARD_S and now < looked_at + STATUS_PAUSE_S:
            return has_led
        self._own_look = now, False
        try:
            status = await member_status(self._client, self.own_endpoint, timeout_s=STATUS_LIMIT_S)
        except YurtError:
            return False
        if any("NOSPACE" in error for error in status.errors):
            self._on_no_space()
        self._own_look = now, status.is_leader
        return status.is_leader

    def _publish(self) -> None:
        """Publish the leader as this server knows it."""
        epoch = self.seen.epoch
        if self.term is not None:
            level = Leadership(is_leader=True, epoch=self.term.number, leader=self.name)
        else:
            is_heard = self.env.monotonic() - self._contact.heard_at <= FORGOTTEN_S
            leader = epoch.server if is_heard and epoch.server != self.name else ""
            level = Leadership(is_leader=False, epoch=epoch.number, leader=leader)
        self.levels.set(level)
