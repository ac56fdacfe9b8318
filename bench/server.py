"""The whole server: jobs registered over HTTP until their allocations are committed and visible, beside Nomad.

Nomad's are those of one agent (server only, log on disk) with 5,000 simulated nodes on the same kind of machine. This
process, which sends the jobs and reads meanwhile, shares the cores with the server.

    python -m bench server [--nodes 5000] [--jobs N]

With --jobs N it only registers N service jobs of one allocation, with the log in memory: a short run to compare two
checkouts in turns. Compare the server's processor time (readers included): other work on the machine changes it least.
"""

from __future__ import annotations

import argparse
import atexit
import http.client
import itertools
import json
import os
import queue
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import psutil
from yurt.testing.unique_ports import free_ports

from bench.scheduler import node
from bench.table import Row, print_table

NODES = 5000
SENDERS = 24
LIMIT_S = 120.0
READ_PAUSE_S = 0.01
POLL_S = 0.01
PROCESS_CLOCK = 2
"""CPUCLOCK_SCHED of the kernel: what the scheduler gave to a process."""


class Case(NamedTuple):
    """Jobs to register; `target` and `nomad` are rates of jobs, or of allocations when `by_alloc`."""

    what: str
    jobs: int
    size: int
    on_disk: bool
    nomad: str
    target: str
    by_alloc: bool = False
    runs: int = 1


class Measured(NamedTuple):
    """What one run gave."""

    seconds: float
    cpu_ms: float
    """Of the server's process, for one job."""
    read_p99_ms: float
    rss_mb: float
    rejected_share: float


CASES = (
    Case("1,000 service jobs of 1, log in memory", 1000, 1, False, "", "", runs=3),
    Case("1,000 service jobs of 1, sqlite", 1000, 1, True, "29-78 jobs/s", "1,000 jobs/s", runs=3),
    Case("one service job of 10,000, sqlite", 1, 10_000, True, "", "", by_alloc=True, runs=3),
    Case("100 service jobs of 1,000, sqlite", 100, 1000, True, "790 allocs/s", "30,000 allocs/s", by_alloc=True),
)
FIRST = Case("modules are compiled", 1, 1, True, "", "")
"""A run that is not shown: it compiles the modules (`environment`)."""
FIRST_NODES = 10
NOMAD_RSS = {100: "3,499 MB", 1000: "1,131 MB"}
RSS_TARGETS = {100: "300 MB"}


class Options(argparse.Namespace):
    """The command line."""

    nodes: int
    jobs: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench server")
    parser.add_argument("--nodes", type=int, default=NODES, help=f"simulated clients (default {NODES})")
    parser.add_argument(
        "--jobs", type=int, default=0, help="only register this number of service jobs of one allocation"
    )
    options = parser.parse_args(namespace=Options())
    few = Case(f"{options.jobs:,} service jobs of 1, log in memory", options.jobs, 1, False, "", "", runs=3)
    measure(FIRST, FIRST_NODES)
    rows: list[Row] = []
    for case in (few,) if options.jobs else CASES:
        rows.extend(rows_of(case, [measure(case, options.nodes) for _ in range(case.runs)]))
    print_table(f"server, {options.nodes:,} nodes", rows)


def rows_of(case: Case, runs: Sequence[Measured]) -> Iterator[Row]:
    """The medians of a case."""
    unit, total = ("allocs/s", case.jobs * case.size) if case.by_alloc else ("jobs/s", case.jobs)
    rate = total / statistics.median(run.seconds for run in runs)
    read_ms = statistics.median(run.read_p99_ms for run in runs)
    rss = statistics.median(run.rss_mb for run in runs)
    rejected = statistics.median(run.rejected_share for run in runs) * 100
    yield Row(case.what, case.nomad, f"{rate:,.0f} {unit}", case.target)
    cpu_ms = sorted(run.cpu_ms for run in runs)
    yield Row(
        "  CPU of the server a job", "", f"{statistics.median(cpu_ms):.2f} ({cpu_ms[0]:.2f}-{cpu_ms[-1]:.2f}) ms", ""
    )
    yield Row("  reads meanwhile, p99", "17-29 ms idle", f"{read_ms:.0f} ms", "30 ms")
    on_disk = case.on_disk
    yield Row("  memory at the end (RSS)", NOMAD_RSS.get(case.jobs, "") if on_disk else "", f"{rss:,.0f} MB",
              RSS_TARGETS.get(case.jobs, ""))  # fmt: skip
    yield Row("  rejected placements", "", f"{rejected:.2f} %", "< 1 %")


def measure(case: Case, nodes: int) -> Measured:
    """One run on a new server."""
    bodies = [json.dumps({"Job": service_job(f"job-{number}", case.size)}).encode() for number in range(case.jobs)]
    with tempfile.TemporaryDirectory() as folder, running(nodes, folder if case.on_disk else "") as server:
        reader = Reader(server.port)
        begin, cpu_s = time.perf_counter(), server.cpu_s
        server.send_all(bodies)
        figures = server.wait_placed(case.jobs * case.size)
        took, cpu_s = time.perf_counter() - begin, server.cpu_s - cpu_s
        p99 = reader.stop()
        server.check_placed(case.jobs, case.size)
        rss = psutil.Process(server.process.pid).memory_info().rss / 1e6
        return Measured(took, cpu_s * 1000 / case.jobs, p99, rss, figures["rejected"] / figures["placements"])


def processor_s(pid: int) -> float:
    """The processor time of a process so far, of all its threads, to the nanosecond (Linux).

    Its clock is the one that `clock_getcpuclockid` of the C library gives; Python has that for threads only.
    """
    return time.clock_gettime((~pid << 3) | PROCESS_CLOCK)


class BenchedServer:
    """The server's process and its API."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    @property
    def cpu_s(self) -> float:
        """The processor time of the server's process so far, of all its threads."""
        return processor_s(self.process.pid)

    def figures(self, what: str = "") -> dict[str, float]:
        """What the server says of itself; of the lag of its event loop when asked for that."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(f"{what}\n")
        self.process.stdin.flush()
        found: dict[str, float] = json.loads(self.process.stdout.readline())
        return found

    def stop(self) -> float:
        """Have the server end in good order; how many seconds that took."""
        assert self.process.stdin is not None and self.process.stdout is not None
        begin = time.perf_counter()
        self.process.stdin.close()
        if self.process.stdout.readline() != "stopped\n":
            raise RuntimeError("the server did not stop in good order")
        return time.perf_counter() - begin

    def send_all(self, bodies: Sequence[bytes]) -> None:
        """Register jobs over some connections at once."""
        waiting: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        for body in bodies:
            waiting.put(registration(body))
        failures: list[str] = []

        def send() -> None:
            with Connection(self.port) as connection:
                while True:
                    try:
                        request = waiting.get_nowait()
                    except queue.Empty:
                        return
                    status, text = connection.ask(request)
                    if status != 200:
                        failures.append(text.decode())

        senders = [threading.Thread(target=send) for _ in range(min(SENDERS, len(bodies)))]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
        if failures:
            raise RuntimeError(f"{len(failures)} jobs were refused, the first with: {failures[0]}")

    def wait_placed(self, count: int) -> dict[str, float]:
        """Wait until so many allocations are visible and no evaluation is pending."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            figures = self.figures()
            if figures["allocs"] >= count and not figures["pending"]:
                return figures
            time.sleep(POLL_S)
        raise TimeoutError(f"{figures['allocs']} of {count} allocations after {LIMIT_S:.0f} s")

    def check_placed(self, jobs: int, count: int) -> None:
        """The API shows what the figures say."""
        rows = get(http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S), "/v1/jobs")
        placed = [row["JobSummary"]["Summary"]["main"]["Starting"] for row in rows]
        if placed != [count] * jobs:
            raise RuntimeError(f"the API shows {sum(placed)} allocations of {len(placed)} jobs")


class Connection:
    """A connection that stays open and takes requests as they go over the wire.

    The standard library's client writes headers and body one after the other, and takes a third of a millisecond for
    an answer, which the server lacks where both share two cores.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        self._answers = self._socket.makefile("rb")

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()

    def ask(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body of the answer, which tells its length."""
        self.send(request)
        return self.receive()

    def send(self, request: bytes) -> None:
        """Send a request; its answer is still to be received."""
        self._socket.sendall(request)

    def receive(self) -> tuple[int, bytes]:
        """As `ask`, for the request that was sent."""
        status, length = int(self._answers.readline().split()[1]), 0
        while (line := self._answers.readline().lower().strip()) != b"":
            name, _, value = line.partition(b":")
            if name == b"content-length":
                length = int(value)
        return status, self._answers.read(length)


def registration(body: bytes) -> bytes:
    """The request that registers a job."""
    return b"PUT /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


class Reader:
    """Reads one thing after another while the server works, and remembers how long each took."""

    PATHS = ("/v1/job/job-0/summary", f"/v1/node/{node(0, 0).id}", "/v1/jobs?prefix=job-0", "/v1/job/job-0")

    def __init__(self, port: int) -> None:
        self._port = port
        self._stopped = threading.Event()
        self._took_ms: list[float] = []
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def stop(self) -> float:
        """The 99th percentile, in milliseconds."""
        self._stopped.set()
        self._thread.join()
        return sorted(self._took_ms)[int(len(self._took_ms) * 0.99)]

    def _read(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=LIMIT_S)
        for path in itertools.cycle(self.PATHS):
            begin = time.perf_counter()
            connection.request("GET", path)
            connection.getresponse().read()
            self._took_ms.append((time.perf_counter() - begin) * 1000)
            if self._stopped.wait(READ_PAUSE_S):
                connection.close()
                return


@cache
def environment() -> Mapping[str, str]:
    """The environment of the servers: they find their modules compiled, as those of an installed package are.

    What compiles them leaves space in the heap of Python: 5.5 MB at ef3dc44, 8.5 MB at dc7763ec (10 nodes, SQLite).
    """
    folder = tempfile.mkdtemp(prefix="bench-compiled-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**given, "PYTHONPYCACHEPREFIX": folder}


@contextmanager
def running(nodes: int, folder: str, *, has_acl: bool = False) -> Iterator[BenchedServer]:
    """A server in a process of its own, ended afterwards."""
    (port,) = free_ports(1)
    options = [*([folder] if folder else []), *(["--acl"] if has_acl else [])]
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.server_process", str(port), str(nodes), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("the server did not start")
        yield BenchedServer(process, port)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()


def get(connection: http.client.HTTPConnection, path: str) -> Any:
    """The decoded answer to a read."""
    connection.request("GET", path)
    return json.loads(connection.getresponse().read())


def service_job(name: str, count: int, *, cpu: int = 100, memory_mb: int = 64) -> dict[str, Any]:
    """A service job of one group with one task."""
    task = {
        "Name": "main",
        "Driver": "exec",
        "Config": {"command": "/bin/sleep"},
        "Resources": {"CPU": cpu, "MemoryMB": memory_mb},
    }
    return {
        "ID": name,
        "Name": name,
        "Type": "service",
        "TaskGroups": [{"Name": "main", "Count": count, "Tasks": [task]}],
    }


if __name__ == "__main__":
    main()
