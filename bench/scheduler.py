"""The scheduler alone: state, scheduler, plan applied to the state. Prints a table beside Nomad's figures.

The rate beside Nomad's counts registering, scheduling and applying, as Nomad's does; the rate of the scheduler counts
its attempts alone, in time of the processor. The columns of the nodes are part of the state that is there before, and
the interpreter has run the code once, on a few other nodes; what the scheduler remembers of nodes it has yet to learn.
Beside the rate by the wall clock stands that by the processor, which other work on the machine changes less. Each case
has a process of its own: nothing that earlier cases left in memory counts, neither in the rates nor in the peak.
Each case runs several times, as a machine that others share is now fast and now slow: times and rates are medians, the
slowest and the fastest rate stand beside them, and the peak is the highest. All runs must place alike.

The cases are those of the comparison with Nomad 1.1.2 (one core of the same kind of machine): nodes of 16 GHz and
64 GiB in 5 datacenters, 125 racks, 4 kernels and 4 classes; all of a rack have the same kernel, and each class is in
every rack. An allocation asks 500 MHz and 1 GiB.

    python bench/scheduler.py [--json] [--runs N] [--case NAME ...]
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from statistics import median
from typing import Any, NamedTuple

from yurt import scheduler
from yurt.fsm import apply
from yurt.scheduler.capacity.quotas import QuotaLimits
from yurt.sdk.value import UnixNano, replace
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs.cluster import Namespace, PreemptionConfig, SchedulerConfiguration
from yurt.structs.constraint import Affinity, Constraint, Spread
from yurt.structs.evaluation import Evaluation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.network import NetworkResource, Port
from yurt.structs.node import (
    DriverInfo,
    Node,
    NodeCpuResources,
    NodeDevice,
    NodeDeviceResource,
    NodeDiskResources,
    NodeMemoryResources,
    NodeResources,
)
from yurt.structs.predicates import eval_type
from yurt.structs.quota import QuotaLimit, QuotaResources, QuotaSpec, with_hashes
from yurt.structs.resources import EphemeralDisk, RequestedDevice, Resources
from yurt.structs.status import NODE_DOWN, NODE_READY, NodeStatus
from yurt.structs.task import Task

NOW = UnixNano(1_700_000_000_000_000_000)
DATACENTERS, RACKS, KERNELS, CLASSES = 5, 125, 4, 4
WARM_FIRST, WARM_NODES = 1_000_000, 100
"""The numbers of the nodes that the code is run with before: none of them is in a case."""


class Case(NamedTuple):
    """What to place where; `nomad` is Nomad's rate in placements a second, and what follows how it placed them.

    Nomad's figures are 0 where none was measured. `is_changing`: before each job a node goes down or comes up.
    """

    name: str
    nodes: int
    jobs: Callable[[], Iterator[Job]]
    nomad: float = 0
    nomad_nodes_used: int = 0
    nomad_evenness: str = ""
    gpus: int = 0
    fill: int = 0
    is_changing: bool = False
    has_quota: bool = False
    """The namespace has a quota that never refuses: what it costs to be held to one."""


class Placing(NamedTuple):
    """How a case was placed: alike by each run of it."""

    placed: int
    nodes_used: int
    evenness: str
    preempted: int


class Result(NamedTuple):
    """What came out of one run."""

    wall_s: float
    cpu_s: float
    scheduler_s: float
    placing: Placing
    peak_rss_mb: int


class Summary(NamedTuple):
    """What came out of all runs: placements a second by the wall clock, the processor, and of the scheduler alone."""

    runs: int
    wall_s: float
    per_s: float
    slowest: float
    fastest: float
    per_cpu_s: float
    scheduler_per_s: float
    placing: Placing
    peak_rss_mb: int


def node(number: int, gpus: int) -> Node:
    """One of the benchmark's nodes."""
    node_id = f"{number:08x}-0000-4000-8000-{number:012x}"
    devices = tuple(
        NodeDeviceResource(
            vendor="nvidia",
            type="gpu",
            name="h200",
            instances=tuple(NodeDevice(id=f"gpu-{number}-{index}", healthy=True) for index in range(gpus)),
        )
        for _ in range(min(1, gpus))
    )
    return Node(
        id=node_id,
        name=f"node-{number}",
        datacenter=f"dc{number % DATACENTERS}",
        node_class=f"class-{number % CLASSES}",
        status="ready",
        attributes={
            "kernel.name": "linux",
            "kernel.version": f"5.{number % RACKS % KERNELS}.0",
            "cpu.arch": "amd64",
            "unique.hostname": f"host-{number}",
        },
        meta={"rack": f"r{number % RACKS}"},
        drivers={"exec": DriverInfo(detected=True, healthy=True)},
        node_resources=NodeResources(
            cpu=NodeCpuResources(cpu_shares=16_000, total_cpu_cores=8, reservable_cpu_cores=tuple(range(8))),
            memory=NodeMemoryResources(memory_mb=65_536),
            disk=NodeDiskResources(disk_mb=500_000),
            networks=(
                NetworkResource(mode="host", device="eth0", ip=f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"),
            ),
            devices=devices,
        ),
    )


def job(
    name: str,
    count: int,
    *,
    kind: str = "service",
    priority: int = 50,
    group: Mapping[str, Any] | None = None,
    resources: Resources | None = None,
) -> Job:
    """A job with one group of one task."""
    asked = resources or Resources(cpu=500, memory_mb=1024)
    made = TaskGroup(
        name="web",
        count=count,
        tasks=(Task(name="web", driver="exec", resources=asked),),
        ephemeral_disk=EphemeralDisk(size_mb=150),
    )
    return Job(
        id=name,
        name=name,
        type=kind,
        priority=priority,
        constraints=(Constraint(l_target="${attr.kernel.name}", operand="=", r_target="linux"),),
        task_groups=(replace(made, **(group or {})),),
    )


def one(made: Job) -> Callable[[], Iterator[Job]]:
    """A case of a single job."""
    return lambda: iter((made,))


def many(kind: str, count: int = 10) -> Callable[[], Iterator[Job]]:
    """A thousand jobs of so many."""
    return lambda: (job(f"{kind}-{number}", count, kind=kind) for number in range(1000))


SPREADS: Mapping[str, Any] = {
    "spreads": (Spread(attribute="${node.datacenter}", weight=50), Spread(attribute="${meta.rack}", weight=50))
}
AFFINITY: Mapping[str, Any] = {
    "constraints": (
        Constraint(l_target="${attr.unique.hostname}", operand="regexp", r_target="^host-[0-9]+$"),
        Constraint(l_target="${attr.kernel.version}", operand="version", r_target=">= 5.0"),
    ),
    "affinities": (
        Affinity(l_target="${node.class}", operand="=", r_target="class-1", weight=100),
        Affinity(l_target="${attr.kernel.version}", operand="version", r_target=">= 5.1", weight=50),
    ),
}
"""A quarter of the nodes has the class, three quarters of those a kernel that is preferred too: 186 of 1,000 are all
used, here and, but for how chance dealt its nodes, in Nomad's 192."""
PORT: Mapping[str, Any] = {"networks": (NetworkResource(mode="host", dynamic_ports=(Port(label="http"),)),)}
GPU = Resources(cpu=500, memory_mb=32_768 // 8, devices=(RequestedDevice(name="nvidia/gpu", count=1),))
GPUS = Resources(cpu=500, memory_mb=1024, devices=(RequestedDevice(name="nvidia/gpu", count=2),))
CASES = (
    Case("service-100x1000", 100, one(job("a", 1000)), 8019, 100),
    Case("service-1000x10000", 1000, one(job("a", 10_000)), 4038, 1000),
    Case("service-5000x10000", 5000, one(job("a", 10_000)), 5342, 5000),
    Case("service-5000x50000", 5000, one(job("a", 50_000)), 2230, 5000),
    Case("service-10000x10000", 10_000, one(job("a", 10_000)), 4347, 10000),
    Case("ports-5000x10000", 5000, one(job("a", 10_000, group=PORT)), 3801, 5000),
    Case("spread-1000x500", 1000, one(job("b", 500, group=SPREADS)), 19, 449, "rack 4-4"),
    Case("spread-1000x1000", 1000, one(job("b", 1000, group=SPREADS)), 27, 780, "rack 7-9"),
    Case("spread-5000x300", 5000, one(job("b", 300, group=SPREADS)), 4.3, 289, "rack 2-3"),
    Case("affinity-1000x500", 1000, one(job("c", 500, group=AFFINITY)), 89, 192),
    Case("affinity-5000x300", 5000, one(job("c", 300, group=AFFINITY)), 18, 300),
    Case("batch-5000x10000", 5000, one(job("d", 10_000, kind="batch")), 17_643, 5000),
    Case("many-5000x1000x10", 5000, many("service"), 1180, 1182),
    Case("many-batch-5000x1000x10", 5000, many("batch"), 3203, 3344),
    Case("changing-5000x1000x1", 5000, many("service", 1), is_changing=True),
    Case("quota-5000x10000", 5000, one(job("a", 10_000)), has_quota=True),
    Case("quota-5000x1000x10", 5000, many("service"), has_quota=True),
    Case("quota-gpu-1000x4000", 1000, one(job("g", 4000, resources=GPU)), gpus=8, has_quota=True),
    Case("system-5000", 5000, one(job("f", 1, kind="system")), 18_935, 5000),
    Case("gpu-1000x4000", 1000, one(job("g", 4000, resources=GPU)), 2657, 1000, gpus=8),
    Case("gpus-1000x2000", 1000, one(job("g", 2000, resources=GPUS)), 3333, 1000, gpus=8),
    Case(
        "preempt-1000x200",
        1000,
        one(job("h", 200, priority=90, resources=Resources(cpu=2000, memory_mb=8192))),
        12.4,
        1000,
        fill=16_000,
    ),
)


def run_alone(case: Case) -> Result:
    """One case in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        return processes.submit(run_named, case.name).result()


def run_named(name: str) -> Result:
    """The case of that name."""
    return run(next(case for case in CASES if case.name == name))


def run(case: Case) -> Result:
    """One case, from an empty cluster."""
    warm_up(case)
    state = cluster(range(case.nodes), case.gpus)
    if case.fill:
        config = SchedulerConfiguration(preemption_config=PreemptionConfig(service_scheduler_enabled=True))
        state = apply(state, c.SetSchedulerConfiguration(configuration=config), index=state.index + 1).state
        filler = job("filler", case.fill, priority=20, resources=Resources(cpu=1000, memory_mb=4096))
        state = place(state, filler).state
    if case.has_quota:
        state = with_quota(state)
    make_columns(state)
    placed = preempted = 0
    scheduler_s = 0.0
    gc.collect()
    gc.disable()
    jobs = list(case.jobs())
    started, cpu_started = time.perf_counter(), time.process_time()
    for number, made in enumerate(jobs):
        if case.is_changing:
            state = with_change(state, number)
        done = place(state, made)
        state = done.state
        placed += done.placed
        preempted += done.preempted
        scheduler_s += done.scheduler_s
    wall_s, cpu_s = time.perf_counter() - started, time.process_time() - cpu_started
    gc.enable()
    used = Counter(alloc.node_id for made in jobs for alloc in state.allocs_of_job(made.namespace, made.id))
    racks = Counter(state.nodes[node_id].meta["rack"] for node_id in used.elements())
    evenness = f"rack {min(racks.values(), default=0)}-{max(racks.values(), default=0)}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return Result(wall_s, cpu_s, scheduler_s, Placing(placed, len(used), evenness, preempted), peak)


def summary(name: str, results: Sequence[Result]) -> Summary:
    """The medians of a case's runs; stops when they did not place alike."""
    placings = {result.placing for result in results}
    assert len(placings) == 1, f"{name}: its runs place differently: {placings}"
    placing = results[0].placing
    rates = [placing.placed / result.wall_s for result in results]
    return Summary(
        runs=len(results),
        wall_s=median(result.wall_s for result in results),
        per_s=median(rates),
        slowest=min(rates),
        fastest=max(rates),
        per_cpu_s=median(placing.placed / result.cpu_s for result in results),
        scheduler_per_s=median(placing.placed / result.scheduler_s for result in results),
        placing=placing,
        peak_rss_mb=max(result.peak_rss_mb for result in results),
    )


class Done(NamedTuple):
    """The state after a job, and what that took."""

    state: Snapshot
    placed: int
    preempted: int
    scheduler_s: float


def place(state: Snapshot, made: Job) -> Done:
    """Register, evaluate and apply."""
    state = apply(state, c.RegisterJob(job=made), index=state.index + 1).state
    evaluation = Evaluation(id=f"eval-{made.id}", job_id=made.id, type=eval_type(made), triggered_by="job-register")
    started = time.process_time()
    attempt = scheduler.attempt(state, evaluation, now=NOW, seed=1, limits=QuotaLimits("global"))
    scheduler_s = time.process_time() - started
    state = apply(state, c.ApplyPlan(plan=attempt.plan), index=state.index + 1).state
    return Done(state, len(attempt.plan.placements), len(attempt.plan.preemptions), scheduler_s)


def cluster(numbers: Iterable[int], gpus: int) -> Snapshot:
    """A state with these nodes."""
    state = Snapshot.empty()
    for number in numbers:
        state = apply(state, c.RegisterNode(node=node(number, gpus)), index=state.index + 1).state
    return state


def with_quota(state: Snapshot) -> Snapshot:
    """The default namespace with limits in every dimension, all of them too high to be met."""
    most = 1 << 40
    limits = QuotaResources(
        cpu=most, memory_mb=most, memory_max_mb=most, devices=(RequestedDevice(name="nvidia/gpu", count=most),)
    )
    spec = with_hashes(QuotaSpec(name="q", limits=(QuotaLimit(region="global", region_limit=limits),)))
    state = apply(state, c.UpsertQuotas(quotas=(spec,)), index=state.index + 1).state
    bound = c.UpsertNamespaces(namespaces=(Namespace(name="default", quota="q"),))
    return apply(state, bound, index=state.index + 1).state


def with_change(state: Snapshot, number: int) -> Snapshot:
    """One of the nodes went down or came up; each second change takes the one before back."""
    changed = node(number // 2, 0)
    status: NodeStatus = NODE_READY if number % 2 else NODE_DOWN
    command = c.SetNodeStatus(node_id=changed.id, status=status, updated_at=NOW // 1_000_000_000)
    return apply(state, command, index=state.index + 1).state


def make_columns(state: Snapshot) -> None:
    """Have the state make the columns of its nodes, as a running server has."""
    columns = state.columns
    assert len(columns.nodes.offered) == len(columns.used) == len(columns.nodes.ids)


def warm_up(case: Case) -> None:
    """Run the code that the case runs, as a running server has: the interpreter is slower at what it does first."""
    state = cluster(range(WARM_FIRST, WARM_FIRST + WARM_NODES), case.gpus)
    make_columns(state)
    place(state, next(case.jobs()))


def json_line(case: Case, found: Summary) -> str:
    """One object: rates are medians in placements a second, and so are `slowest` and `fastest` among the runs."""
    record = {
        "case": case.name,
        "nodes": case.nodes,
        "placed": found.placing.placed,
        "runs": found.runs,
        "placements_per_s": round(found.per_s, 1),
        "slowest": round(found.slowest, 1),
        "fastest": round(found.fastest, 1),
        "placements_per_cpu_s": round(found.per_cpu_s, 1),
        "scheduler_placements_per_s": round(found.scheduler_per_s, 1),
        "nodes_used": found.placing.nodes_used,
        "peak_rss_mb": found.peak_rss_mb,
        "preempted": found.placing.preempted,
        "evenness": found.placing.evenness,
        "nomad_placements_per_s": case.nomad,
        "nomad_nodes_used": case.nomad_nodes_used,
        "nomad_evenness": case.nomad_evenness,
    }
    return json.dumps(record)


HEADER = (
    f"{'case':<26}{'placed':>8}{'wall s':>9}{'placements/s':>14}{'slowest':>9}{'fastest':>9}{'Nomad':>9}{'x':>8}"
    f"{'by CPU/s':>12}{'scheduler/s':>13}{'nodes used':>12}{'Nomad':>7}{'peak MB':>9}  evenness (Nomad)"
)


def table_line(case: Case, found: Summary) -> str:
    """The figures of a case below `HEADER`."""
    nomad, ratio = (f"{case.nomad:,.0f}", f"{found.per_s / case.nomad:.1f}") if case.nomad else ("", "")
    return (
        f"{case.name:<26}{found.placing.placed:>8}{found.wall_s:>9.3f}{found.per_s:>14,.0f}{found.slowest:>9,.0f}"
        f"{found.fastest:>9,.0f}{nomad:>9}{ratio:>8}{found.per_cpu_s:>12,.0f}{found.scheduler_per_s:>13,.0f}"
        f"{found.placing.nodes_used:>12}{case.nomad_nodes_used:>7}{found.peak_rss_mb:>9}  {found.placing.evenness}"
        f"{f' ({case.nomad_evenness})' if case.nomad_evenness else ''}"
    )


def main() -> None:
    """Run the chosen cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one object a line")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="run each case so often (3)")
    parser.add_argument("--case", action="extend", nargs="+", metavar="NAME", help="run only these cases")
    options = parser.parse_args()
    unknown = set(options.case or ()) - {case.name for case in CASES}
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}; there are: {', '.join(case.name for case in CASES)}")
    if options.runs < 1:
        parser.error("each case runs at least once")
    if not options.json:
        print(HEADER)
    line_of = json_line if options.json else table_line
    for case in CASES:
        if not options.case or case.name in options.case:
            print(line_of(case, summary(case.name, [run_alone(case) for _ in range(options.runs)])), flush=True)


if __name__ == "__main__":
    main()
