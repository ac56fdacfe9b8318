"""Keeps the records of the servers: asks every other server for its news, answers theirs, and tells who is there.

Every server asks every other one each second; few machines are servers, so nothing cleverer is needed. Each asks over
a connection of its own, on the port that Nomad calls `serf`. When something changed, it is told at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Protocol, TypeVar

from yurt import __version__
from yurt.agent.cluster.records import News, Records
from yurt.agent.cluster.security import ServerSecurity
from yurt.rpc.contract import contract_of
from yurt.rpc.dialling import Dialler
from yurt.rpc.frames import Hello, Welcome
from yurt.rpc.link import Link
from yurt.rpc.listener import Caller, Counts, Listener, Session
from yurt.rpc.peer import Served
from yurt.rpc.proxy import far_port
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import Conflict, NotFound, PermissionDenied, Unavailable, YurtError
from yurt.sdk.value import Value, no_entries, replace
from yurt.structs.member import ALIVE, FAILED, LEAVING, LEFT, Member

log = logging.getLogger(__name__)

ASK_INTERVAL_S = 1.0
ASK_LIMIT_S = 2.0
"""How long one exchange may take."""
JOIN_LIMIT_S = 5.0
"""How long a first exchange may take, the connection included."""
LOOK_INTERVAL_S = 0.5
"""How often statuses that follow from silence are looked at."""
GOODBYE_LIMIT_S = 2.0
PORT = "members"


class Admission(Value):
    """How a server that was admitted starts its etcd member: every member's name and address."""

    cluster: Mapping[str, str] = no_entries()
    by_tls: tuple[str, ...] | None = None
    """Those that are reached by TLS; None from a version that takes all of them to speak as it does itself."""


class MembersPort(Protocol):
    """What servers ask each other on the port of the membership."""

    async def exchange(self, news: News) -> News:
        """Tell what one knows, and hear what the other one knows."""
        ...

    async def admit(self, member: Member) -> Admission:
        """Take a server without data into the cluster; raises Unavailable or Conflict with the reason."""
        ...


MEMBERS = contract_of(MembersPort)
T = TypeVar("T")
Ask = Callable[[MembersPort], Awaitable[T]]
Admit = Callable[[Member], Awaitable[Admission]]


async def _admits_nobody(member: Member) -> Admission:
    raise Unavailable("this server is not part of a cluster yet")


class Membership:
    """The servers that this one knows; the `Directory` of the other parts."""

    def __init__(self, own: Member, *, env: Env, security: ServerSecurity, admit: Admit = _admits_nobody) -> None:
        self.run_id = env.uuid()
        self.reports: dict[str, News] = {}
        self.trailing: dict[str, int] = {}
        """How far each server was behind this one when it told its index."""
        self.founding: Mapping[str, str] = {}
        self.awaited: tuple[str, ...] = ()
        self.met: tuple[str, ...] = ()
        self.applied_index: Callable[[], int] = lambda: 0
        self.admit = admit
        self._records = Records(own=replace(own, incarnation=env.now() // 1_000_000))
        self._env = env
        self._security = security
        self._listeners: list[Callable[[], None]] = []
        self._shown: tuple[Member, ...] = self.members()
        self._status_since: dict[str, float] = {own.name: env.monotonic()}
        self._pulse = asyncio.Event()
        self._sessions: Counter[tuple[str, str]] = Counter()
        self._contacts: dict[str, tuple[str, asyncio.Task[None]]] = {}
        self._listener = Listener(
            accept=self._accept, welcome=Welcome(version=__version__, region=own.region, name=own.name)
        )

    # What the other parts read.

    @property
    def own(self) -> Member:
        """This server, as it tells of itself."""
        return self._records.own

    def members(self) -> tuple[Member, ...]:
        """All servers by name, with the statuses that this one sees."""
        return self._records.members(self._env.monotonic())

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Be called after each change of what `members` answers."""
        self._listeners.append(on_change)

    def run_of(self, name: str) -> str:
        """The run identifier that a server sent over the serf port; "" when it has sent none."""
        return self.reports[name].run if name in self.reports else ""

    def silent_s(self, name: str) -> float:
        """How long ago a server was heard last; 0 for this one."""
        seen = self._records.others.get(name)
        return 0.0 if seen is None else self._env.monotonic() - seen.heard_at

    def index_of(self, name: str) -> int:
        """The last index that a server has told."""
        if name == self.own.name:
            return self.applied_index()
        return self.reports[name].index if name in self.reports else 0

    def status_age_s(self, name: str) -> float:
        """For how long this server has seen the status that a server has now."""
        now = self._env.monotonic()
        return now - self._status_since.get(name, now)

    async def wait_news(self, limit_s: float) -> None:
        """Wait until something about the servers changes, or the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._pulse.wait()

    # Changes from this server.

    def change_own(self, **changes: object) -> None:
        """Tell the others something new about this server."""
        self._take(self._records.with_own(**changes))

    def tell(self) -> None:
        """Tell the others at once what is not in the records: what is founded."""
        pulse, self._pulse = self._pulse, asyncio.Event()
        pulse.set()

    def force_leave(self, name: str, *, forget: bool) -> None:
        """Say of a server that it has left; raises NotFound, or Conflict for one that is there."""
        known = {each.name: each for each in self.members()}
        if name not in known:
            raise NotFound(f'no server "{name}" is known; `yurt server members` lists them')
        if known[name].status not in (FAILED, LEFT):
            raise Conflict(f"server {name} is {known[name].status}; stop its agent before you force it to leave")
        self._take(self._records.forced_out(name, self._env.monotonic(), forget=forget))

    # Listening.

    def count_in(self, metrics: Counts) -> None:
        """Count connections to this port where those of clients are counted."""
        self._listener.metrics = metrics

    async def start(self, address: str) -> int:
        """Take other servers' connections; the port. Raises Invalid when it cannot be had."""
        return await self._listener.start(address, self._security.listening(), allows_plain=self._security.allows_plain)

    async def stop(self) -> None:
        """End all connections."""
        await self._listener.stop()

    def _accept(self, hello: Hello, caller: Caller) -> Session:
        if hello.role != "server":
            raise PermissionDenied("this is the port of the servers (serf); clients connect to the rpc port")
        self._security.check(hello.region, caller)
        if not hello.name.endswith(f".{hello.region}"):
            raise PermissionDenied(f"a server of region {hello.region} may not call itself {hello.name}")
        run = (hello.name, hello.node_id)
        others = [each for each in self._sessions if each[0] == hello.name and each != run]
        if hello.name == self.own.name and hello.node_id != self.run_id:
            others.append((self.own.name, self.run_id))
        if others:
            raise Conflict(f'there is a server "{hello.name}" already; give each server a name of its own (`name`)')

        def opened(_: object) -> None:
            self._sessions[run] += 1

        def closed(_: object) -> None:
            self._sessions[run] -= 1
            self._sessions += Counter()

        return Session({PORT: Served(MEMBERS, _Asked(self, hello))}, opened, closed)

    def news(self) -> News:
        """What this server tells."""
        return News(
            sender=self.own.name,
            run=self.run_id,
            members=self.members(),
            forgotten=self._records.forgotten,
            founding=self.founding,
            awaited=self.awaited,
            met=self.met,
            index=self.applied_index(),
        )

    def take_news(self, news: News) -> None:
        """Hear what another server tells."""
        now = self._env.monotonic()
        merged = self._records.merged(*self._believed(news), now)
        if news.sender != self.own.name:
            known, self.reports[news.sender] = self.reports.get(news.sender), news
            if not self.own.has_data and (known is None or known.members != news.members):
                self.tell()
            self.trailing[news.sender] = max(0, self.applied_index() - news.index)
            merged = merged.heard(news.sender, now)
        self._take(merged)

    def _believed(self, news: News) -> tuple[tuple[Member, ...], Mapping[str, int]]:
        """What this server takes from the news: of its own region, another one tells only of servers not yet known."""
        ours = f".{self.own.region}"
        if news.sender.endswith(ours):
            return news.members, news.forgotten
        known = {each.name for each in self.members()}
        members = tuple(
            each
            for each in news.members
            if each.region != self.own.region or (each.status == ALIVE and each.name not in known)
        )
        return members, {name: number for name, number in news.forgotten.items() if not name.endswith(ours)}

    def _take(self, records: Records) -> None:
        before, self._records = self._records, records
        facts = {name: seen.member for name, seen in records.others.items()}
        if records.own != before.own or facts != {name: seen.member for name, seen in before.others.items()}:
            self.tell()
        self._look()

    def _look(self) -> None:
        """Tell the other parts what has changed."""
        shown = self.members()
        if shown == self._shown:
            return
        before, self._shown = {each.name: each for each in self._shown}, shown
        for each in shown:
            known = before.pop(each.name, None)
            if known is None or known.status != each.status:
                _log_status(each, is_new=known is None)
                self._status_since[each.name] = self._env.monotonic()
        for name in before:
            log.info("server forgotten: name=%s", name)
            self.reports.pop(name, None)
            self.trailing.pop(name, None)
            self._status_since.pop(name, None)
        for on_change in self._listeners:
            on_change()

    # Asking.

    async def run(self) -> None:
        """Exchange news with all other servers until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                pulse = self._pulse
                self._records = self._records.reaped(self._env.monotonic())
                self._look()
                self._keep_contacts(group)
                if pulse is self._pulse:
                    await self.wait_news(LOOK_INTERVAL_S)

    def _keep_contacts(self, group: asyncio.TaskGroup) -> None:
        """A connection to every server that is not gone, at the address that it has now."""
        wanted = {each.name: each for each in self.members() if each.status != LEFT and each.name != self.own.name}
        for name, (address, task) in tuple(self._contacts.items()):
            if task.done() or name not in wanted or wanted[name].address != address:
                task.cancel()
                del self._contacts[name]
        for name, member in wanted.items():
            if name not in self._contacts:
                task = supervised(group, f"news of {name}", self._keep_asking(member))
                self._contacts[name] = (member.address, task)

    async def _keep_asking(self, member: Member) -> None:
        link = self._link(member.address, member.region)
        port: MembersPort = far_port(MEMBERS, PORT, link.peer)
        async with asyncio.TaskGroup() as group:
            group.create_task(link.run(), name=f"connection to {member.name}")
            while True:
                pulse = self._pulse
                await self._try_exchange(port)
                if pulse is self._pulse:
                    await self.wait_news(ASK_INTERVAL_S)

    async def _try_exchange(self, port: MembersPort) -> None:
        """Exchange news, if that can be done in time."""
        with suppress(YurtError, TimeoutError):
            async with asyncio.timeout(ASK_LIMIT_S):
                await self._exchange(port)

    def _link(self, address: str, region: str, *, level: int = logging.INFO) -> Link:
        hello = Hello(
            version=__version__, role="server", region=self.own.region, name=self.own.name, node_id=self.run_id
        )
        security = self._security.dialling(region)
        return Link((address,), dialler=Dialler(lambda: hello, security), serves={}, env=self._env, level=level)

    async def ask_once(self, address: str, region: str, ask: Ask[T], *, limit_s: float = JOIN_LIMIT_S) -> T:
        """Call whoever listens at an address, over a connection for this one call; raises a YurtError."""
        link = self._link(address, region, level=logging.DEBUG)
        failure: YurtError | None = None
        async with asyncio.TaskGroup() as group:
            running = group.create_task(link.run(), name=f"connection to {address}")
            try:
                async with asyncio.timeout(limit_s):
                    await link.peer()
                    answer = await ask(far_port(MEMBERS, PORT, link.peer))
            except TimeoutError:
                failure = Unavailable(link.problem)
            except YurtError as error:
                failure = error
            finally:
                running.cancel()
        if failure is not None:
            raise failure
        return answer

    async def join(self, address: str) -> str:
        """Exchange news with whoever answers at an address; its name. Raises a YurtError when nobody does."""
        region = await self._security.region_at(address, self.own.region)
        news = await self.ask_once(address, region, self._exchange, limit_s=JOIN_LIMIT_S)
        return news.sender

    async def _exchange(self, port: MembersPort) -> News:
        news = await port.exchange(self.news())
        self.take_news(news)
        return news

    async def leave(self) -> None:
        """Tell the others that this server has left, as far as they can be reached in a moment."""
        self._records = self._records.with_own(status=LEFT)
        there = [each for each in self.members() if each.status in (ALIVE, LEAVING) and each.name != self.own.name]
        async with asyncio.TaskGroup() as group:
            for each in there:
                supervised(group, f"goodbye to {each.name}", self._say_goodbye(each))

    async def _say_goodbye(self, member: Member) -> None:
        with suppress(YurtError):
            await self.ask_once(member.address, member.region, self._exchange, limit_s=GOODBYE_LIMIT_S)


class _Asked:
    """What others may ask of this server."""

    def __init__(self, membership: Membership, hello: Hello) -> None:
        self._membership = membership
        self._hello = hello

    async def exchange(self, news: News) -> News:
        """Hear and tell; a server speaks for itself."""
        if news.sender != self._hello.name:
            raise PermissionDenied(f"this connection speaks for server {self._hello.name}, not for {news.sender}")
        self._membership.take_news(news)
        return self._membership.news()

    async def admit(self, member: Member) -> Admission:
        """Take the server that asks into the cluster, if it is of this region."""
        own, hello = self._membership.own, self._hello
        if (member.name, member.region) != (hello.name, hello.region):
            raise PermissionDenied(f"this connection speaks for server {hello.name}, not for {member.name}")
        if member.region != own.region:
            raise Conflict(f"this server is of region {own.region}, and {member.name} of {member.region}")
        return await self._membership.admit(member)


def _log_status(member: Member, *, is_new: bool) -> None:
    text = {ALIVE: "server is there", FAILED: "server is silent", LEFT: "server has left", LEAVING: "server leaves"}
    level = logging.WARNING if member.status == FAILED else logging.INFO
    log.log(level, "%s: name=%s address=%s%s", text[member.status], member.name, member.address, " new" * is_new)
