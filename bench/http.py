"""Measures HTTP reads: the time of each route, beside Nomad's, and the memory of many blocking queries.

    python -m bench http [--seconds 1.5] [--rounds 3] [--nodes 5000] [--parked 10000] [--readers 1000]

One server in a process of its own holds 5,000 nodes, 2,000 jobs of one allocation and 10 of 1,000. Its state does not
change while the routes are measured: the lists are those of a cluster at rest, sent as they were encoded for the first
request; `cold` is the first answer of a list after a change. Rates are those of 16 and of 256 connections, medians of
the rounds; a rate is what the machine gives to two busy processes, the processor's time for each answer is what the
server needs and other work on the machine changes little.

Nomad's figures are those of release 1.1.2 on the same kind of machine with 5,000 nodes, 2,100 jobs and 102,000
allocations, over 16 connections (its load generator shared the cores too). Its list of allocations was not measured
that way: it sent 72 MB whatever page was asked for.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import psutil

from bench.http_load import Load, Wake, allow_files, load, wake, wake_readers
from bench.server import BenchedServer, Connection, registration, running, service_job

JOBS, LARGE_JOBS, LARGE = 2_000, 10, 1_000
FEW, MANY = 16, 256
FILES: Final = 32_768
EACH: Final = 64
"""Different objects that are asked for in turn on the route of one object."""


class Route(NamedTuple):
    """A route: its path with the field in braces, the requests, and Nomad's answers a second over 16 connections."""

    path: str
    targets: Sequence[str]
    nomad: int = 0


class Measured(NamedTuple):
    """One route: its answer's bytes, the first answer after a change, and what 16 and 256 connections got."""

    body_bytes: int
    cold_ms: float
    few: list[Load]
    many: list[Load]
    cpu_us: list[float]
    """Of the server's processor time for an answer over 16 connections, by round."""


class Options(argparse.Namespace):
    """The command line."""

    seconds: float
    rounds: int
    nodes: int
    parked: int
    readers: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench http")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each round (default 1.5)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--parked", type=int, default=10_000, help="blocking queries that wait at once")
    parser.add_argument("--readers", type=int, default=1_000, help="readers of the event stream")
    options = parser.parse_args(namespace=Options())
    allow_files(FILES)
    with running(options.nodes, "") as server:
        add_jobs(server)
        at_rest_mb = memory(server) / 1e6
        print_routes((route, measured(server, route, options)) for route in routes(server))
        print(
            f"memory of the server: {at_rest_mb:,.0f} MB before the reads, {memory(server) / 1e6:,.0f} MB after them\n"
        )
        print_waiting(server, options)


def message(target: str) -> bytes:
    """A GET as it goes over the wire."""
    return f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def memory(server: BenchedServer) -> int:
    """Resident bytes of the server."""
    return int(psutil.Process(server.process.pid).memory_info().rss)


def add_jobs(server: BenchedServer) -> None:
    """Register the jobs and wait for their allocations."""
    small = [service_job(f"job-{number}", 1, cpu=10, memory_mb=10) for number in range(JOBS)]
    large = [service_job(f"large-{number}", LARGE, cpu=10, memory_mb=10) for number in range(LARGE_JOBS)]
    server.send_all([json.dumps({"Job": job}).encode() for job in (*small, *large)])
    server.wait_placed(JOBS + LARGE_JOBS * LARGE)


def ids(server: BenchedServer, target: str) -> list[str]:
    """The ids of a list's first rows."""
    with Connection(server.port) as connection:
        return [row["ID"] for row in json.loads(connection.ask(message(target))[1])]


def routes(server: BenchedServer) -> Iterator[Route]:
    """The measured ones."""
    jobs = [f"job-{number}" for number in range(EACH)]
    allocs = ids(server, f"/v1/allocations?per_page={EACH}")
    nodes = ids(server, f"/v1/nodes?per_page={EACH}")
    evals = ids(server, f"/v1/evaluations?per_page={EACH}")
    yield Route("/v1/status/leader", ["/v1/status/leader"], 34_845)
    yield Route("/v1/job/:id", [f"/v1/job/{each}" for each in jobs], 16_880)
    yield Route("/v1/job/:id/summary", [f"/v1/job/{each}/summary" for each in jobs], 26_534)
    yield Route("/v1/job/:id/allocations (1)", [f"/v1/job/{each}/allocations" for each in jobs])
    yield Route("/v1/job/:id/evaluations", [f"/v1/job/{each}/evaluations" for each in jobs])
    yield Route("/v1/allocation/:id", [f"/v1/allocation/{each}" for each in allocs], 7_205)
    yield Route("/v1/node/:id", [f"/v1/node/{each}" for each in nodes])
    yield Route("/v1/evaluation/:id", [f"/v1/evaluation/{each}" for each in evals])
    yield Route("/v1/evaluations?prefix=00", ["/v1/evaluations?prefix=00"], 12_905)
    # All ids begin so here, and 20 of 5,000 did on Nomad.
    yield Route("/v1/nodes?prefix=00&per_page=20", ["/v1/nodes?prefix=00&per_page=20"], 4_254)
    yield Route(f"/v1/job/:id/allocations ({LARGE:,})", ["/v1/job/large-0/allocations"], 27)
    yield Route("/v1/jobs", ["/v1/jobs"], 48)
    yield Route("/v1/nodes", ["/v1/nodes"], 20)
    yield Route("/v1/allocations?per_page=100", ["/v1/allocations?per_page=100"])
    yield Route("/v1/allocations", ["/v1/allocations"])


def measured(server: BenchedServer, route: Route, options: Options) -> Measured:
    """All of one route; what it says first is not counted among the rates."""
    change(server)
    cold = load(server.port, [message(route.targets[0])], connections=1, seconds=0.0)
    requests = [message(target) for target in route.targets]
    few, many, cpu_us = [], [], []
    for _ in range(options.rounds):
        before = server.figures()["cpu_ms"]
        few.append(load(server.port, requests, connections=FEW, seconds=options.seconds))
        cpu_us.append((server.figures()["cpu_ms"] - before) * 1000 / few[-1].answers)
        many.append(load(server.port, requests, connections=MANY, seconds=options.seconds))
    return Measured(cold.body_bytes, cold.p99_ms, few, many, cpu_us)


def change(server: BenchedServer) -> None:
    """Register the job again, which changes jobs, evaluations and allocations."""
    job = service_job("parked", 1, cpu=10, memory_mb=10) | {"Meta": {"at": str(time.monotonic_ns())}}
    with Connection(server.port) as connection:
        status, body = connection.ask(registration(json.dumps({"Job": job}).encode()))
    if status != 200:
        raise RuntimeError(body.decode())


def print_routes(found: Iterable[tuple[Route, Measured]]) -> None:
    """One line for each route, as soon as it is measured."""
    line = "{:<32} {:>9} {:>8} {:>8} {:>15} {:>8} {:>9} {:>8} {:>8} {:>8} {:>7}".format
    print(line("GET", "bytes", "cold ms", "16: 1/s", "slowest-fastest", "p99 ms", "CPU us", "256: 1/s", "p99 ms",
               "Nomad", "ratio"))  # fmt: skip
    for route, got in found:
        rates = sorted(each.rate for each in got.few)
        rate = statistics.median(rates)
        spread = f"{rates[0]:,.0f}-{rates[-1]:,.0f}"
        print(line(
            route.path, f"{got.body_bytes:,}", f"{got.cold_ms:.1f}", f"{rate:,.0f}", spread,
            f"{middle(got.few, lambda each: each.p99_ms):.1f}", f"{statistics.median(got.cpu_us):,.0f}",
            f"{middle(got.many, lambda each: each.rate):,.0f}", f"{middle(got.many, lambda each: each.p99_ms):.0f}",
            f"{route.nomad:,}" if route.nomad else "", f"{rate / route.nomad:.2f}" if route.nomad else "",
        ), flush=True)  # fmt: skip
    print()


def middle(found: Sequence[Load], of: Callable[[Load], float]) -> float:
    """The median of a figure over the rounds."""
    return statistics.median(map(of, found))


def print_waiting(server: BenchedServer, options: Options) -> None:
    """Blocking queries and readers of the event stream."""
    change(server)

    def figure() -> int:
        return memory(server)

    def change_now() -> None:
        change(server)

    stream = message("/v1/event/stream?topic=Job")
    print_wake("readers of the event stream", options.readers,
               wake_readers(server.port, stream, options.readers, memory=figure, change=change_now))  # fmt: skip
    with Connection(server.port) as connection:
        index = json.loads(connection.ask(message("/v1/job/parked"))[1])["ModifyIndex"]
    parked = message(f"/v1/job/parked?index={index + 1_000_000}&wait=1s")  # warms the path of those that wait
    load(server.port, [parked], connections=1, seconds=0.0)
    target = f"/v1/job/parked?index={index}&wait=300s"
    print_wake("blocking queries", options.parked,
               wake(server.port, message(target), options.parked, memory=figure, change=change_now))  # fmt: skip


def print_wake(what: str, count: int, found: Wake) -> None:
    """One line."""
    print(
        f"{count:,} {what}: {found.bytes_each / 1024:.1f} KiB each, all awake {found.all_awake_s:.2f} s after a change"
    )


if __name__ == "__main__":
    main()
