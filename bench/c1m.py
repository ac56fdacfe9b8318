"""A million allocations on one server: jobs over HTTP until all are placed, committed to the log on disk and visible.

5,000 simulated clients (`bench.simulated_clients`, in the server's process) have registered and send heartbeats. A
second process, this one, sends the jobs and reads meanwhile; it shares the cores with the server, and its memory is
counted. The same is done with fewer, so that the growth can be seen, and with a thousand jobs of one allocation. At
the end the server stops in good order and another one restores the million.

    python -m bench c1m
"""

from __future__ import annotations

import json
import os
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.server import NODES, Reader, running, service_job
from bench.server_process import LAG
from bench.table import Row, print_table

ASK = {"cpu": 50, "memory_mb": 32}
SHAPES = ((1, 1000), (10, 1000), (100, 1000), (1000, 1000))
TINY = (1000, 1)
TINY_RUNS = 5
"""A run of a second is told by the median of some."""


class Measured(NamedTuple):
    """What one run gave; `peak_mb` is the most memory that the server had, `own_peak_mb` what this process had."""

    allocs: int
    seconds: float
    cpu_us: float
    rejected_share: float
    read_p99_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    peak_mb: float
    own_peak_mb: float
    memory_each: float
    log_each: float
    stop_s: float
    snapshot_mb: float


class Restored(NamedTuple):
    """From the start of a server to ready."""

    seconds: float
    cpu_s: float


def main() -> None:
    """Measure and print."""
    growth = []
    restored = Restored(0.0, 0.0)
    for jobs, size in SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            growth.append(measure(jobs, size, folder))
            if (jobs, size) == SHAPES[-1]:
                restored = restore(folder, growth[-1].allocs)
    tiny = statistics.median(each.allocs / each.seconds for each in tiny_runs())
    million, thousands = growth[-1], growth[-2]
    rows = [
        Row("1,000 jobs of 1,000", "266 s, five servers (2016)", f"{million.seconds:.1f} s", "45 s"),
        Row("  CPU of the server", "", f"{million.cpu_us * million.allocs / 1e6:.1f} s", ""),
        Row("  peak memory, server + this", "", memory_of(million), "2,500 MB"),
        Row("  rejected placements", "", f"{million.rejected_share:.2%}", "< 1 %"),
        Row("  HTTP reads meanwhile, p99", "17-29 ms idle", f"{million.read_p99_ms:.0f} ms", "30 ms"),
        Row("  event loop late, p99 / at most", "", f"{million.lag_p99_ms:.0f} / {million.lag_max_ms:.0f} ms", ""),
        Row("  stop, with a last snapshot", "", f"{million.stop_s:.1f} s, {million.snapshot_mb:,.0f} MB", ""),
        Row("  restore: start to ready", "", f"{restored.seconds:.1f} s, {restored.cpu_s:.1f} s CPU", "15 s"),
        Row("100 jobs of 1,000", "790/s", f"{thousands.allocs / thousands.seconds:,.0f}/s", "30,000/s"),
        Row("  peak memory, server + this", "3,499 MB", memory_of(thousands), "300 MB"),
        Row("1,000 jobs of 1", "29-78/s", f"{tiny:,.0f}/s", "1,000/s"),
    ]
    print_table(f"a million, {NODES:,} nodes, log on disk", rows)
    print_table("each allocation", [row for run in growth for row in growth_rows(run)])


def tiny_runs() -> Iterator[Measured]:
    """Jobs of one allocation, each time on a new server."""
    for _ in range(TINY_RUNS):
        with tempfile.TemporaryDirectory() as folder:
            yield measure(*TINY, folder)


def memory_of(run: Measured) -> str:
    """The peaks of both processes."""
    return f"{run.peak_mb:,.0f} + {run.own_peak_mb:,.0f} MB"


def growth_rows(run: Measured) -> Iterator[Row]:
    """Time and bytes of one allocation: flat when nothing grows faster than what is placed."""
    yield Row(f"of {run.allocs:,}: time", "", f"{run.seconds / run.allocs * 1e6:.1f} us", "flat")
    yield Row("  CPU of the server", "", f"{run.cpu_us:.1f} us", "flat")
    yield Row("  memory of the server", "", f"{run.memory_each:,.0f} B", "flat")
    yield Row("  log", "", f"{run.log_each:,.0f} B", "flat")


def measure(jobs: int, size: int, folder: str) -> Measured:
    """One run on a new server with its data in the folder, ended in good order."""
    bodies = [json.dumps({"Job": service_job(f"job-{number}", size, **ASK)}).encode() for number in range(jobs)]
    count = jobs * size
    with running(NODES, folder) as server:
        process = psutil.Process(server.process.pid)
        before, memory, log = server.figures(), process.memory_info().rss, log_bytes(folder)
        server.figures(LAG)
        reader = Reader(server.port)
        begin = time.perf_counter()
        server.send_all(bodies)
        figures = server.wait_placed(count)
        seconds = time.perf_counter() - begin
        read_p99_ms, lag = reader.stop(), server.figures(LAG)
        server.check_placed(jobs, size)
        memory_each, log_each = (process.memory_info().rss - memory) / count, (log_bytes(folder) - log) / count
        peak = peak_mb(server.process.pid)
        stop_s = server.stop()
    return Measured(
        allocs=count,
        seconds=seconds,
        cpu_us=(figures["cpu_ms"] - before["cpu_ms"]) * 1000 / count,
        rejected_share=figures["rejected"] / figures["placements"],
        read_p99_ms=read_p99_ms,
        lag_p99_ms=lag["lag_p99_ms"],
        lag_max_ms=lag["lag_max_ms"],
        peak_mb=peak,
        own_peak_mb=peak_mb(os.getpid()),
        memory_each=memory_each,
        log_each=log_each,
        stop_s=stop_s,
        snapshot_mb=sum(path.stat().st_size for path in Path(folder, "snapshots").iterdir()) / 1e6,
    )


def restore(folder: str, count: int) -> Restored:
    """Start a server on what another one left, until it is ready."""
    begin = time.perf_counter()
    with running(0, folder) as server:
        seconds = time.perf_counter() - begin
        figures = server.figures()
    if figures["allocs"] != count:
        raise RuntimeError(f"{figures['allocs']:,.0f} of {count:,} allocations were restored")
    return Restored(seconds, figures["cpu_ms"] / 1000)


def log_bytes(folder: str) -> int:
    """What the command log takes on disk, by the rows in it: its files are made larger in steps."""
    with closing(sqlite3.connect(Path(folder, "log.db"))) as connection:
        size: int = connection.execute("SELECT COALESCE(SUM(LENGTH(commands)), 0) FROM entries").fetchone()[0]
    return size


def peak_mb(pid: int) -> float:
    """The most memory that a process ever had, in MB."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024 / 1e6


if __name__ == "__main__":
    main()
