"""Metrics that are pushed: the lines of statsd and DogStatsD, and sinks that are real sockets on loopback."""

from __future__ import annotations

import asyncio
import socket

import pytest
from yurt.agent.telemetry.settings import MetricSinkSettings
from yurt.agent.telemetry.sinks import (
    PACKET_BYTES,
    Differences,
    dogstatsd_line,
    make_sinks,
    packets,
    run_sinks,
    statsd_line,
)
from yurt.http.agent_routes.metrics_snapshot import MetricsSnapshot
from yurt.http.telemetry import TelemetrySettings
from yurt.runtime.env import RealEnv
from yurt.runtime.metrics import RECENT, Count, Duration, Gauge, Timing
from yurt.sdk.errors import Unavailable

ENV = RealEnv()
LIMIT_S = 10.0


def figures(count: int, *seconds: float) -> MetricsSnapshot:
    timing = Timing()
    for each in seconds:
        timing.add(each)
    return MetricsSnapshot(
        settings=TelemetrySettings(),
        at_once=(Gauge("nomad.client.uptime", 5.0, {"node_id": "a:b", "datacenter": "dc 1"}),),
        counts=(Count("nomad.nomad.rpc.request", count),),
        durations=(Duration("nomad.nomad.plan.submit", timing),),
    )


def test_statsd_gets_gauges_increases_and_each_new_duration() -> None:
    told = Differences()
    assert list(told.lines(figures(3, 0.001, 0.002), statsd_line)) == [
        "nomad.client.uptime.a_b.dc_1:5.000000|g",
        "nomad.nomad.rpc.request:3.000000|c",
        "nomad.nomad.plan.submit:1.000000|ms",
        "nomad.nomad.plan.submit:2.000000|ms",
    ]
    assert list(told.lines(figures(5, 0.001, 0.002, 0.004), statsd_line))[1:] == [
        "nomad.nomad.rpc.request:2.000000|c",
        "nomad.nomad.plan.submit:4.000000|ms",
    ]
    assert len(list(told.lines(figures(5, 0.001, 0.002, 0.004), statsd_line))) == 1


def test_many_durations_are_sampled_with_their_rate() -> None:
    lines = list(Differences().lines(figures(0, *[0.001] * (2 * RECENT)), statsd_line))
    assert len(lines) == 1 + RECENT and lines[-1].endswith("|ms|@0.5")


def test_dogstatsd_gets_labels_and_own_tags_as_tags() -> None:
    line = dogstatsd_line(["env:prod"])
    assert (
        line("nomad.client.uptime", {"node_id": "a"}, 5.0, "g") == "nomad.client.uptime:5.000000|g|#env:prod,node_id:a"
    )
    assert dogstatsd_line([])("x", {}, 1.0, "c") == "x:1.000000|c"


def test_lines_share_packets_up_to_a_frame() -> None:
    made = list(packets(f"metric.{number}:1|c" for number in range(500)))
    assert len(made) > 3 and max(map(len, made)) <= PACKET_BYTES
    assert b"".join(made).count(b"\n") == 500


@pytest.mark.parametrize("key", ["statsd_address", "datadog_address"])
async def test_a_udp_sink_gets_packets(key: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.setblocking(False)
        (sink,) = make_sinks(
            MetricSinkSettings(**{key: f"127.0.0.1:{listener.getsockname()[1]}"}, datadog_tags=("a:b",)), ENV
        )
        await sink.push(figures(3))
        async with asyncio.timeout(LIMIT_S):
            packet = await asyncio.get_running_loop().sock_recv(listener, 65_535)
        sink.close()
    assert b"nomad.nomad.rpc.request:3.000000|c" in packet
    assert (b"|#a:b" in packet) == (key == "datadog_address")


async def test_statsite_is_connected_to_again_after_it_was_lost() -> None:
    received: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received.put_nowait(await reader.readline())
        writer.close()

    server = await asyncio.start_server(take, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    (sink,) = make_sinks(MetricSinkSettings(statsite_address=f"127.0.0.1:{port}"), ENV)
    async with asyncio.timeout(LIMIT_S):
        await sink.push(figures(1))
        assert await received.get() == b"nomad.client.uptime.a_b.dc_1:5.000000|g\n"
        while received.empty():  # the first pushes after the loss may only notice it
            await sink.push(figures(1))
            await asyncio.sleep(0.01)
    sink.close()
    server.close()
    await server.wait_closed()


async def test_a_sink_that_cannot_be_reached_is_told_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # nobody listens
        (sink,) = make_sinks(MetricSinkSettings(statsite_address=f"127.0.0.1:{bound.getsockname()[1]}"), ENV)
        for _ in range(3):
            await sink.push(figures(1))
    assert len(caplog.records) == 1
    assert "metrics cannot be sent: sink=statsite_address=127.0.0.1:" in caplog.text


async def test_figures_that_cannot_be_gathered_once_do_not_end_the_pushing() -> None:
    rounds = asyncio.Queue[int]()

    async def gather() -> MetricsSnapshot:
        rounds.put_nowait(0)
        raise Unavailable("no leader")

    async with asyncio.timeout(LIMIT_S), asyncio.TaskGroup() as group:
        settings = MetricSinkSettings(statsd_address="127.0.0.1:9", interval_s=0.001)
        pushing = group.create_task(run_sinks(settings, ENV, gather))
        for _ in range(3):
            await rounds.get()
        pushing.cancel()
