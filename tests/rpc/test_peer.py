"""Calls over one connection, in both directions: over queues, with a port made for the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Protocol

import pytest
from yurt.access.calls import CallerKind, ProvenCaller, allowed
from yurt.rpc.contract import contract_of
from yurt.rpc.frames import WINDOW
from yurt.rpc.peer import ConnectionLost, Peer, Served
from yurt.rpc.proxy import NoAnswer, Terms, far_port
from yurt.sdk.errors import Invalid, NotFound, Unavailable
from yurt.sdk.value import Value
from yurt.testing.cluster_models.wires import wire_pair
from yurt.testing.fakes import eventually


class Thing(Value):
    name: str
    size: int = 0


class ThingPort(Protocol):
    @allowed(CallerKind.SERVER)
    async def find(self, name: str, *, size: int = 3) -> Thing: ...

    @allowed(CallerKind.SERVER)
    async def wait(self) -> None: ...

    @allowed(CallerKind.SERVER)
    def count(self, limit: int) -> AsyncIterator[Thing]: ...

    @allowed(CallerKind.SERVER)
    def double(self, factor: int, words: AsyncIterator[str]) -> AsyncGenerator[str]: ...


class Things:
    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.was_cancelled = asyncio.Event()
        self.made = 0

    async def find(self, name: str, *, size: int = 3) -> Thing:
        if name == "nothing":
            raise NotFound("there is no such thing")
        if name == "bug":
            raise ZeroDivisionError
        return Thing(name=name, size=size)

    async def wait(self) -> None:
        self.waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.was_cancelled.set()

    async def count(self, limit: int) -> AsyncGenerator[Thing]:
        try:
            for number in range(limit):
                self.made += 1
                yield Thing(name=str(number))
        finally:
            self.was_cancelled.set()

    async def double(self, factor: int, words: AsyncIterator[str]) -> AsyncGenerator[str]:
        async for word in words:
            yield word * factor


class Pair:
    """Two joined ends; both offer things."""

    def __init__(self) -> None:
        self.things = Things(), Things()
        self.wires = wire_pair()
        contract = contract_of(ThingPort)
        self.peers = tuple(
            Peer(
                wire,
                serves={"things": Served(contract, self.things[end], ProvenCaller(kind=CallerKind.SERVER))},
                is_dialler=end == 0,
            )
            for end, wire in enumerate(self.wires)
        )
        self.ended = asyncio.Event(), asyncio.Event()
        self.ports = tuple(far_port(contract, "things", self._getter(peer)) for peer in self.peers)

    def _getter(self, peer: Peer) -> Any:
        async def get() -> Peer:
            return peer

        return get

    async def run(self, end: int) -> None:
        await self.peers[end].run()
        self.ended[end].set()

    def cut(self) -> None:
        self.wires[0].close()


@asynccontextmanager
async def joined() -> AsyncIterator[Pair]:
    pair = Pair()
    async with asyncio.TaskGroup() as group:
        for end in (0, 1):
            group.create_task(pair.run(end))
        try:
            yield pair
        finally:
            pair.cut()


async def test_both_ends_call_each_other() -> None:
    async with joined() as pair:
        answers = await asyncio.gather(
            *(pair.ports[number % 2].find(f"thing {number}", size=number) for number in range(200))
        )
        assert answers == [Thing(name=f"thing {number}", size=number) for number in range(200)]
        assert await pair.ports[0].find("plain") == Thing(name="plain", size=3)


async def test_a_call_that_takes_too_long_fails_and_is_cancelled_at_the_other_end() -> None:
    async with joined() as pair:
        port = far_port(
            contract_of(ThingPort), "things", pair._getter(pair.peers[0]), terms=Terms(limits_s={"wait": 0.05})
        )
        with pytest.raises(NoAnswer, match=r"things\.wait within"):
            await port.wait()
        async with asyncio.timeout(10):
            await pair.things[1].was_cancelled.wait()
        assert await pair.ports[0].find("next") == Thing(name="next", size=3)


async def test_errors_keep_their_kind_and_a_bug_does_not_end_the_connection() -> None:
    async with joined() as pair:
        with pytest.raises(NotFound, match="there is no such thing"):
            await pair.ports[1].find("nothing")
        with pytest.raises(Unavailable, match="failed unexpectedly at the other agent"):
            await pair.ports[0].find("bug")
        assert (await pair.ports[0].find("still here")).name == "still here"


async def test_a_call_that_is_given_up_is_cancelled_at_the_far_end() -> None:
    async with joined() as pair:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await pair.ports[0].wait()
        async with asyncio.timeout(60):
            await pair.things[1].was_cancelled.wait()


async def test_a_stream_is_read_to_its_end() -> None:
    async with joined() as pair:
        names = [thing.name async for thing in pair.ports[1].count(500)]
        assert names == [str(number) for number in range(500)]


async def test_a_slow_reader_stops_its_own_stream_and_nobody_elses() -> None:
    async with joined() as pair:
        async with aclosing(pair.ports[0].count(100_000)) as items:  # type: ignore[type-var]
            first = await anext(items)
            assert first.name == "0"
            for number in range(50):
                assert (await pair.ports[0].find(str(number))).name == str(number)
            assert pair.things[1].made <= WINDOW + 2
        async with asyncio.timeout(60):
            await pair.things[1].was_cancelled.wait()


async def test_a_stream_whose_items_are_not_understood_ends_at_the_far_end_too() -> None:
    class OtherPort(Protocol):
        @allowed(CallerKind.SERVER)
        def count(self, limit: int) -> AsyncIterator[int]: ...

    async with joined() as pair:
        other = far_port(contract_of(OtherPort), "things", pair._getter(pair.peers[0]))
        with pytest.raises(Invalid, match="speaks of something else"):
            await anext(other.count(100_000))
        async with asyncio.timeout(60):
            await pair.things[1].was_cancelled.wait()


async def test_a_stream_goes_both_ways() -> None:
    async def words() -> AsyncIterator[str]:
        for word in ("a", "b", "c"):
            yield word

    async with joined() as pair:
        assert [each async for each in pair.ports[0].double(2, words())] == ["aa", "bb", "cc"]
        assert [each async for each in pair.ports[1].double(factor=3, words=words())] == ["aaa", "bbb", "ccc"]


async def test_a_stream_whose_inputs_break_off_fails_with_them_and_ends_at_the_far_end() -> None:
    async def words() -> AsyncIterator[str]:
        yield "a"
        raise ConnectionResetError("its reader has left")

    async with joined() as pair:
        with pytest.raises(ConnectionResetError, match="has left"):
            async for word in pair.ports[0].double(2, words()):
                assert word == "aa"
        await eventually(lambda: pair.peers[1].is_idle)
        assert (await pair.ports[0].find("web")).name == "web"


async def test_the_end_of_the_connection_fails_what_waits_and_cancels_what_is_served() -> None:
    async with joined() as pair:
        waiting = asyncio.ensure_future(pair.ports[0].wait())
        items = pair.ports[0].count(100_000)
        await anext(items)
        await pair.things[1].waiting.wait()
        pair.cut()
        with pytest.raises(ConnectionLost):
            await waiting
        with pytest.raises(ConnectionLost):
            async for _ in items:
                pass
        async with asyncio.timeout(60):
            await pair.things[1].was_cancelled.wait()
        with pytest.raises(ConnectionLost):
            await pair.ports[0].find("anything")


async def test_a_call_that_the_far_end_does_not_know_is_refused() -> None:
    class NewerPort(Protocol):
        @allowed(CallerKind.SERVER)
        async def invent(self) -> None: ...

    async with joined() as pair:
        newer = far_port(contract_of(NewerPort), "things", pair._getter(pair.peers[0]))
        with pytest.raises(Invalid, match=r"does not offer things\.invent"):
            await newer.invent()
        wrong = far_port(contract_of(NewerPort), "others", pair._getter(pair.peers[0]))
        with pytest.raises(Invalid, match="does not offer others"):
            await wrong.invent()


async def test_what_is_no_message_ends_the_connection() -> None:
    async with joined() as pair:
        pair.wires[1].receive(b"\xc1 nonsense")
        async with asyncio.timeout(60):
            await pair.ended[1].wait()
        assert not pair.peers[1].is_open
