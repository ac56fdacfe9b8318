"""The simulated network: streams in order, delays, cuts in one direction, and ends that are told or silent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from yurt.rpc.wire import SILENCE_S
from yurt.testing.sim.loop import Process, SimLoop, run_on
from yurt.testing.sim.network import SimNetwork


class End(asyncio.Protocol):
    """Remembers what comes."""

    def __init__(self) -> None:
        self.transport: Any = None
        self.data = b""
        self.lost_at: float | None = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, _: Exception | None) -> None:
        self.lost_at = asyncio.get_running_loop().time()


class Pair:
    """A client and a server on two hosts, and their connection."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.network = loop.network = SimNetwork(loop, 1)
        self.near, self.far = End(), End()
        self.client, self.server = Process("10.0.0.1#1"), Process("10.0.0.2#1")

    async def join(self) -> None:
        listening = asyncio.Event()

        async def serve() -> None:
            socket = self.network.listen("10.0.0.2", 80)
            listening.set()
            accepted, _ = await self.loop.sock_accept(socket)
            await self.loop.connect_accepted_socket(lambda: self.far, accepted)

        async def dial() -> None:
            await listening.wait()
            await self.loop.create_connection(lambda: self.near, "10.0.0.2", 80)

        self.loop.spawn(self.server, serve(), "serve")
        await self.loop.spawn(self.client, dial(), "dial")
        await asyncio.sleep(0.1)


def joined(act: Callable[[Pair], Awaitable[None]]) -> None:
    loop = SimLoop(1)

    async def main() -> None:
        pair = Pair(loop)
        await pair.join()
        await act(pair)

    run_on(loop, main())


def test_bytes_arrive_in_order_and_an_end_is_told_after_them() -> None:
    async def act(pair: Pair) -> None:
        for number in range(100):
            pair.near.transport.write(b"%02d" % number)
        pair.near.transport.close()
        await asyncio.sleep(1)
        assert pair.far.data == b"".join(b"%02d" % number for number in range(100))
        assert pair.far.lost_at is not None

    joined(act)


def test_a_cut_that_is_healed_in_time_only_delays() -> None:
    async def act(pair: Pair) -> None:
        pair.network.cut.add(("10.0.0.1", "10.0.0.2"))
        pair.near.transport.write(b"waits")
        pair.far.transport.write(b"passes")
        await asyncio.sleep(2)
        assert (pair.near.data, pair.far.data) == (b"passes", b"")
        pair.network.cut.clear()
        await asyncio.sleep(1)
        assert pair.far.data == b"waits" and pair.near.lost_at is None

    joined(act)


def test_a_cut_that_lasts_ends_the_connection_at_both_ends() -> None:
    async def act(pair: Pair) -> None:
        pair.network.cut.add(("10.0.0.1", "10.0.0.2"))
        began = pair.loop.time()
        pair.near.transport.write(b"never")
        await asyncio.sleep(2 * SILENCE_S)
        assert pair.near.lost_at is not None and pair.near.lost_at - began >= SILENCE_S
        assert pair.far.data == b""

    joined(act)


@pytest.mark.parametrize(("is_silent", "at_least_s"), [(False, 0.0), (True, float(SILENCE_S))])
def test_the_end_of_a_process_is_told_and_that_of_a_host_is_noticed(is_silent: bool, at_least_s: float) -> None:
    async def act(pair: Pair) -> None:
        began = pair.loop.time()
        pair.network.end_process(pair.server, is_silent=is_silent)
        await pair.loop.kill(pair.server)
        await asyncio.sleep(2 * SILENCE_S)
        assert pair.near.lost_at is not None and at_least_s - 1e-9 <= pair.near.lost_at - began < SILENCE_S + 1

    joined(act)


def test_nobody_listens_where_the_process_has_ended() -> None:
    async def act(pair: Pair) -> None:
        await pair.loop.kill(pair.server)
        with pytest.raises(ConnectionRefusedError):
            await pair.loop.spawn(pair.client, pair.loop.create_connection(End, "10.0.0.2", 80), "dial")

    joined(act)


def test_a_reader_that_pauses_gets_the_rest_later() -> None:
    async def act(pair: Pair) -> None:
        pair.far.transport.pause_reading()
        pair.near.transport.write(b"all")
        await asyncio.sleep(1)
        assert pair.far.data == b""
        pair.far.transport.resume_reading()
        await asyncio.sleep(1)
        assert pair.far.data == b"all"

    joined(act)
