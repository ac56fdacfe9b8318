"""Compares queue policies on job traces in one simulator.

    python -m bench queue [-trace FILE] [-skip N] [-jobs N] [-load L ...] [-policy TEXT ...] [-json]
    python -m bench queue -look
    python -m bench queue -starts [-trace FILE] [-skip N] [-jobs N] [-load L ...]
    python -m bench queue -scale [-jobs N]

Without a trace, jobs are drawn from the model of Lublin and Feitelson: large parallel jobs. A trace is a CSV file with
the columns timestamp, duration, num_gpus and cluster. Run times are cut at 2 days, limits that users declare are 1.05
to 8 times the run time, and the pool has as many GPUs as make the work the wanted load; it has no fragmentation.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

from yurt.queue.backfill import BackfillRules

from bench.queue import look, scale, starts, trace
from bench.queue.engine import Policy, Simulation
from bench.queue.figures import Figures, figures, private_ends
from bench.queue.policies import EASY, Cohorts, DynamicPriority, FairShare, FairTree, Fifo, Multifactor

SEED = 7
MINUTE_S, HOUR_S = 60, 3600
YURT = BackfillRules(reservations=1, depth=500)


def policies(tenants: int) -> dict[str, Callable[[], Policy]]:
    """By name, in the order of the table."""
    made: list[Callable[[], Policy]] = [
        Fifo,
        lambda: Fifo("FIFO, backfill (EASY)", EASY),
        Multifactor,
        FairTree,
        DynamicPriority,
        lambda: Cohorts(tenants, is_strict=False),
        lambda: Cohorts(tenants, is_strict=True),
        lambda: FairShare(YURT),
    ]
    return {make().name: make for make in made}


def main() -> None:
    """Print a table for each load."""
    parser = argparse.ArgumentParser(prog="bench queue", description=__doc__.split("\n", 1)[0])
    parser.add_argument("-trace", type=Path)
    parser.add_argument("-jobs", type=int, default=5_000)
    parser.add_argument("-load", type=float, nargs="+", default=[1.0])
    parser.add_argument("-policy", nargs="*", default=[], help="parts of the names of those to run")
    parser.add_argument("-json", action="store_true")
    parser.add_argument("-skip", type=int, default=0, help="jobs of the trace before the first")
    parser.add_argument("-scale", action="store_true", help="measure memory, a restart and a drain of -jobs instead")
    parser.add_argument("-look", action="store_true", help="measure the cost of the gate instead")
    parser.add_argument("-starts", action="store_true", help="measure the error of start forecasts instead")
    options = parser.parse_args()
    if options.look:
        look.show(look.Size())
        return
    if options.scale:
        scale.show(look.Size(), options.jobs)
        return
    for load in options.load:
        if options.trace is not None:
            work = trace.from_csv(options.trace, skip=options.skip, count=options.jobs, load=load, seed=SEED)
        else:
            work = trace.drawn(count=options.jobs, load=load, seed=SEED)
        if options.starts:
            print(json.dumps({"load": work.name, "gpus": work.gpus} | starts.measured(work, FairShare(YURT))._asdict()))
            continue
        found = {}
        if not options.json:
            print_head(work)
        for name, one in compare(work, options.policy):
            found[name] = one._asdict()
            if not options.json:
                print_row(name, one)
        if options.json:
            print(json.dumps({"load": work.name, "gpus": work.gpus, "policies": found}))


def compare(work: trace.Load, expected: list[str]) -> Iterator[tuple[str, Figures]]:
    """The figures of each policy of which the name has one of these parts; of all without any."""
    private = private_ends(work)
    for name, make in policies(len(work.tenants)).items():
        if not expected or any(part in name for part in expected):
            yield name, figures(work, Simulation(work.jobs, work.gpus, make()).run(), private)


def print_head(work: trace.Load) -> None:
    """Print the head of the table: waits in minutes and hours, then the other figures."""
    print(f"{work.name}: {len(work.jobs)} jobs, {len(work.tenants)} tenants, {work.gpus} GPUs")
    print(
        f"{'policy':36}{'mean':>7}{'p50':>6}{'p95 h':>7}{'max h':>7}{'8+ mean':>9}{'p95 h':>7}{'max h':>7}{'bsld':>7}"
        f"{'rho>':>6}{'worst':>7}{'Jain h':>7}{'d':>6}{'use':>6}{'idle':>6}{'evict':>6}{'lost h':>8}{'ms':>8}",
        flush=True,
    )


def print_row(name: str, one: Figures) -> None:
    """One policy."""
    every, large = one.waits["all"], one.waits["8+"]
    print(
        f"{name:36}{every.mean_s / MINUTE_S:7.0f}{every.median_s / MINUTE_S:6.0f}{every.p95_s / HOUR_S:7.1f}"
        f"{every.longest_s / HOUR_S:7.1f}{large.mean_s / MINUTE_S:9.0f}{large.p95_s / HOUR_S:7.1f}"
        f"{large.longest_s / HOUR_S:7.1f}{one.slowdown:7.1f}{one.worse_percent:5.0f}%"
        f"{one.worst_rho:7.1f}{one.jain['1 h']:7.2f}{one.jain['1 d']:6.2f}{one.utilisation_percent:5.1f}%"
        f"{one.stranded_percent:5.1f}%{one.evictions:6}{one.lost_gpu_h:8.0f}{one.decision_ms[0]:8.2f}",
        flush=True,
    )
