"""A client's connection to some server of several: which one, and when it goes to the next."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol

import pytest
from yurt.access.calls import CallerKind, ProvenCaller, allowed
from yurt.rpc.contract import contract_of
from yurt.rpc.dialling import Dialler
from yurt.rpc.failover import LEADER_CALL_S, NO_LEADER_S, FailoverDetector, watched_port
from yurt.rpc.frames import Hello, Welcome
from yurt.rpc.link import USUAL_TIMES, Link, LinkTimes
from yurt.rpc.listener import Caller, Listener, PeerSession
from yurt.rpc.peer import ConnectionLost, Served
from yurt.rpc.proxy import NoAnswer, far_port
from yurt.rpc.wire import SocketWire
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import NotFound, Unavailable
from yurt.testing.fakes import eventually
from yurt.testing.unique_ports import free_ports


class BeatPort(Protocol):
    @allowed(CallerKind.SERVER)
    async def heartbeat(self) -> str: ...

    @allowed(CallerKind.SERVER)
    def follow(self) -> AsyncIterator[str]: ...


BEAT = contract_of(BeatPort)


class FakeServer:
    """A server that answers heartbeats with its name, fails them, or hangs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.address = ""
        self.has_leader = True
        self.hangs = False
        self.clients: set[str] = set()
        self.listener = Listener(accept=self.accept, welcome=Welcome(name=name))

    async def start(self) -> str:
        self.address = f"127.0.0.1:{await self.listener.start('127.0.0.1:0')}"
        return self.address

    def accept(self, hello: Hello, _: Caller) -> PeerSession:
        return PeerSession(
            {"beat": Served(BEAT, self, ProvenCaller(kind=CallerKind.SERVER))},
            lambda _: self.clients.add(hello.name),
            lambda _: self.clients.discard(hello.name),
        )

    async def heartbeat(self) -> str:
        if self.hangs:
            await asyncio.Event().wait()
        if not self.has_leader:
            raise Unavailable("No cluster leader")
        return self.name

    async def follow(self) -> AsyncGenerator[str]:
        yield self.name
        await asyncio.Event().wait()


@asynccontextmanager
async def servers(count: int) -> AsyncIterator[list[FakeServer]]:
    made = [FakeServer(f"server-{number}") for number in range(count)]
    for server in made:
        await server.start()
    try:
        yield made
    finally:
        for server in made:
            await server.listener.stop()


@asynccontextmanager
async def linked(
    name: str, *addresses: str, serves: dict[str, Served] | None = None, times: LinkTimes = USUAL_TIMES
) -> AsyncIterator[Link]:
    dialler = Dialler(lambda: Hello(node_id=name, name=name))
    link = Link(addresses, dialler=dialler, serves=serves or {}, env=RealEnv(), times=times)
    running = asyncio.ensure_future(link.run())
    try:
        yield link
    finally:
        running.cancel()
        await asyncio.wait({running})


def of(link: Link, found: list[FakeServer]) -> tuple[FakeServer, FakeServer]:
    """The server that a link uses, and the other one."""
    first, second = found
    return (first, second) if first.name == link.server else (second, first)


async def test_clients_spread_over_the_servers() -> None:
    async with servers(2) as found, AsyncExitStack() as stack:
        addresses = [server.address for server in found]
        links = [await stack.enter_async_context(linked(f"client-{number}", *addresses)) for number in range(40)]
        for link in links:
            await link.peer()
        shares = Counter(link.server for link in links)
        assert min(shares["server-0"], shares["server-1"]) >= 5, shares


async def test_a_link_gives_up_after_its_rounds_and_tells_why() -> None:
    (port,) = free_ports(1)
    times = LinkTimes(pause_max_s=0.001, rounds_max=3)
    link = Link((f"127.0.0.1:{port}",), dialler=Dialler(Hello), serves={}, env=RealEnv(), times=times)
    with pytest.raises(Unavailable, match=f"retry_max: no server could be reached in 3 rounds: 127.0.0.1:{port}"):
        async with asyncio.timeout(10):
            await link.run()


async def test_the_clients_of_a_server_that_ends_go_to_the_others_at_once() -> None:
    async with servers(3) as found, AsyncExitStack() as stack:
        addresses = [server.address for server in found]
        links = [await stack.enter_async_context(linked(f"client-{number}", *addresses)) for number in range(12)]
        for link in links:
            await link.peer()
        await found[0].listener.stop()
        async with asyncio.timeout(60):
            names = [await far_port(BEAT, "beat", link.peer, repeats=True).heartbeat() for link in links]
        assert set(names) <= {"server-1", "server-2"}


async def test_a_server_that_does_not_even_accept_is_left_out_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.rpc.dialling.CONNECT_LIMIT_S", 0.2)
    monkeypatch.setattr("yurt.rpc.dialling.GREETING_LIMIT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=1) as mute:
        async with servers(1) as (server,):
            silent = f"127.0.0.1:{mute.getsockname()[1]}"
            async with linked("client", silent, server.address) as link, asyncio.timeout(60):
                assert await far_port(BEAT, "beat", link.peer).heartbeat() == "server-0"


async def test_a_server_that_cannot_be_used_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("yurt.rpc.link.PAUSE_FIRST_S", 0.01)
    tries: list[str] = []
    reach = Dialler.reach

    async def counted(dialler: Dialler, address: str) -> SocketWire:
        tries.append(address)
        return await reach(dialler, address)

    monkeypatch.setattr(Dialler, "reach", counted)
    first, second = (f"127.0.0.1:{port}" for port in free_ports(2))
    async with linked("client", first, second):
        await eventually(lambda: len(tries) >= 6)
    told = [record.getMessage() for record in caplog.records if "cannot be used" in record.getMessage()]
    assert len(told) == 2, told


class Frozen:
    """Stands between a link and a server, and can stop passing anything on, as a process that hangs does."""

    def __init__(self, address: str) -> None:
        self.target = int(address.rpartition(":")[2])
        self.passes = asyncio.Event()
        self.passes.set()
        self.writers: list[asyncio.StreamWriter] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        self.writers += [writer, back]
        await asyncio.gather(self.carry(reader, back), self.carry(there, writer))

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            await self.passes.wait()
            writer.write(data)
        writer.close()


async def test_a_server_whose_process_hangs_is_noticed_although_nothing_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("yurt.rpc.silence.ANSWER_S", 0.3)
    monkeypatch.setattr("yurt.rpc.dialling.GREETING_LIMIT_S", 1.0)
    async with servers(2) as found:
        frozen = Frozen(found[0].address)
        between = await asyncio.start_server(frozen.connected, "127.0.0.1", 0)
        address = f"127.0.0.1:{between.sockets[0].getsockname()[1]}"
        async with linked("client", address, times=LinkTimes(idle_s=0.1)) as link:
            await link.peer()
            await asyncio.sleep(0.5)
            assert link.server == "server-0", "a server that answers is kept"
            link.learn((address, found[1].address))
            frozen.passes.clear()
            await eventually(lambda: link.server == "server-1")
        frozen.passes.set()
        for writer in frozen.writers:
            writer.close()
        between.close()


async def test_a_server_that_is_no_longer_named_is_left_at_once() -> None:
    async with servers(2) as found, linked("client", found[0].address) as link:
        await link.peer()
        link.learn((found[0].address, found[1].address))
        link._moves = False
        link.learn((found[1].address,))
        await eventually(lambda: link.server == "server-1")
        assert set(link.addresses) == {each.address for each in found}, "what the agent was told is not forgotten"


async def test_new_servers_get_their_share_of_the_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.rpc.link.LOOK_S", 0.05)
    async with servers(2) as found, AsyncExitStack() as stack:
        links = [await stack.enter_async_context(linked(f"client-{number}", found[0].address)) for number in range(40)]
        for link in links:
            await link.peer()
            link.learn((found[0].address,))
        for link in links:
            link.learn((found[0].address, found[1].address))
        moving = sum(link._moves for link in links)
        assert 5 <= moving <= 35
        await eventually(lambda: len(found[1].clients) == moving)
        await asyncio.sleep(0.3)
        assert (len(found[0].clients), len(found[1].clients)) == (40 - moving, moving)


async def test_a_server_without_a_leader_is_left_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.rpc.failover.NO_LEADER_S", 0.2)
    async with servers(2) as found, linked("client", *[each.address for each in found]) as link:
        await link.peer()
        present, other = of(link, found)
        present.has_leader = False
        port = watched_port(BEAT, "beat", link, leader_calls={"heartbeat"}, env=RealEnv())
        assert await beaten(port, other) == other.name


async def test_a_server_that_does_not_answer_a_heartbeat_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.rpc.failover.LEADER_CALL_S", 0.2)
    async with servers(2) as found, linked("client", *[each.address for each in found]) as link:
        await link.peer()
        present, other = of(link, found)
        present.hangs = True
        port = watched_port(BEAT, "beat", link, leader_calls={"heartbeat"}, env=RealEnv())
        assert await beaten(port, other) == other.name


async def beaten(port: Any, other: FakeServer) -> str:
    """The answer of the other server, asked until it comes."""
    async with asyncio.timeout(60):
        while True:
            try:
                return str(await port.heartbeat())
            except Unavailable:
                await asyncio.wait({asyncio.ensure_future(asyncio.sleep(0.02))})


async def test_the_only_server_is_kept_whatever_it_says() -> None:
    async with servers(1) as (server,), linked("client", server.address) as link:
        peer = await link.peer()
        link.doubt("it knows no leader")
        await asyncio.sleep(0.05)
        assert peer.is_open


def test_only_what_concerns_the_leader_counts_against_a_server() -> None:
    usefulness = FailoverDetector({"heartbeat"})
    no_leader = Unavailable("No cluster leader")
    assert usefulness.limits_s == {"heartbeat": LEADER_CALL_S}
    assert not usefulness.judge("a", "heartbeat", no_leader, now_s=0)
    assert not usefulness.judge("a", "pull_allocs", no_leader, now_s=NO_LEADER_S)
    assert not usefulness.judge("a", "heartbeat", ConnectionLost("gone"), now_s=NO_LEADER_S)
    assert not usefulness.judge("b", "heartbeat", no_leader, now_s=NO_LEADER_S), "another server has its own time"
    assert not usefulness.judge("b", "heartbeat", NotFound("node not found"), now_s=NO_LEADER_S + 1)
    assert not usefulness.judge("b", "heartbeat", no_leader, now_s=NO_LEADER_S * 2), "it has answered meanwhile"
    assert "No cluster leader" in usefulness.judge("b", "heartbeat", no_leader, now_s=NO_LEADER_S * 3)
    assert usefulness.judge("b", "heartbeat", NoAnswer("too late"), now_s=NO_LEADER_S * 3) == "too late"


async def test_the_limit_of_a_heartbeat_does_not_hide_why_no_server_can_be_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("yurt.rpc.failover.LEADER_CALL_S", 0.1)
    monkeypatch.setattr("yurt.rpc.link.PATIENCE_S", 0.4)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    async with linked("client", address) as link:
        port = watched_port(BEAT, "beat", link, leader_calls={"heartbeat"}, env=RealEnv())
        with pytest.raises(ConnectionLost, match=r"no server can be reached: .*refused"):
            await port.heartbeat()
