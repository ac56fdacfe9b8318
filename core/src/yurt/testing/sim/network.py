"""The network between simulated hosts: ordered byte streams that may be slow, stall or end.

A connection is TCP as its ends see it. Bytes arrive in order. A lost packet is a delay. While a direction is cut its
bytes wait; the sender's kernel gives the connection up after `SILENCE_S` (as `rpc.wire` sets it), unless the cut is
healed before. When a process ends, its host tells the other ends; when the host is gone too, nobody tells them.
"""

from __future__ import annotations

import asyncio
import contextvars
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from yurt.rpc.wire import SILENCE_S
from yurt.testing.sim.loop import PROCESS, Process, SimLoop

LATENCY_S = (0.0002, 0.002)
LATENCY_RANGE_S = LATENCY_S[1] - LATENCY_S[0]
RETRANSMIT_S = (0.2, 1.0)
LOOK_S = 0.25
HIGH_WATER, LOW_WATER = 256 * 1024, 64 * 1024


class SimNetwork:
    """The hosts, their listening sockets, and the directions that are cut or slow."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.loop = loop
        self.chance = random.Random(f"network {seed}")
        self.loss = 0.0
        """How often a packet must be sent again."""
        self.cut: set[tuple[str, str]] = set()
        """Directions (from host, to host) in which nothing passes."""
        self.slow: dict[str, float] = {}
        """Additional seconds for what comes from or goes to a host."""
        self._listening: dict[tuple[str, int], Listening] = {}
        self._open: dict[Transport, None] = {}

    def listen(self, host: str, port: int) -> Listening:
        """Listen for the running process; raises OSError when its port is in use."""
        found = self._listening.get((host, port))
        if found is not None and not found.process.is_dead:
            raise OSError(98, "Address already in use")
        process = PROCESS.get()
        assert process is not None, "only a process listens"
        made = self._listening[(host, port)] = Listening(self, process, host, port)
        return made

    def unlisten(self, listening: Listening) -> None:
        """Refuse connections from now on."""
        if self._listening.get((listening.host, listening.port)) is listening:
            del self._listening[(listening.host, listening.port)]

    def delay_s(self, source: str, target: str) -> float:
        """The delay of one message, in seconds."""
        delay = LATENCY_S[0] + LATENCY_RANGE_S * self.chance.random()  # as `uniform`, without its call for each message
        if self.slow:
            delay = delay + self.slow.get(source, 0.0) + self.slow.get(target, 0.0)
        if self.loss and self.chance.random() < self.loss:
            delay += self.chance.uniform(*RETRANSMIT_S)
        return delay

    def is_cut(self, source: str, target: str) -> bool:
        """Whether a direction is cut."""
        return bool(self.cut) and source != target and (source, target) in self.cut

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        """Connect from the running process's host; waits while a direction is cut."""
        process = PROCESS.get()
        assert process is not None, "only a process connects"
        source = host_of(process)
        while self.is_cut(source, host) or self.is_cut(host, source):  # noqa: ASYNC110 - a condition on virtual time
            await asyncio.sleep(LOOK_S)
        await asyncio.sleep(self.delay_s(source, host) + self.delay_s(host, source))
        listening = self._listening.get((host, port))
        if listening is None or listening.process.is_dead or process.is_dead:
            raise ConnectionRefusedError(111, "Connection refused")
        near, far = Transport(self, process, source), Transport(self, listening.process, host)
        near.other, far.other = far, near
        listening.offer(Accepted(far, source))
        protocol = factory()
        near.carry(protocol)
        return near, protocol

    def has_opened(self, transport: Transport) -> None:
        """Record an open end of a connection."""
        self._open[transport] = None

    def has_closed(self, transport: Transport) -> None:
        """Forget an end of a connection."""
        self._open.pop(transport, None)

    def end_process(self, process: Process, *, is_silent: bool) -> None:
        """End a dead process's connections; with `is_silent` (its host died) no peer is notified."""
        for transport in tuple(self._open):
            if transport.process is process:
                transport.vanish(is_silent=is_silent)

    def reset_some(self, probability: float) -> int:
        """Reset random connections, as a middlebox does; returns their number."""
        found = [each for each in self._open if self.chance.random() < probability]
        for transport in found:
            transport.break_off()
        return len(found)


def host_of(process: Process) -> str:
    """The address of a process's host: its name up to the incarnation."""
    return process.name.partition("#")[0]


class Listening:
    """A listening socket."""

    def __init__(self, network: SimNetwork, process: Process, host: str, port: int) -> None:
        self.process = process
        self.host, self.port = host, port
        self._network = network
        self._offered: asyncio.Queue[Accepted] = asyncio.Queue()

    def offer(self, accepted: Accepted) -> None:
        """Queue a connection."""
        self._offered.put_nowait(accepted)

    async def accept(self) -> tuple[Accepted, tuple[str, int]]:
        """Accept the next connection; returns it with its address."""
        accepted = await self._offered.get()
        return accepted, (accepted.source, 40_000)

    def getsockname(self) -> tuple[str, int]:
        """The address."""
        return (self.host, self.port)

    def close(self) -> None:
        """Stop listening."""
        self._network.unlisten(self)


class Accepted:
    """A connection that was accepted but has no protocol yet."""

    def __init__(self, transport: Transport, source: str) -> None:
        self.source = source
        self._transport = transport

    def setsockopt(self, *_: Any) -> None:
        """Ignored: every connection detects dead peers."""

    def carry(self, factory: Callable[[], Any]) -> tuple[Any, Any]:
        """Attach a protocol."""
        protocol = factory()
        self._transport.carry(protocol)
        return self._transport, protocol

    def close(self) -> None:
        """Reset it."""
        self._transport.close()


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: SimNetwork, process: Process, host: str) -> None:
        super().__init__()
        self.process = process
        self.host = host
        self.other: Transport = self
        self._network = network
        self._loop = network.loop
        self._protocol: Any = None
        self._context = contextvars.copy_context()
        self._context.run(PROCESS.set, process)
        self._arrived: deque[bytes | None] = deque()
        """What the protocol has not read yet; None is the end."""
        self._under_way: deque[bytes | None] = deque()
        """What the other end has not received yet."""
        self._last_s = 0.0
        self._bytes_waiting = 0
        self._is_paused = False
        self._is_closing = False
        self._is_gone = False
        self._is_sending = False
        self._is_writer_paused = False
        network.has_opened(self)

    def __hash__(self) -> int:
        return id(self)

    # What protocols call.

    def carry(self, protocol: Any) -> None:
        """Attach the protocol, which receives the data that has arrived."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._call(self._give)

    def write(self, data: Any) -> None:
        """Send bytes in order."""
        if self._is_closing or self._is_gone or self.process.is_dead:
            return
        self._send(bytes(data))

    def close(self) -> None:
        """Close the connection after the written data is sent."""
        if not self._is_closing and not self._is_gone:
            self._is_closing = True
            if not self.process.is_dead:
                self._send(None)
            self._call(self._lose)

    def abort(self) -> None:
        """As `close`."""
        self.close()

    def is_closing(self) -> bool:
        """Whether this end was closed."""
        return self._is_closing or self._is_gone

    def pause_reading(self) -> None:
        """Buffer arriving data."""
        self._is_paused = True

    def resume_reading(self) -> None:
        """Deliver buffered and arriving data."""
        self._is_paused = False
        self._call(self._give)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """The address of the peer; None for everything else."""
        return (self.other.host, 40_000) if name == "peername" else default

    # The way there.

    def _send(self, data: bytes | None) -> None:
        self._under_way.append(data)
        if data:
            self._bytes_waiting += len(data)
        if self._bytes_waiting > HIGH_WATER and not self._is_writer_paused and self._protocol is not None:
            self._is_writer_paused = True
            self._call(self._protocol.pause_writing)
        if not self._is_sending:
            self._is_sending = True
            now_s = self._loop._now_s
            self._last_s = max(self._last_s, now_s + self._network.delay_s(self.host, self.other.host))
            self._pass_on_at(self._last_s, now_s)

    def _pass_on_at(self, at_s: float, since_s: float) -> None:
        """Deliver later, as the receiver: what was sent arrives although its sender is paused by then."""
        self._loop.call_at(at_s, self._pass_on, since_s, context=self.other._context)

    def _pass_on(self, since_s: float) -> None:
        """Deliver all messages that are due, unless the direction is cut or the other host is down."""
        if self._is_gone:
            self._under_way.clear()
            return
        other, network = self.other, self._network
        if other._is_gone or (network.cut and network.is_cut(self.host, other.host)):
            if self._loop.time() - since_s >= SILENCE_S:
                self.break_off()
            else:
                self._pass_on_at(self._loop.time() + LOOK_S, since_s)
            return
        while self._under_way:
            data = self._under_way.popleft()
            if data:
                self._bytes_waiting -= len(data)
            other._arrive(data)
        self._is_sending = False
        if self._is_writer_paused and self._bytes_waiting <= LOW_WATER:
            self._is_writer_paused = False
            self._call(self._protocol.resume_writing)

    def _arrive(self, data: bytes | None) -> None:
        self._arrived.append(data)
        if not self.process.is_dead:
            self._give()

    def _give(self) -> None:
        while self._arrived and self._protocol is not None and not self._is_paused and not self._is_closing:
            data = self._arrived.popleft()
            if data is None:
                self._lose()
                return
            self._protocol.data_received(data)

    def _call(self, function: Callable[[], None]) -> None:
        if not self.process.is_dead:
            self._loop.call_soon(function, context=self._context)

    # The end.

    def _lose(self) -> None:
        if self._is_gone:
            return
        self._is_closing = True
        protocol, self._protocol = self._protocol, None
        if not self._under_way:
            self._is_gone = True
        self._network.has_closed(self)
        if protocol is not None:
            protocol.connection_lost(None)

    def break_off(self) -> None:
        """Fail both ends; each learns it from its own kernel."""
        for end in (self, self.other):
            end._under_way.clear()
            if not end._is_gone and not end.process.is_dead:
                end._call(end._lose)

    def vanish(self, *, is_silent: bool) -> None:
        """End this end with its process."""
        self._under_way.clear()
        self._network.has_closed(self)
        if is_silent:
            self._is_gone = True
            self._loop.call_later(SILENCE_S, self._end_other)
        else:
            self._loop.call_later(self._network.delay_s(self.host, self.other.host), self._end_other)

    def _end_other(self) -> None:
        self._is_gone = True
        if not self.other._is_gone and not self.other.process.is_dead:
            self.other._call(self.other._lose)
