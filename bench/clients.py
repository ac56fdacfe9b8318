"""Many clients on one server, over real connections: each simulated client has its own, as an agent has, and all of
them live in this process, which shares the cores with the server. Run it with `python -m bench clients [COUNT ...]`.
"""

from __future__ import annotations

import asyncio
import json
import math
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
import uvloop
from yurt.client.ports import ServerPort
from yurt.rpc.contract import contract_of
from yurt.rpc.frames import Hello
from yurt.rpc.link import Link
from yurt.rpc.proxy import far_port
from yurt.runtime.env import RealEnv
from yurt.sdk.value import replace
from yurt.structs.node import Node
from yurt.structs.rpc import RegisterNodeRequest
from yurt.structs.status import NODE_INIT, NODE_READY
from yurt.testing.agent import YURT, free_ports

from bench.scheduler import node
from bench.table import Row, print_table

IN_FLIGHT = 64
BEAT_S = 5.0
START_LIMIT_S = 30.0
STEP_LIMIT_S = 300.0
PULL_S = 300.0
SERVER_PORT = contract_of(ServerPort)
NOMAD = {
    1000: ("483", "1,311", "5,985 (17)", "0.09 ms", "227 MB"),
    5000: ("777", "1,278", "4,300 (33)", "0.26 ms", "971 MB"),
    10_000: ("613", "762", "2,218 (242)", "0.44 ms", "1,872 MB"),
}
"""Registrations/s, ready/s, heartbeats/s (p99 ms), the server's CPU for one, resident memory."""
TARGETS = ("1,554", "", "8,600", "", "486 MB")
"""Twice, twice, half: for 5,000 clients."""


class Measured(NamedTuple):
    """What one run gave; rates a second."""

    registered: float
    ready: float
    beats: float
    beat_p99_ms: float
    cpu_ms: float
    rss_mb: float


class Simulated:
    """One client: a node and its connection."""

    def __init__(self, port: int, given: Node) -> None:
        self.node = given
        hello = Hello(node_id=given.id, secret_id=given.secret_id, region="global", name=given.name)
        self.link = Link((f"127.0.0.1:{port}",), hello=lambda: hello, serves={}, env=RealEnv())
        self.server: ServerPort = far_port(SERVER_PORT, "server", self.link.peer, repeats=True)

    async def register(self) -> None:
        """As initializing."""
        await self.server.register_node(RegisterNodeRequest(node=self.node))

    async def beat(self) -> None:
        """As ready."""
        await self.server.heartbeat(self.node.id, NODE_READY)

    async def follow(self) -> None:
        """Wait for allocations, as a client always does."""
        index = 0
        while True:
            pulled = await self.server.pull_allocs(self.node.id, min_index=index, timeout_s=PULL_S)
            index = max(pulled.index, 1)


def main() -> None:
    """Measure and print."""
    counts = [int(each) for each in sys.argv[2:] if each.isdigit()] or [1000, 5000]
    for count in counts:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            found = runner.run(measure(count))
        heads = ("registrations/s", "initializing to ready/s", "heartbeats/s flat out (p99 ms)",
                 "the server's CPU for a heartbeat", "the server's memory, every client waiting")  # fmt: skip
        ours = (f"{found.registered:,.0f}", f"{found.ready:,.0f}", f"{found.beats:,.0f} ({found.beat_p99_ms:.0f})",
                f"{found.cpu_ms:.2f} ms", f"{found.rss_mb:,.0f} MB")  # fmt: skip
        nomad = NOMAD.get(count, ("",) * len(heads))
        targets = TARGETS if count == 5000 else ("",) * len(heads)
        print_table(
            f"{count:,} clients on one server", [Row(*row) for row in zip(heads, nomad, ours, targets, strict=True)]
        )


async def measure(count: int) -> Measured:
    """Connect, register, become ready, then beat as fast as the server answers."""
    with tempfile.TemporaryDirectory(prefix="yurt-bench-") as folder, running_server(Path(folder)) as (process, port):
        clients = [Simulated(port, given(number)) for number in range(count)]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.link.run()) for client in clients]
            registered_s = await timed_for_all(clients, Simulated.register)
            ready_s = await timed_for_all(clients, Simulated.beat)
            tasks += [group.create_task(client.follow()) for client in clients]
            cpu_before = cpu_s(process)
            delays = await beat_flat_out(clients)
            cpu_ms = (cpu_s(process) - cpu_before) * 1000 / len(delays)
            rss_mb = process.memory_info().rss / 1e6
            for task in tasks:
                task.cancel()
    delays.sort()
    return Measured(
        registered=count / registered_s,
        ready=count / ready_s,
        beats=len(delays) / BEAT_S,
        beat_p99_ms=delays[math.floor(len(delays) * 0.99)] * 1000,
        cpu_ms=cpu_ms,
        rss_mb=rss_mb,
    )


def given(number: int) -> Node:
    """A node as a client registers it."""
    return replace(node(number, 0), secret_id=f"secret-{number}", status=NODE_INIT)


async def timed_for_all(clients: Sequence[Simulated], step: Callable[[Simulated], Awaitable[None]]) -> float:
    """Seconds until all have done it, some at a time."""
    free = asyncio.Semaphore(IN_FLIGHT)

    async def one(client: Simulated) -> None:
        async with free:
            await step(client)

    begin = time.perf_counter()
    async with asyncio.timeout(STEP_LIMIT_S):
        await asyncio.gather(*(one(client) for client in clients))
    return time.perf_counter() - begin


async def beat_flat_out(clients: Sequence[Simulated]) -> list[float]:
    """The seconds that each heartbeat took."""
    delays: list[float] = []
    end = time.perf_counter() + BEAT_S

    async def beats(first: int) -> None:
        number = first
        while (begin := time.perf_counter()) < end:
            await clients[number % len(clients)].beat()
            delays.append(time.perf_counter() - begin)
            number += IN_FLIGHT

    await asyncio.gather(*(beats(first) for first in range(IN_FLIGHT)))
    return delays


def cpu_s(process: psutil.Process) -> float:
    """What the process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def running_server(folder: Path) -> Iterator[tuple[psutil.Process, int]]:
    """A server agent with its log on disk; its process and where it takes clients."""
    http, rpc, serf = free_ports(3)
    config = folder / "server.json"
    config.write_text(
        json.dumps({
            "name": "bench", "data_dir": str(folder / "data"), "bind_addr": "127.0.0.1", "log_level": "ERROR",
            "ports": {"http": http, "rpc": rpc, "serf": serf}, "server": {"enabled": True},
            "limits": {"rpc_max_conns_per_client": 0},
        })
    )  # fmt: skip
    process = subprocess.Popen([*YURT, "agent", "-config", str(config)], stdout=subprocess.DEVNULL)
    try:
        wait_for_leader(f"http://127.0.0.1:{http}/v1/status/leader")
        yield psutil.Process(process.pid), rpc
    finally:
        process.terminate()
        process.wait(timeout=60)


def wait_for_leader(url: str) -> None:
    """Ask until a leader is named."""
    end = time.monotonic() + START_LIMIT_S
    while not has_leader(url):
        if time.monotonic() > end:
            sys.exit("the server did not start")
        time.sleep(0.05)


def has_leader(url: str) -> bool:
    """Whether the server answers with a leader."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(json.load(answer))
    except OSError:
        return False


if __name__ == "__main__":
    main()
