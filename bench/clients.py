"""Many clients on one server, over real connections: each simulated client has its own, as an agent has.

    python -m bench clients [COUNT ...] [--hold [SECONDS]]

The clients live in two processes beside the server (`bench.cheap_clients`), which share the machine with it: what the
server itself takes for a heartbeat says what it could answer alone. With `--hold` they live as clients do, ten minutes
long, and the nodes that missed a heartbeat are counted.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from yurt.testing.agent import YURT
from yurt.testing.unique_ports import free_ports

from bench.table import Row, print_table

PROCESSES = 2
BEAT_S = 5.0
HOLD_S = 600.0
START_LIMIT_S = 30.0
STREAM_LIMIT_BYTES = 1 << 20
NOMAD = {
    1000: ("483", "1,311", "5,985 (17)", "0.09 ms", "", "227 MB"),
    5000: ("777", "1,278", "4,300 (33)", "0.26 ms", "", "971 MB"),
    10_000: ("613", "762", "2,218 (242)", "0.44 ms", "", "1,872 MB"),
}
"""Registrations/s, ready/s, heartbeats/s (p99 ms), the server's CPU for one, resident memory."""
TARGETS = ("1,554", "", "8,600", "", "8,600", "486 MB")
"""Twice, twice, half: for 5,000 clients."""


class Measured(NamedTuple):
    """What one run gave; rates a second."""

    registered: float
    register_cpu_ms: float
    ready: float
    beats: float
    beat_p99_ms: float
    cpu_ms: float
    rss_mb: float


class Crowd:
    """The processes with the clients."""

    def __init__(self, processes: list[asyncio.subprocess.Process]) -> None:
        self._processes = processes

    async def tell(self, line: str) -> tuple[list[dict[str, Any]], float]:
        """Have all of them do something; their figures, and the seconds until the last was done."""
        begin = time.perf_counter()
        answers = await asyncio.gather(*(_tell(process, line) for process in self._processes))
        return list(answers), time.perf_counter() - begin


async def _tell(process: asyncio.subprocess.Process, line: str) -> dict[str, Any]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{line}\n".encode())
    answer = await process.stdout.readline()
    if not answer:
        raise RuntimeError("the clients failed; what they say stands above")
    found: dict[str, Any] = json.loads(answer)
    return found


def main() -> None:
    """Measure and print."""
    words = [each for each in sys.argv[1:] if each != "--hold"]
    numbers = [int(each) for each in words if each.isdigit()]
    if "--hold" in sys.argv:
        seconds = float(numbers[1]) if len(numbers) > 1 else HOLD_S
        asyncio.run(hold(numbers[0] if numbers else 10_000, seconds))
        return
    for count in numbers or [1000, 5000]:
        show(count, asyncio.run(measure(count)))


def show(count: int, found: Measured) -> None:
    """The figures beside Nomad's."""
    heads = ("registrations/s", "initializing to ready/s", "heartbeats/s flat out (p99 ms)",
             "the server's CPU for a heartbeat", "heartbeats/s that a core of the server bears",
             "the server's memory, every client waiting")  # fmt: skip
    ours = (f"{found.registered:,.0f} ({found.register_cpu_ms:.2f} ms CPU)", f"{found.ready:,.0f}",
            f"{found.beats:,.0f} ({found.beat_p99_ms:.0f})", f"{found.cpu_ms:.3f} ms", f"{1000 / found.cpu_ms:,.0f}",
            f"{found.rss_mb:,.0f} MB")  # fmt: skip
    nomad = NOMAD.get(count, ("",) * len(heads))
    targets = TARGETS if count == 5000 else ("",) * len(heads)
    rows = [Row(*row) for row in zip(heads, nomad, ours, targets, strict=True)]
    print_table(f"{count:,} clients on one server", rows)


async def measure(count: int) -> Measured:
    """Connect, register, become ready, then beat as fast as the server answers."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="yurt-bench-"))
        server, ports = stack.enter_context(running_server(Path(folder)))
        crowd = await stack.enter_async_context(crowd_of(count, ports[1]))
        before = cpu_s(server)
        _, registered_s = await crowd.tell("register")
        register_cpu_ms = (cpu_s(server) - before) * 1000 / count
        _, ready_s = await crowd.tell("ready")
        await crowd.tell("follow")
        before = cpu_s(server)
        beats, beats_s = await crowd.tell(f"beat {BEAT_S}")
        total = sum(each["count"] for each in beats)
        return Measured(
            registered=count / registered_s,
            register_cpu_ms=register_cpu_ms,
            ready=count / ready_s,
            beats=total / beats_s,
            beat_p99_ms=max(each["p99_ms"] for each in beats),
            cpu_ms=(cpu_s(server) - before) * 1000 / total,
            rss_mb=server.memory_info().rss / 1e6,
        )


async def hold(count: int, seconds: float) -> None:
    """Live as clients do; says how many nodes were lost meanwhile."""
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="yurt-bench-"))
        server, ports = stack.enter_context(running_server(Path(folder)))
        crowd = await stack.enter_async_context(crowd_of(count, ports[1]))
        await crowd.tell("register")
        await crowd.tell("ready")
        await crowd.tell("follow")
        before, begin = cpu_s(server), time.time()
        beats, took_s = await crowd.tell(f"hold {seconds}")
        used_s = cpu_s(server) - before
        lost = [node["Name"] for node in get(ports[0], "/v1/nodes") if node["Status"] != "ready"]
        missed = missed_since(ports[0], begin)
        rows = [
            Row("seconds", "", f"{took_s:,.0f}", ""),
            Row("heartbeats (slowest)", "", f"{sum(each['count'] for each in beats):,} "
                f"({max(each['max_ms'] for each in beats):,.0f} ms)", ""),
            Row("nodes that are not ready at the end", "", str(len(lost)), "0"),
            Row("heartbeats missed", "", str(len(missed)), "0"),
            Row("the server's CPU", "", f"{used_s / took_s:.1%} of a core", ""),
            Row("the server's memory", "", f"{server.memory_info().rss / 1e6:,.0f} MB", ""),
        ]  # fmt: skip
        print_table(f"{count:,} clients live on one server", rows, other="")


def missed_since(port: int, begin: float) -> list[str]:
    """The nodes that were late since then; while all of them register, nobody beats."""
    nodes = [get(port, f"/v1/node/{each['ID']}") for each in get(port, "/v1/nodes")]
    return [node["Name"] for node in nodes if any(is_missed(event, begin) for event in node["Events"] or ())]


def is_missed(event: dict[str, Any], begin: float) -> bool:
    """Whether an event of a node says that a heartbeat did not come, after `begin`."""
    at = datetime.fromisoformat(event["Timestamp"][:19]).replace(tzinfo=UTC)
    return "missed" in event["Message"] and at.timestamp() >= begin


def get(port: int, path: str) -> Any:
    """An answer of the server's API."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return json.load(answer)


@asynccontextmanager
async def crowd_of(count: int, port: int) -> AsyncIterator[Crowd]:
    """Processes with so many clients together, which connect to the port."""
    share = -(-count // PROCESSES)
    firsts = range(0, count, share)
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.cheap_clients", str(port), str(first), str(min(share, count - first)),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, limit=STREAM_LIMIT_BYTES,
        )
        for first in firsts
    ]  # fmt: skip
    try:
        crowd = Crowd(processes)
        await crowd.tell("begin")
        yield crowd
    finally:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
            await process.wait()


def cpu_s(process: psutil.Process) -> float:
    """What the process has used."""
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def running_server(folder: Path) -> Iterator[tuple[psutil.Process, tuple[int, int]]]:
    """A server agent with its log on disk; its process, and its ports for HTTP and for agents."""
    http, rpc, serf = free_ports(3)
    config = folder / "server.json"
    config.write_text(
        json.dumps({
            "name": "bench", "data_dir": str(folder / "data"), "bind_addr": "127.0.0.1", "log_level": "WARN",
            "ports": {"http": http, "rpc": rpc, "serf": serf}, "server": {"enabled": True},
            "limits": {"rpc_max_conns_per_client": 0},
        })
    )  # fmt: skip
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen([*YURT, "agent", "-config", str(config)], stdout=log)
    try:
        wait_for_leader(f"http://127.0.0.1:{http}/v1/status/leader")
        yield psutil.Process(process.pid), (http, rpc)
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
