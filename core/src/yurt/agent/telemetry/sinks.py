"""Pushes the agent's metrics to statsd (UDP), statsite (TCP) and DogStatsD (UDP), at each collection interval.

Gauges are sent as they are. Of counters the increase since the last push is sent, of timings each duration since then,
up to `RECENT` of a name, with the sampling rate where there were more. A sink that does not answer costs nothing but
its packets: UDP is sent and forgotten, and a TCP connection that is lost is tried again with the next push.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, Protocol

from yurt.agent.blocks.telemetry import SINKS, host_and_port
from yurt.agent.telemetry.settings import MetricSinkSettings
from yurt.http.agent_routes.metrics_snapshot import MetricsSnapshot
from yurt.runtime.env import Env
from yurt.runtime.metrics import Duration
from yurt.runtime.supervise import attempted
from yurt.sdk.value import StrMap

log = logging.getLogger(__name__)

PACKET_BYTES: Final = 1_400
"""Lines are put together up to this, which fits an Ethernet frame."""
CONNECT_LIMIT_S: Final = 2.0
DUTY_SHARE: Final = 0.1
"""Pushing takes at most this share of the time: where there is much to gather, the interval grows."""
COMPLAINT_S: Final = 60.0
"""How often a sink that cannot be reached is logged."""
_CLEANED: Final = str.maketrans({":": "_", "|": "_", " ": "_", "\n": "_", "@": "_", "#": "_", ",": "_"})

Key = tuple[str, tuple[tuple[str, str], ...]]
Line = Callable[[str, StrMap, float, str], str]
"""(name, labels, value, type) -> a line without its end."""


class Differences:
    """Remembers the counters and timings pushed last, so that the next push sends the difference."""

    def __init__(self) -> None:
        self._counts: dict[Key, int] = {}
        self._timed: dict[Key, int] = {}

    def lines(self, figures: MetricsSnapshot, line: Line) -> Iterator[str]:
        """The lines of one push."""
        for gauge in figures.gauges():
            yield line(gauge.name, gauge.labels, gauge.value, "g")
        for count in figures.counters():
            key = _key(count.name, count.labels)
            increase, self._counts[key] = count.value - self._counts.get(key, 0), count.value
            if increase:
                yield line(count.name, count.labels, increase, "c")
        for duration in figures.timings():
            yield from self._durations(duration, line)

    def _durations(self, row: Duration, line: Line) -> Iterator[str]:
        key = _key(row.name, row.labels)
        fresh, self._timed[key] = row.timing.count - self._timed.get(key, 0), row.timing.count
        if fresh <= 0:
            return
        kept = row.timing.recent[-fresh:]
        rate = "" if len(kept) == fresh else f"|@{len(kept) / fresh:.6g}"
        for seconds in kept:
            yield line(row.name, row.labels, seconds * row.scale, f"ms{rate}")


def _key(name: str, labels: StrMap) -> Key:
    return name, tuple(labels.items())


def statsd_line(name: str, labels: StrMap, value: float, kind: str) -> str:
    """A line in Nomad's format: values of labels become parts of the name, because statsd has no labels."""
    key = ".".join([name, *labels.values()]).translate(_CLEANED)
    return f"{key}:{value:f}|{kind}"


def dogstatsd_line(tags: Iterable[str]) -> Line:
    """A line of DogStatsD, with labels and the operator's tags as tags."""
    own = [tag.replace("|", "_").replace(",", "_") for tag in tags]

    def line(name: str, labels: StrMap, value: float, kind: str) -> str:
        shown = [*own, *(f"{key}:{text.translate(_CLEANED)}" for key, text in labels.items())]
        return f"{name}:{value:f}|{kind}" + (f"|#{','.join(shown)}" if shown else "")

    return line


def packets(lines: Iterable[str]) -> Iterator[bytes]:
    """Lines joined to packets, each line with its line break."""
    packet = bytearray()
    for line in lines:
        text = line.encode() + b"\n"
        if packet and len(packet) + len(text) > PACKET_BYTES:
            yield bytes(packet)
            packet.clear()
        packet += text
    if packet:
        yield bytes(packet)


class Outlet(Protocol):
    """A transport to a sink."""

    async def send(self, packets: Iterable[bytes]) -> None:
        """Send them; raises OSError or TimeoutError when the sink cannot be reached."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class UdpOutlet:
    """Packets by UDP."""

    def __init__(self, host: str, port: int, env: Env) -> None:
        self._address = (host, port)
        self._env = env
        self._transport: asyncio.DatagramTransport | None = None

    async def send(self, packets: Iterable[bytes]) -> None:
        """Send them; the name is looked up once."""
        if self._transport is None or self._transport.is_closing():
            loop = asyncio.get_running_loop()
            async with self._env.timeout(CONNECT_LIMIT_S):
                self._transport, _ = await loop.create_datagram_endpoint(
                    asyncio.DatagramProtocol, remote_addr=self._address
                )
        for packet in packets:
            self._transport.sendto(packet)

    def close(self) -> None:
        """Close the socket."""
        if self._transport is not None:
            self._transport.close()


class TcpOutlet:
    """Lines over one TCP connection."""

    def __init__(self, host: str, port: int, env: Env) -> None:
        self._address = (host, port)
        self._env = env
        self._socket: socket.socket | None = None

    async def send(self, packets: Iterable[bytes]) -> None:
        """Send lines; reconnect after a loss."""
        await self._env.in_thread(self._send, b"".join(packets))

    def _send(self, data: bytes) -> None:
        if self._socket is None:
            self._socket = socket.create_connection(self._address, timeout=CONNECT_LIMIT_S)
        try:
            self._socket.sendall(data)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class MetricSink:
    """A sink with its connection and the metrics pushed so far."""

    def __init__(self, name: str, outlet: Outlet, line: Line, env: Env) -> None:
        self._name = name
        self._env = env
        self._outlet = outlet
        self._line = line
        self._differences = Differences()
        self._complained_at = float("-inf")

    async def push(self, figures: MetricsSnapshot) -> None:
        """Push the metrics; an unreachable sink is logged once in `COMPLAINT_S`."""
        ready = await self._env.in_thread(lambda: list(packets(self._differences.lines(figures, self._line))))
        now_s = self._env.monotonic()
        try:
            await self._outlet.send(ready)
        except (OSError, TimeoutError, UnicodeError) as error:  # UnicodeError: a host name that IDNA cannot encode
            if now_s - self._complained_at >= COMPLAINT_S:
                self._complained_at = now_s
                log.warning("metrics cannot be sent: sink=%s error=%s", self._name, error or "it does not answer")

    def close(self) -> None:
        """Close the connection."""
        self._outlet.close()


def make_sinks(settings: MetricSinkSettings, env: Env) -> list[MetricSink]:
    """The sinks of settings that have been checked."""
    found = []
    for key, port in SINKS.items():
        address: str = getattr(settings, key)
        place = host_and_port(address, port) if address else None
        if place is None:
            continue
        line = dogstatsd_line(settings.datadog_tags) if key == "datadog_address" else statsd_line
        outlet = TcpOutlet(*place, env) if key == "statsite_address" else UdpOutlet(*place, env)
        found.append(MetricSink(f"{key}={address}", outlet, line, env))
    return found


async def _push(sinks: Iterable[MetricSink], gather: Callable[[], Awaitable[MetricsSnapshot]]) -> None:
    figures = await gather()
    for sink in sinks:
        await sink.push(figures)


async def run_sinks(settings: MetricSinkSettings, env: Env, gather: Callable[[], Awaitable[MetricsSnapshot]]) -> None:
    """Push until cancelled."""
    sinks = make_sinks(settings, env)
    with contextlib.ExitStack() as stack:
        for sink in sinks:
            stack.callback(sink.close)
        while True:
            began = env.monotonic()
            # Figures of parts that start, stop or break may be missing for once: the next push tries again.
            await attempted("pushing metrics", _push(sinks, gather))
            spent_s = env.monotonic() - began
            await env.sleep(max(settings.interval_s - spent_s, spent_s / DUTY_SHARE - spent_s, 0.0))
