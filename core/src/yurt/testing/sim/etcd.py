"""A simulated etcd cluster with a member on each server's host: etcd's guarantees, and the faults they allow.

What was acknowledged stays. A call may time out or fail with its change stored or not; only reading tells. While the
leader's member is gone or cut off from most others, nothing is answered, until another one is elected. A member that
is cut off answers nothing but its own status, and its watches stay silent. Watches end for good where what they want
was compacted.

Servers reach it through `EtcdChannel`, in the place of a gRPC channel: the messages are etcd's own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from yurt.storage.etcd.messages import Message, message
from yurt.testing.sim.etcd_store import FOREVER, EtcdError, EtcdStore, is_within
from yurt.testing.sim.loop import PROCESS
from yurt.testing.sim.network import SimNetwork

ELECTION_S = (1.0, 2.5)
WRITE_S, READ_S = (0.0008, 0.004), (0.0003, 0.001)
LOOK_S = 0.1
WATCH_S = (0.0005, 0.003)
VERSION = "3.5.21"
CLIENT_PORT = 2379


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
        self._watches: dict[Watch, None] = {}
        """Those that wait for a change, in the order of their creation."""
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
            async with asyncio.timeout(timeout_s):
                return await self._answer(host, service, name, request)
        except TimeoutError:
            raise _error("DEADLINE_EXCEEDED", "Deadline Exceeded") from None
        except EtcdError as error:
            raise _error(error.code, error.details) from None

    async def _answer(self, host: str, service: str, name: str, request: Message) -> Message:
        process = PROCESS.get()
        if process is not None and process.is_dead:
            await asyncio.Event().wait()
        is_write = (service, name) in (("KV", "Put"), ("KV", "Txn"), ("KV", "DeleteRange"))
        await asyncio.sleep(self._chance.uniform(*(WRITE_S if is_write else READ_S)) + (self.slow_s if is_write else 0))
        if host in self.down:
            raise _error("UNAVAILABLE", "failed to connect to all addresses")
        while not self.is_serving(host):  # noqa: ASYNC110 - several conditions on virtual time
            await asyncio.sleep(LOOK_S)
        is_lost = is_write and self._chance.random() < self.lost_answers
        if is_lost and self._chance.random() < 0.5:
            await self._never()
        if is_write and self.has_no_space:
            raise _error("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded")
        answer = self._carry_out(host, service, name, request)
        if is_lost:
            await self._never()
        await asyncio.sleep(self._chance.uniform(*READ_S))
        if host in self.down:
            raise _error("UNAVAILABLE", "Socket closed")
        return answer

    async def _own_status(self, host: str) -> Message:
        await asyncio.sleep(self._chance.uniform(*READ_S))
        process = PROCESS.get()
        if process is not None and process.is_dead:
            await asyncio.Event().wait()
        if host in self.down:
            raise _error("UNAVAILABLE", "failed to connect to all addresses")
        return self._status(host)

    async def _never(self) -> None:
        """Leave the outcome of a call unknown: it times out, or etcd answers that it cannot tell."""
        if self._chance.random() < 0.5:
            await asyncio.sleep(self._chance.uniform(0.05, 1.0))
            raise _error("UNAVAILABLE", "etcdserver: request timed out, possibly due to connection lost")
        await asyncio.Event().wait()

    def _carry_out(self, host: str, service: str, name: str, request: Message) -> Message:
        if service == "KV":
            before = self.store.revision
            answer = self.store.call(name, request)
            answer.header.member_id = self._member_id(host)
            answer.header.raft_term = self.term
            if self.store.revision != before:
                self._notify(before)
                self._on_write(self, host, before)
            return answer
        if (service, name) == ("Cluster", "MemberList"):
            members = [
                message("Member", ID=self._member_id(each), name=self.names.get(each, "")) for each in self.hosts
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
        target = next((each for each in self.hosts if self._member_id(each) == request.targetID), "")
        if not target or not self.is_joined(host, target):
            raise _error("UNAVAILABLE", "etcdserver: request timed out, leader transfer took too long")
        self.lead(target)
        return message("MoveLeaderResponse", header=self._header(host))

    def _alarm(self, host: str, request: Message) -> Message:
        if request.action == 2:
            self.has_no_space = False
        alarms = [message("AlarmMember", memberID=self._member_id(host), alarm=1)] if self.has_no_space else []
        return message("AlarmResponse", header=self._header(host), alarms=alarms)

    def _member_id(self, host: str) -> int:
        return 101 + self.hosts.index(host)

    def _header(self, host: str) -> Message:
        return message(
            "ResponseHeader", revision=self.store.revision, member_id=self._member_id(host), raft_term=self.term
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
            leader=self._member_id(self.leader) if is_serving else 0,
            raftTerm=self.term,
            raftIndex=self.store.revision,
            raftAppliedIndex=self.store.revision,
            errors=["memberID:1 alarm:NOSPACE"] if self.has_no_space else [],
        )

    def _notify(self, before: int) -> None:
        """Wake the watches of the keys changed after a revision."""
        changed = [event.key for event in self.store.events_after(before, b"", FOREVER)]
        for watch in self._watches:
            if any(is_within(key, watch.key, watch.range_end) for key in changed):
                watch.moved.set()
            elif not watch.moved.is_set():
                watch.seen = self.store.revision

    async def watch(self, host: str, create: Message) -> AsyncIterator[Message]:
        """The responses of a watch at a member."""
        await asyncio.sleep(self._chance.uniform(*READ_S))
        if host in self.down:
            raise _error("UNAVAILABLE", "failed to connect to all addresses")
        yield message("WatchResponse", header=self._header(host), created=True)
        watch = Watch(create, create.start_revision - 1 if create.start_revision else self.store.revision)
        self._watches[watch] = None
        try:
            while host not in self.down:
                if watch.seen + 1 < self.store.compacted:
                    yield message("WatchResponse", canceled=True, compact_revision=self.store.compacted)
                    return
                if not self.is_serving(host):
                    await asyncio.sleep(LOOK_S)
                elif found := self._changes_for(watch):
                    yield message("WatchResponse", header=self._header(host), events=found)
                else:
                    await watch.moved.wait()
                    await asyncio.sleep(self._chance.uniform(*WATCH_S))
        finally:
            del self._watches[watch]
        raise _error("UNAVAILABLE", "Socket closed")

    def _changes_for(self, watch: Watch) -> list[Message]:
        """The changes that a watch has not received; marks them as received."""
        watch.moved.clear()
        found = [event.message for event in self.store.events_after(watch.seen, watch.key, watch.range_end)]
        watch.seen = max(watch.seen, self.store.revision)
        return found

    def fail_host(self, host: str) -> None:
        """Take a member down with its host."""
        self.down.add(host)
        for watch in self._watches:
            watch.moved.set()


class Watch:
    """The key range of a watch, and the revision up to which it has received all changes."""

    def __init__(self, create: Message, seen: int) -> None:
        self.key = create.key
        self.range_end = create.range_end
        self.seen = seen
        self.moved = asyncio.Event()
        """Set when something that it wants has changed."""


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
