"""Connections on loopback: greeting, refusal, calls both ways, and a server that goes and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

import pytest
from yurt.access.calls import CallerKind, ProvenCaller, allowed
from yurt.rpc.contract import contract_of
from yurt.rpc.dialling import Dialler
from yurt.rpc.frames import Hello, Welcome
from yurt.rpc.limits import RpcLimits
from yurt.rpc.link import Link
from yurt.rpc.listener import Caller, Listener, PeerSession
from yurt.rpc.peer import ConnectionLost, Peer, Served
from yurt.rpc.proxy import Terms, far_port
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Invalid, PermissionDenied, Unavailable
from yurt.testing.unique_ports import quiet_port


class EchoPort(Protocol):
    @allowed(CallerKind.SERVER)
    async def echo(self, text: str) -> str: ...

    @allowed(CallerKind.SERVER)
    async def stay(self) -> str: ...

    @allowed(CallerKind.SERVER)
    def letters(self, text: str) -> AsyncIterator[str]: ...


class Echo:
    def __init__(self, name: str) -> None:
        self.name = name
        self.staying = asyncio.Event()
        self.go = asyncio.Event()

    async def echo(self, text: str) -> str:
        return f"{self.name}: {text}"

    async def stay(self) -> str:
        self.staying.set()
        await self.go.wait()
        return self.name

    async def letters(self, text: str) -> AsyncGenerator[str]:
        for letter in text:
            yield letter


ECHO = contract_of(EchoPort)


class Far:
    """A listening end that offers an echo and remembers who is connected."""

    def __init__(self, name: str) -> None:
        self.echo = Echo(name)
        self.peers: dict[str, Peer] = {}
        self.came = asyncio.Event()
        self.went = asyncio.Event()
        self.listener = Listener(accept=self.accept, welcome=Welcome(name=name))

    def accept(self, hello: Hello, caller: Caller) -> PeerSession:
        assert caller.address
        if hello.secret_id != "secret":
            raise PermissionDenied("the secret of the node does not match")

        def opened(peer: Peer) -> None:
            self.peers[hello.node_id] = peer
            self.came.set()

        def closed(peer: Peer) -> None:
            del self.peers[hello.node_id]
            self.went.set()

        return PeerSession({"echo": Served(ECHO, self.echo, ProvenCaller(kind=CallerKind.SERVER))}, opened, closed)

    async def start(self, port: int = 0) -> int:
        return await self.listener.start(f"127.0.0.1:{port}")


def new_link(*ports: int, secret: str = "secret") -> Link:
    return Link(
        tuple(f"127.0.0.1:{port}" for port in ports),
        dialler=Dialler(lambda: Hello(node_id="node", secret_id=secret)),
        serves={"echo": Served(ECHO, Echo("client"), ProvenCaller(kind=CallerKind.SERVER))},
        env=RealEnv(),
    )


@asynccontextmanager
async def running(link: Link) -> AsyncIterator[Link]:
    task = asyncio.ensure_future(link.run())
    try:
        yield link
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_both_ends_call_over_one_connection() -> None:
    far = Far("server")
    async with running(new_link(await far.start())) as link:
        near = far_port(ECHO, "echo", link.peer)
        assert await near.echo("hello") == "server: hello"
        assert [letter async for letter in near.letters("abc" * 100)] == list("abc" * 100)

        async def peer() -> Peer:
            return far.peers["node"]

        assert await far_port(ECHO, "echo", peer).echo("back") == "client: back"
        assert link.server == "server"
    async with asyncio.timeout(60):
        await far.went.wait()
    await far.listener.stop()


def test_proxies_of_one_port_share_their_class_whatever_their_terms() -> None:
    async def peer() -> Peer:
        raise AssertionError

    proxies = [far_port(ECHO, "echo", peer, terms=Terms(repeats=each)) for each in (True, False)]
    assert type(proxies[0]) is type(proxies[1]) is type(far_port(ECHO, "echo", peer))


async def test_an_agent_that_is_refused_learns_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.rpc.link.PATIENCE_S", 0.5)
    far = Far("server")
    async with running(new_link(await far.start(), secret="wrong")) as link:
        with pytest.raises(Unavailable, match="the secret of the node does not match"):
            await far_port(ECHO, "echo", link.peer).echo("hello")
    await far.listener.stop()


async def test_a_call_moves_to_the_next_server_when_its_own_one_ends() -> None:
    fars = {name: Far(name) for name in ("first", "second")}
    async with running(new_link(*[await far.start() for far in fars.values()])) as link:
        patient, impatient = (far_port(ECHO, "echo", link.peer, repeats=each) for each in (True, False))
        staying = asyncio.ensure_future(patient.stay())
        failing = asyncio.ensure_future(impatient.stay())
        await link.peer()
        present = fars.pop(link.server)
        (other,) = fars.values()
        async with asyncio.timeout(60):
            await present.echo.staying.wait()
        other.echo.go.set()
        await present.listener.stop()
        async with asyncio.timeout(60):
            assert await staying == other.echo.name
        with pytest.raises(ConnectionLost):
            await failing
        assert await impatient.echo("again") == f"{other.echo.name}: again"
    await other.listener.stop()


async def test_a_server_that_comes_back_is_found_again() -> None:
    far = Far("server")
    port = await far.start(quiet_port())
    async with running(new_link(port)) as link:
        near = far_port(ECHO, "echo", link.peer, repeats=True)
        assert await near.echo("one") == "server: one"
        await far.listener.stop()
        again = Far("again")
        assert await again.start(port) == port
        assert await near.echo("two") == "again: two"
        await again.listener.stop()


async def test_a_port_in_use_is_told() -> None:
    far, other = Far("server"), Far("other")
    port = await far.start()
    with pytest.raises(Invalid, match=f"cannot listen on 127.0.0.1:{port}"):
        await other.start(port)
    await far.listener.stop()


async def test_why_a_silent_stranger_is_refused_is_told(caplog: pytest.LogCaptureFixture) -> None:
    listener = Listener(accept=Far("server").accept, welcome=Welcome(name="server"), limits=RpcLimits(handshake_s=0.05))
    port = await listener.start("127.0.0.1:0")
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(60):
        assert await reader.read() == b""
    assert "is refused: it did not say in time who it is" in caplog.text
    writer.close()
    await listener.stop()


async def test_a_stranger_who_says_nothing_sensible_is_no_client() -> None:
    far = Far("server")
    port = await far.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"\0\0\0\x11\xc1\x00 not a greeting")
    async with asyncio.timeout(60):
        answer = await reader.read()
    assert b"does not begin as one of an agent does" in answer
    assert not far.came.is_set()
    writer.close()
    await far.listener.stop()
