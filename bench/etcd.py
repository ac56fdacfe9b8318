"""The command log on etcd: appends on three loopback members, and how long a cluster is without a leader.

A take-over is measured with three servers as processes of their own, each with its etcd member: the leader and its etcd
are killed with kill -9 while it appends, and the time counts until another server has an append acknowledged. Run it
with `python -m bench etcd`.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from yurt.runtime.env import RealEnv
from yurt.storage.etcd.log import EtcdLog
from yurt.testing.agent import wait_for
from yurt.testing.log_process import LogProcess, log_processes
from yurt.testing.log_server import LogServer, running, wait_leader
from yurt.testing.services.etcd import LocalEtcd, local_etcd, member_configs

from bench.table import Row, print_table

KILLS = 20
APPEND_PAUSE_S = 0.01
CALM_S = (1.0, 2.0)
LIMIT_S = 60.0


class Batch(NamedTuple):
    """Appends of so many commands of so many bytes."""

    commands: int
    size: int
    appends: int


BATCHES = (Batch(1, 100, 400), Batch(10, 1000, 400), Batch(100, 1000, 150), Batch(1000, 1000, 30))


def main() -> None:
    """Measure and print."""
    with local_etcd(3) as etcd:
        rows = [row for batch in BATCHES for row in asyncio.run(measure_appends(etcd, batch))]
        rows += asyncio.run(measure_confirms(etcd))
        print_table("command log on three loopback etcd members", rows, other="")
    gaps = measure_take_overs()
    text = f"{statistics.median(gaps):.2f} s (from {min(gaps):.2f} to {max(gaps):.2f}, n = {len(gaps)})"
    print_table("leader and its etcd killed", [Row("next acknowledged append, median", "3.2 s", text, "1.0 s")])


def make_server(etcd: LocalEtcd, folder: str) -> LogServer:
    """The server beside the first member; every run has a region of its own."""
    member = etcd.members[0]
    log = EtcdLog(
        endpoints=(member.endpoint,),
        folder=Path(folder),
        name=member.name,
        region=f"bench-{time.monotonic_ns()}",
        env=RealEnv(),
        own_endpoint=member.endpoint,
    )
    return LogServer(member.name, log)


async def measure_appends(etcd: LocalEtcd, batch: Batch) -> list[Row]:
    """Latency and rate of appends, one after another as the log demands."""
    took = []
    with tempfile.TemporaryDirectory() as folder:
        async with running(make_server(etcd, folder)) as server:
            await wait_leader([server])
            for _ in range(batch.appends):
                began = time.perf_counter()
                await server.append([1] * batch.commands, size=batch.size)
                took.append(time.perf_counter() - began)
    p50, p99 = (1000 * each for each in (statistics.median(took), sorted(took)[int(len(took) * 0.99)]))
    rate = batch.commands * len(took) / sum(took)
    what = f"append of {batch.commands} x {batch.size:,} bytes"
    return [
        Row(f"{what}, p50 / p99", "", f"{p50:.1f} / {p99:.1f} ms", ""),
        Row(what, "", f"{rate:,.0f} commands/s", ""),
    ]


async def measure_confirms(etcd: LocalEtcd) -> list[Row]:
    """What a default read waits for, alone and when fifty wait."""
    with tempfile.TemporaryDirectory() as folder:
        async with running(make_server(etcd, folder)) as server:
            await wait_leader([server])
            alone, many = [], []
            for _ in range(200):
                began = time.perf_counter()
                await server.log.confirm()
                alone.append(time.perf_counter() - began)
                began = time.perf_counter()
                await asyncio.gather(*(server.log.confirm() for _ in range(50)))
                many.append(time.perf_counter() - began)
    text = f"{1000 * statistics.median(alone):.1f} / {1000 * statistics.median(many):.1f} ms"
    return [Row("confirmation of a read, alone / 50 at once, p50", "", text, "")]


def measure_take_overs() -> list[float]:
    """Seconds from each kill to the next acknowledged append."""
    chance = random.Random(1)
    with (
        tempfile.TemporaryDirectory(prefix="etcd-", ignore_cleanup_errors=True) as folder,
        log_processes(member_configs(3, Path(folder)), pause_s=APPEND_PAUSE_S) as servers,
    ):
        return [measure_take_over(servers, chance) for _ in range(KILLS)]


def measure_take_over(servers: list[LogProcess], chance: random.Random) -> float:
    """Kill the one that leads; it is started again afterwards."""
    wait_for("all servers run", lambda: all(server.is_open for server in servers), LIMIT_S)
    calm_at = time.monotonic() + chance.uniform(*CALM_S)
    wait_for("appends go on", lambda: newest(servers) > calm_at, LIMIT_S)
    leader = max(servers, key=lambda server: server.acks[-1].at if server.acks else 0.0)
    killed_at = time.monotonic()
    leader.kill()
    wait_for("another one leads", lambda: newest(servers) > killed_at + APPEND_PAUSE_S, LIMIT_S)
    first = min(ack.at for server in servers for ack in list(server.acks) if ack.at > killed_at + APPEND_PAUSE_S)
    leader.start()
    return first - killed_at


def newest(servers: list[LogProcess]) -> float:
    """When the last append was acknowledged."""
    return max((server.acks[-1].at for server in servers if server.acks), default=0.0)
