"""A simulated etcd cluster with a member on each server's host: etcd's guarantees, and the faults they allow.

What was acknowledged stays. A call may time out or fail with its change stored or not; only reading tells. While the
leader's member is gone or cut off from most others, nothing is answered, until another one is elected. A member that
is cut off answers nothing but its own status, and its watches stay silent. Watches end for good where what they want
was compacted.

Servers reach it through `EtcdChannel`, in the place of a gRPC channel: the messages are etcd's own.
"""

from __future__ import annotations

import asyncio
import contextvars
import math
import random
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc
import grpc.aio

from yurt.storage.etcd.messages import Message, message
from yurt.testing.sim.etcd_store import EtcdError, EtcdStore, is_within
from yurt.testing.sim.loop import PROCESS
from yurt.testing.sim.network import SimNetwork

ELECTION_S = (1.0, 2.5)
WRITE_S, READ_S = (0.0008, 0.004), (0.0003, 0.001)
LOOK_S = 0.1
WATCH_S = (0.0005, 0.003)
VERSION = "3.5.21"
CLIENT_PORT = 2379
WRITES = frozenset({"Put", "Txn", "DeleteRange"})
SHARED_RESPONSES_MAX = 8


def _ignore(*_: object) -> None:
    pass


class SimEtcd:
    """The cluster; `hosts` are the addresses of its members in the order of their ids.

    `on_write` is called after each write with the cluster, the host of the member that was asked, and the revision
    before.
    """

    def __init__(
        self,
        network: SimNetwork,
        hosts: tuple[str, ...],
        seed: int,
        *,
        on_write: Callable[[SimEtcd, str, int], None] = _ignore,
    ) -> None:
        self.store = EtcdStore()
        self.hosts = hosts
        self.names: dict[str, str] = {}
        """The name of each member's server."""
        self.down: set[str] = set()
        """Members whose host is gone."""
        self.lost_answers = 0.0
        """The share of writes that are carried out, or not, without an answer."""
        self.slow_s = 0.0
        """Additional seconds of each write, as of a disk that hardly answers."""
        self.has_no_space = False
        self.leader = hosts[0]
        self.term = 2
        self.calls = 0
        self._on_write = on_write
        self._network = network
        self._chance = random.Random(f"etcd {seed}")
        self._election_at = 0.0
        self._member_ids = {host: 101 + at for at, host in enumerate(hosts)}
        self._watched: dict[tuple[bytes, bytes], WatchedRange] = {}
        """The ranges of the open watches, in the order of their first watch."""
        self._statuses: dict[tuple[object, ...], Message] = {}
        """The answers about the present revision, by what they say: most of them say the same."""

    def channel(self, endpoint: str) -> EtcdChannel:
        """A connection to the member at an endpoint."""
        return EtcdChannel(self, endpoint.partition("://")[2].rpartition(":")[0])

    def endpoint(self, host: str) -> str:
        """The endpoint of the member on a host."""
        return f"http://{host}:{CLIENT_PORT}"

    # Who can do what.

    def is_joined(self, one: str, other: str) -> bool:
        """Whether two members can reach each other."""
        is_cut = self._network.is_cut(one, other) or self._network.is_cut(other, one)
        return not is_cut and not {one, other} & self.down

    def has_majority(self, host: str) -> bool:
        """Whether a member can reach a majority, itself included."""
        return host not in self.down and sum(self.is_joined(host, each) for each in self.hosts) > len(self.hosts) // 2

    def is_serving(self, host: str) -> bool:
        """Whether a member can serve calls now; may elect another leader."""
        if not self.down and not self._network.cut:
            return True
        if not self.has_majority(self.leader):
            self._elect()
        return self.has_majority(self.leader) and self.is_joined(host, self.leader)

    def _elect(self) -> None:
        now = self._network.loop.time()
        if not self._election_at:
            self._election_at = now + self._chance.uniform(*ELECTION_S)
        if now < self._election_at:
            return
        self._election_at = 0.0
        able = [host for host in self.hosts if self.has_majority(host)]
        if able:
            self.lead(self._chance.choice(able))

    def lead(self, host: str) -> None:
        """Make a member the leader."""
        self.leader, self.term = host, self.term + 1

    # Calls.

    async def ask(self, host: str, service: str, name: str, request: Message, timeout_s: float) -> Message:
        """Send one call of the running process to a member; raises AioRpcError."""
        self.calls += 1
        if name == "Status":  # asked many times a second, and answered by the member alone
            return await self._own_status(host)
        try:
            return await self._answer(host, service, name, request, self._network.loop.time() + timeout_s)
        except TimeoutError:
            raise _error("DEADLINE_EXCEEDED", "Deadline Exceeded") from None
        except EtcdError as error:
            raise _error(error.code, error.details) from None

    async def _answer(self, host: str, service: str, name: str, request: Message, deadline: float) -> Message:
        process = PROCESS.get()
        if process is not None and process.is_dead:
            await self._wait(math.inf, deadline)
        is_write = name in WRITES
        delay_s = self._chance.uniform(*WRITE_S) + self.slow_s if is_write else self._chance.uniform(*READ_S)
        await self._wait(delay_s, deadline)
        if host in self.down:
            raise _error("UNAVAILABLE", "failed to connect to all addresses")
        while not self.is_serving(host):
            await self._wait(LOOK_S, deadline)
        is_lost = is_write and self._chance.random() < self.lost_answers
        if is_lost and self._chance.random() < 0.5:
            await self._never(deadline)
        if is_write and self.has_no_space:
            raise _error("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded")
        answer = self._carry_out(host, service, name, request)
        if is_lost:
            await self._never(deadline)
        await self._wait(self._chance.uniform(*READ_S), deadline)
        if host in self.down:
            raise _error("UNAVAILABLE", "Socket closed")
        return answer

    async def _wait(self, seconds: float, deadline: float) -> None:
        """Let time pass; raises TimeoutError at the deadline of a call, or after it if the process was paused.

        `asyncio.timeout` would make several objects for each call.
        """
        loop = self._network.loop
        left_s = deadline - loop.time()
        await asyncio.sleep(min(seconds, left_s))
        if seconds >= left_s or loop.time() >= deadline:
            raise TimeoutError

    async def _own_status(self, host: str) -> Message:
        await asyncio.sleep(self._chance.uniform(*READ_S))
        process = PROCESS.get()
        if process is not None and process.is_dead:
            await asyncio.Event().wait()
        if host in self.down:
            raise _error("UNAVAILABLE", "failed to connect to all addresses")
        return self._status(host)

    async def _never(self, deadline: float) -> None:
        """Leave the outcome of a call unknown: it times out, or etcd answers that it cannot tell."""
        if self._chance.random() < 0.5:
            await self._wait(self._chance.uniform(0.05, 1.0), deadline)
            raise _error("UNAVAILABLE", "etcdserver: request timed out, possibly due to connection lost")
        await self._wait(math.inf, deadline)

    def _carry_out(self, host: str, service: str, name: str, request: Message) -> Message:
        if service == "KV":
            before = self.store.revision
            answer = self.store.call(name, request)
            header = answer.header
            header.member_id, header.raft_term = self._member_ids[host], self.term
            if self.store.revision != before:
                self._notify(before)
                self._on_write(self, host, before)
            return answer
        if (service, name) == ("Cluster", "MemberList"):
            members = [
                message("Member", ID=self._member_ids[each], name=self.names.get(each, "")) for each in self.hosts
            ]
            return message("MemberListResponse", header=self._header(host), members=members)
        if (service, name) == ("Maintenance", "MoveLeader"):
            return self._move(host, request)
        if (service, name) == ("Maintenance", "Alarm"):
            return self._alarm(host, request)
        raise _error("UNIMPLEMENTED", f"the simulated etcd has no {service}.{name}")

    def _move(self, host: str, request: Message) -> Message:
        if host != self.leader:
            raise _error("FAILED_PRECONDITION", "etcdserver: not leader")
        target = next((each for each in self.hosts if self._member_ids[each] == request.targetID), "")
        if not target or not self.is_joined(host, target):
            raise _error("UNAVAILABLE", "etcdserver: request timed out, leader transfer took too long")
        self.lead(target)
        return message("MoveLeaderResponse", header=self._header(host))

    def _alarm(self, host: str, request: Message) -> Message:
        if request.action == 2:
            self.has_no_space = False
        alarms = [message("AlarmMember", memberID=self._member_ids[host], alarm=1)] if self.has_no_space else []
        return message("AlarmResponse", header=self._header(host), alarms=alarms)

    def _header(self, host: str) -> Message:
        return message(
            "ResponseHeader", revision=self.store.revision, member_id=self._member_ids[host], raft_term=self.term
        )

    def _status(self, host: str) -> Message:
        is_serving = self.is_serving(host)
        says = (host, self.leader, self.term, self.store.revision, is_serving, self.has_no_space)
        if says not in self._statuses:
            if len(self._statuses) > len(self.hosts):
                self._statuses.clear()
            self._statuses[says] = self._status_message(host, is_serving=is_serving)
        return self._statuses[says]

    def _status_message(self, host: str, *, is_serving: bool) -> Message:
        return message(
            "StatusResponse",
            header=self._header(host),
            version=VERSION,
            leader=self._member_ids[self.leader] if is_serving else 0,
            raftTerm=self.term,
            raftIndex=self.store.revision,
            raftAppliedIndex=self.store.revision,
            errors=["memberID:1 alarm:NOSPACE"] if self.has_no_space else [],
        )

    def _notify(self, before: int) -> None:
        """Wake the watches of the keys changed after a revision."""
        changed = self.store.keys_changed_after(before)
        for watched in self._watched.values():
            if any(is_within(key, watched.key, watched.range_end) for key in changed):
                for watch in watched.change(before, self.store.revision):
                    watch.wake(self._chance.uniform(*WATCH_S))

    async def watch(self, host: str, create: Message) -> AsyncIterator[Message]:
        """The responses of a watch at a member."""
        await asyncio.sleep(self._chance.uniform(*READ_S))
        if host in self.down:
            raise _error("UNAVAILABLE", "failed to connect to all addresses")
        yield message("WatchResponse", header=self._header(host), created=True)
        bounds = create.key, create.range_end
        watched = self._watched.setdefault(bounds, WatchedRange(*bounds, self.store.revision))
        watch = Watch(create.start_revision - 1 if create.start_revision else self.store.revision)
        watched.watches[watch] = None
        is_compacted = watch.seen + 1 < self.store.compacted
        try:
            while host not in self.down:
                if is_compacted or watched.is_compacted_for(watch, self.store.compacted):
                    yield message("WatchResponse", canceled=True, compact_revision=self.store.compacted)
                    return
                if not self.is_serving(host):
                    await asyncio.sleep(LOOK_S)
                elif found := watched.changes_for(watch, self.store):
                    yield found
                else:
                    await watch.wait_change()
        finally:
            del watched.watches[watch]
            if not watched.watches:
                del self._watched[bounds]
        raise _error("UNAVAILABLE", "Socket closed")

    def fail_host(self, host: str) -> None:
        """Take a member down with its host."""
        self.down.add(host)
        for watched in self._watched.values():
            for watch in watched.watches:
                watch.wake(0.0)


class Watch:
    """One watch, and the revision up to which it has received all changes."""

    def __init__(self, seen: int) -> None:
        self.seen = seen
        self._waiter: asyncio.Future[None] | None = None
        self._context = contextvars.copy_context()
        """That of the watching process: a paused process receives nothing."""

    async def wait_change(self) -> None:
        """Return after `wake`."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def wake(self, delay_s: float) -> None:
        """End the wait after a delay; does nothing if the watch does not wait or its end is near already."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            asyncio.get_running_loop().call_later(delay_s, _end, waiter, context=self._context)


class WatchedRange:
    """A range of keys and its watches, which share responses: servers watch the same two ranges.

    Therefore the header of a response with events names no member.
    """

    def __init__(self, key: bytes, range_end: bytes, revision: int) -> None:
        self.key = key
        self.range_end = range_end
        self.watches: dict[Watch, None] = {}
        """In the order of their creation."""
        self._changed_at = revision
        """The revision of the last change; when the first watch begins, the present one, for it is unknown."""
        self._responses: dict[tuple[int, int], Message | None] = {}
        """By the revisions after which they begin and of their last change."""

    def change(self, before: int, revision: int) -> Iterable[Watch]:
        """Record the first change after the revision `before`; returns the watches."""
        for watch in self.watches:
            if watch.seen >= self._changed_at:
                watch.seen = max(watch.seen, before)
        self._changed_at = revision
        return self.watches

    def is_compacted_for(self, watch: Watch, compacted: int) -> bool:
        """Whether changes that a watch has not received may be gone."""
        return watch.seen < self._changed_at and watch.seen + 1 < compacted

    def changes_for(self, watch: Watch, store: EtcdStore) -> Message | None:
        """The response with the changes that a watch has not received, None without any; marks them as received."""
        if watch.seen >= self._changed_at:
            return None
        bounds = watch.seen, self._changed_at
        if bounds not in self._responses:
            if len(self._responses) >= SHARED_RESPONSES_MAX:
                self._responses.clear()
            events = [event.message for event in store.events_after(watch.seen, self.key, self.range_end)]
            header = {"revision": store.revision}
            self._responses[bounds] = message("WatchResponse", header=header, events=events) if events else None
        watch.seen = self._changed_at
        return self._responses[bounds]


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class EtcdChannel:
    """A connection to one member, as `grpc.aio.Channel` is used by `EtcdClient`."""

    def __init__(self, etcd: SimEtcd, host: str) -> None:
        self._etcd = etcd
        self._host = host

    def unary_unary(self, path: str, **_options: Any) -> Callable[..., Any]:
        """A call with one answer."""
        place, _, name = path.rpartition("/")
        service = place.rpartition(".")[2]

        async def call(request: Message, *, timeout: float) -> Message:
            return await self._etcd.ask(self._host, service, name, request, timeout)

        return call

    def stream_stream(self, _: str, **_options: Any) -> Callable[..., WatchCall]:
        """A watch."""

        def call(*, metadata: Any = None) -> WatchCall:
            return WatchCall(self._etcd, self._host)

        return call

    async def close(self) -> None:
        """Nothing is held."""


class WatchCall:
    """An open watch."""

    def __init__(self, etcd: SimEtcd, host: str) -> None:
        self._etcd = etcd
        self._host = host
        self._create: Message = None

    async def write(self, request: Message) -> None:
        """Send the watch request."""
        self._create = request.create_request

    def __aiter__(self) -> AsyncIterator[Message]:
        return self._etcd.watch(self._host, self._create)

    def cancel(self) -> None:
        """End the watch; its reader has stopped already."""


def _error(code: str, details: str) -> grpc.aio.AioRpcError:
    empty = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode[code], empty, empty, details=details)
