"""Whatever strangers and clients send, the server bounds what it costs, and answers the others meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
import resource
import struct
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec
import pytest
from yurt.access.calls import CallerKind, ProvenCaller, allowed
from yurt.agent.limits import raise_file_limit
from yurt.rpc import frames
from yurt.rpc.contract import contract_of
from yurt.rpc.dialling import Dialler
from yurt.rpc.frames import FRAMES_MAX, WINDOW, AnyFrame, Ask, Cancel, Failure, Grant, Hello, Item, Welcome
from yurt.rpc.greeting import encode_greeting
from yurt.rpc.limits import RpcLimits
from yurt.rpc.link import Link
from yurt.rpc.listener import Caller, Listener, PeerSession
from yurt.rpc.peer import Served
from yurt.rpc.proxy import far_port
from yurt.rpc.rate import Rate
from yurt.runtime.env import RealEnv
from yurt.testing.fakes import eventually


class WordPort(Protocol):
    @allowed(CallerKind.SERVER)
    async def echo(self, text: str) -> str: ...

    @allowed(CallerKind.SERVER)
    async def stay(self) -> None: ...

    @allowed(CallerKind.SERVER)
    def letters(self, words: AsyncIterator[str]) -> AsyncGenerator[str]: ...


class Words:
    async def echo(self, text: str) -> str:
        return text

    async def stay(self) -> None:
        await asyncio.Event().wait()

    async def letters(self, words: AsyncIterator[str]) -> AsyncGenerator[str]:
        async for word in words:
            for letter in word:
                yield letter
            await asyncio.Event().wait()


WORDS = contract_of(WordPort)
GREETING = encode_greeting(Hello(node_id="node"))
GARBAGE = (
    b"", b"\0", b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0\0\0\0",
    b"\xff\xff\xff\xff", b"\x00\x01\x00\x01" + b"x" * 70_000, b"\0\0\0\x05hello", b"\0\0\0\x01\xc1",
    b"\0\0\x80\0" + b"\x91" * 32_768, struct.pack(">I", len(GREETING)) + GREETING[:-1],
    struct.pack(">I", len(GREETING) - 1) + GREETING[:-1],
)  # fmt: skip


class Stranger:
    """A connection on which anything may be written."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *sent: AnyFrame) -> None:
        self.message(frames.encode(list(sent)))

    def message(self, data: bytes) -> None:
        self.writer.write(struct.pack(">I", len(data)) + data)

    async def receive(self) -> bytes:
        async with asyncio.timeout(60):
            (size,) = struct.unpack(">I", await self.reader.readexactly(4))
            return await self.reader.readexactly(size)

    async def answers(self) -> list[AnyFrame]:
        return frames.decode(await self.receive())

    async def wait_ended(self) -> None:
        async with asyncio.timeout(60):
            try:
                while await self.reader.read(65_536):
                    pass
            except ConnectionResetError:
                pass


class Place:
    """A listener on loopback, and somebody who behaves well."""

    def __init__(self, limits: RpcLimits) -> None:
        self.counters: Counter[str] = Counter()
        self.listener = Listener(accept=self.accept, welcome=Welcome(name="server"), limits=limits, metrics=self)
        self.port = 0
        self.opened: list[Stranger] = []
        self.good: Any = None

    def count(self, name: str) -> None:
        self.counters[name] += 1

    def accept(self, _: Hello, __: Caller) -> PeerSession:
        return PeerSession(
            {"words": Served(WORDS, Words(), ProvenCaller(kind=CallerKind.SERVER))}, lambda _: None, lambda _: None
        )

    async def stranger(self, host: str = "127.0.0.1") -> Stranger:
        self.opened.append(Stranger(*await asyncio.open_connection("127.0.0.1", self.port, local_addr=(host, 0))))
        return self.opened[-1]

    async def client(self) -> Stranger:
        """A stranger that was welcomed."""
        stranger = await self.stranger()
        stranger.message(GREETING)
        assert msgspec.msgpack.decode(await stranger.receive(), type=Welcome).name == "server"
        return stranger

    async def is_well(self) -> bool:
        async with asyncio.timeout(60):
            return bool(await self.good.echo("well") == "well")


@asynccontextmanager
async def place(**limits: Any) -> AsyncIterator[Place]:
    made = Place(RpcLimits(**limits))
    made.port = await made.listener.start("127.0.0.1:0")
    link = Link((f"127.0.0.1:{made.port}",), dialler=Dialler(lambda: Hello(node_id="good")), serves={}, env=RealEnv())
    running = asyncio.ensure_future(link.run())
    made.good = far_port(WORDS, "words", link.peer)
    try:
        assert await made.is_well()
        yield made
    finally:
        for stranger in made.opened:
            stranger.writer.close()
        await asyncio.gather(*(stranger.writer.wait_closed() for stranger in made.opened), return_exceptions=True)
        running.cancel()
        await asyncio.wait({running})
        await made.listener.stop()


@pytest.mark.parametrize("sent", GARBAGE, ids=range(len(GARBAGE)))
async def test_a_stranger_that_says_nothing_sensible_is_gone_soon(sent: bytes) -> None:
    async with place(handshake_s=0.3) as there:
        stranger = await there.stranger()
        stranger.writer.write(sent)
        assert await there.is_well()
        await stranger.wait_ended()
        assert there.listener.connections == 1
        assert await there.is_well()


async def test_random_bytes_end_only_their_own_connection() -> None:
    source = random.Random(7)
    async with place(handshake_s=0.5) as there:
        for _ in range(50):
            client = await there.client()
            client.message(source.randbytes(source.randrange(1, 300)))
            client.writer.write(source.randbytes(source.randrange(1, 300)))
            client.writer.write_eof()
        for client in there.opened:
            await client.wait_ended()
        assert await there.is_well()


async def test_ten_thousand_idle_connections_stay_within_the_bounds() -> None:
    raise_file_limit()
    room = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 1_000
    async with place(strangers_max=50, per_address_max=200, handshake_s=60) as there:
        count = min(10_000, room)
        for number in range(count):
            await there.stranger(f"127.0.{1 + number % 200}.1")
            assert there.listener.connections <= 52
            if number % 500 == 0:
                assert await there.is_well()
        assert await there.is_well()
        assert await there.client()


async def test_an_address_has_so_many_connections() -> None:
    async with place(per_address_max=3) as there:
        kept = [await there.client() for _ in range(2)]
        refused = await there.stranger()
        await refused.wait_ended()
        elsewhere = await there.stranger("127.0.0.2")
        elsewhere.message(GREETING)
        assert b"server" in await elsewhere.receive()
        kept[0].writer.close()
        await eventually(lambda: there.listener.connections == 3)
        assert await there.client()
        assert there.counters["rpc.refuse_conn"] == 1
        assert await there.is_well()


async def test_strangers_lock_no_agent_out_behind_their_address() -> None:
    async with place(per_address_max=20, handshake_s=60) as there:
        for _ in range(100):
            (await there.stranger()).writer.write(b"\0\0")
        assert await there.client()
        assert there.counters["rpc.refuse_conn"] == 0
        assert there.listener.connections <= 21


async def test_all_addresses_together_have_so_many_connections() -> None:
    async with place(connections_max=5) as there:
        for number in range(2, 6):
            stranger = await there.stranger(f"127.0.0.{number}")
            stranger.message(GREETING)
            await stranger.receive()
        refused = await there.stranger("127.0.0.9")
        await refused.wait_ended()
        assert await there.is_well()


async def test_too_many_calls_a_second_are_refused_with_a_hint() -> None:
    async with place(calls=Rate(per_s=10, burst=20)) as there:
        client = await there.client()
        client.send(*(Ask(1 + 2 * number, "words.echo", b"\x81\xa4text\xa1x") for number in range(25)))
        failures: list[Failure] = []
        while len(failures) < 5:
            failures += [each for each in await client.answers() if isinstance(each, Failure)]
        assert failures[0].kind == "Unavailable"
        assert failures[0].text == "more than 10 calls a second on one connection; try again in 1 s"
        client.send(Ask(101, "words.echo", b"\x81\xa4text\xa1x"))
        assert (await client.answers())[0] == frames.Answer(101, b"\xa1x")


async def test_a_flood_of_calls_is_held_back_and_the_others_are_answered_meanwhile() -> None:
    async with place() as there:
        flooding = await there.client()
        ask = frames.encode([Ask(1 + 2 * number, "words.stay", b"\x80") for number in range(FRAMES_MAX)])
        flood = asyncio.ensure_future(write_on(flooding, ask))
        delays = []
        for _ in range(40):
            begin = time.perf_counter()
            assert await there.is_well()
            delays.append(time.perf_counter() - begin)
            await asyncio.wait({flood}, timeout=0.03)
        flood.cancel()
        assert sorted(delays)[len(delays) // 2] < 3.0, delays


@pytest.mark.parametrize("frame", [Cancel(1), Grant(1, 1), Item(1, b""), frames.End(1), frames.Answer(1, b"")])
async def test_a_flood_of_frames_about_nothing_ends(frame: AnyFrame) -> None:
    async with place() as there:
        flooding = await there.client()
        await write_on(flooding, frames.encode([frame] * FRAMES_MAX))
        assert await there.is_well()


async def test_questions_whether_the_server_is_there_are_calls_too() -> None:
    async with place(calls=Rate(per_s=10, burst=20)) as there:
        client = await there.client()
        for _ in range(30):
            client.message(b"")
        for _ in range(20):
            assert await client.receive() == b""
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.reader.read(1)


async def write_on(stranger: Stranger, message: bytes) -> None:
    """Write until the connection is ended."""
    try:
        while True:
            stranger.message(message)
            await stranger.writer.drain()
    except ConnectionError:
        return


@pytest.mark.parametrize("sent", [[Item(1, b"\xa3abc")] * (WINDOW + 3), [Grant(1, 1)], [Grant(1, -5)]])
async def test_items_and_grants_beyond_what_was_agreed_end_the_connection(sent: list[AnyFrame]) -> None:
    async with place() as there:
        client = await there.client()
        client.send(Ask(1, "words.letters", b"\x80"), *sent)
        await client.wait_ended()
        assert await there.is_well()


async def test_more_frames_than_an_agent_sends_end_the_connection_at_once() -> None:
    async with place() as there:
        client = await there.client()
        client.message(b"\xdd" + struct.pack(">I", 12_000_000) + b"\x93\x07\x01\x01" * 100_000)
        await client.wait_ended()
        assert await there.is_well()


@pytest.mark.parametrize(
    "sent",
    [
        Ask(1, "words.echo", b"\x91" * 100_000),
        Ask(1, "words.echo", b"\x81\xa4text\x05"),
        Ask(1, "words.none", b""),
        Ask(1, "none.echo", b""),
        Ask(1, "\0" * 100_000, b""),
    ],
)
async def test_a_call_that_is_none_is_refused(sent: Ask) -> None:
    async with place() as there:
        client = await there.client()
        client.send(sent)
        (answer,) = await client.answers()
        assert isinstance(answer, Failure)
        assert answer.kind == "Invalid"
        assert len(answer.text) < 300
        assert await there.is_well()


async def test_a_client_that_does_not_read_is_served_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.rpc.intake.UNREAD_BYTES_MAX", 100_000)
    async with place(calls=Rate(per_s=1e6, burst=1e6)) as there:
        client = await there.client()
        word = msgspec.msgpack.encode({"text": "x" * 100_000})
        writing = asyncio.ensure_future(write_asks(client, word))
        done, _ = await asyncio.wait({writing}, timeout=1)
        assert not done, "the server took everything"
        assert await there.is_well()
        writing.cancel()


async def write_asks(client: Stranger, request: bytes) -> None:
    for number in range(400):
        client.send(Ask(1 + 2 * number, "words.echo", request))
        await client.writer.drain()


# What strangers write in the log.

NOT_UTF8 = encode_greeting(Hello(name="x" * 20)).replace(b"x" * 20, b"\xff" * 20)


def mutated(dice: random.Random) -> bytes:
    """A greeting, flipped, cut or with noise in it, behind its length; now and then behind another one."""
    data = bytearray(dice.choice((GREETING, NOT_UTF8, encode_greeting(Hello(name="a\nb")), frames.encode([Cancel(1)]))))
    for _ in range(dice.randrange(4)):
        at = dice.randrange(len(data))
        data[at : at + dice.randrange(3)] = dice.randbytes(dice.randrange(1, 4))
    size = len(data) if dice.random() < 0.9 else dice.randrange(70_000)
    return struct.pack(">I", size) + bytes(data)


async def test_a_greeting_that_is_not_utf8_is_refused_with_a_reason() -> None:
    async with place() as found:
        stranger = await found.stranger()
        stranger.message(NOT_UTF8)
        answer = msgspec.msgpack.decode(await stranger.receive(), type=Welcome)
        assert (answer.kind, "does not begin" in answer.problem) == ("Invalid", True)


def send_all(writer: asyncio.StreamWriter, data: bytes) -> None:
    """Send bytes and their end; the far side may have refused the connection already."""
    writer.write(data)
    with contextlib.suppress(OSError):
        writer.write_eof()


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_strangers_send_there_is_a_line_a_minute_and_no_traceback(
    caplog: pytest.LogCaptureFixture, seed: int
) -> None:
    dice = random.Random(seed)
    async with place(handshake_s=0.5, per_address_max=0) as found:
        for _ in range(100):
            batch = [await found.stranger() for _ in range(20)]
            for each in batch:
                send_all(each.writer, mutated(dice) + dice.randbytes(dice.randrange(0, 40)))
            for each in batch:
                await each.wait_ended()
        assert found.counters["rpc.fail_conn"] + found.counters["rpc.bad_message"] > 1_000
    assert [line.getMessage() for line in caplog.records if line.exc_info] == []
    assert len(caplog.records) <= 2


async def test_a_call_whose_text_is_not_utf8_fails_without_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async with place() as found:
        client = await found.client()
        client.send(Ask(1, "words.echo", b"\x81\xa4text\xa2\xff\xff"))
        (answer,) = await client.answers()
        assert isinstance(answer, Failure) and answer.kind == "Invalid"
    assert not caplog.records
