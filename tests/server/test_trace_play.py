"""A trace is played by the real scheduler and the real queue: who starts when, who waits, and what is counted."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.fsm.node_class import computed_class
from yurt.fsm.snapshot import digest
from yurt.queue.played_trace import TraceJob, private_ends, waits_by_class
from yurt.sdk.errors import Invalid
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano, replace
from yurt.server.simulation.pool_units import NO_NODE, NOT_AT_ONCE, TOO_FEW_UNITS, NodeAmounts, PoolUnits, pool_units
from yurt.server.simulation.trace_play import Submission, TraceOutcome, TracePlan, play_trace
from yurt.state import Snapshot, Tables
from yurt.structs.alloc import (
    AllocatedCpuResources,
    AllocatedDeviceResource,
    AllocatedResources,
    AllocatedTaskResources,
)
from yurt.structs.cluster import Namespace, NodePool, PreemptionConfig, SchedulerConfiguration
from yurt.structs.node import NodeDevice, NodeDeviceResource
from yurt.structs.queueing.batch_queue import HOUR, BatchQueue, FairShareQueue, FifoQueue
from yurt.testing import factories
from yurt.testing.quotas import guaranteed, quota

NOW = UnixNano(factories.NOW)
MINUTE = 60 * NANOSECONDS
FIFO = BatchQueue(fifo=FifoQueue())
FAIR = BatchQueue(fair_share=FairShareQueue(half_life=Duration(24 * HOUR)))


def cluster(nodes: int, *, cards: int = 4, queue: BatchQueue | None = FIFO, preempts: bool = False) -> Snapshot:
    edit = Snapshot.empty().edit(5)
    edit.put(Tables.node_pools, "gpu", NodePool(name="gpu", batch_queue=queue))
    config = SchedulerConfiguration(preemption_config=PreemptionConfig(batch_scheduler_enabled=preempts))
    edit.put(Tables.scheduler_configurations, "", config)
    for number in range(nodes):
        instances = tuple(NodeDevice(id=f"card-{number}-{card}", healthy=True) for card in range(cards))
        device = NodeDeviceResource(vendor="nvidia", type="gpu", name="h100", instances=instances)
        made = factories.node(factories.number_id(number + 1), node_pool="gpu")
        made = replace(made, node_resources=replace(made.node_resources, devices=(device,)))
        made = replace(made, computed_class=computed_class(made))
        edit.put(Tables.nodes, made.id, made)
    return edit.commit()


def submitted(number: int, at: int, lasts: int, gpus: int, *, limit: int = 0, **more: Any) -> Submission:
    """At and for so many minutes."""
    tenant = more.pop("tenant", "team")
    job = TraceJob(number, at * MINUTE, lasts * MINUTE, limit * MINUTE, gpus, tenant)
    return Submission(job, gpus=gpus, cpu=100, memory_mb=16, **more)


def played(state: Snapshot, *submissions: Submission, **more: Any) -> TraceOutcome:
    return play_trace(state, TracePlan(submissions, "gpu", "gpu", "global", **more), now=NOW)


def starts(outcome: TraceOutcome) -> dict[int, int]:
    return {number: start // MINUTE for number, start in outcome.starts.items()}


def test_jobs_start_when_others_end_and_the_state_is_as_it_was() -> None:
    state = cluster(1)
    before = digest(state)
    found = played(state, submitted(1, 0, 10, 4), submitted(2, 1, 5, 2), submitted(3, 2, 5, 2), submitted(4, 3, 1, 4))
    assert starts(found) == {1: 0, 2: 10, 3: 10, 4: 15}
    assert {number: end // MINUTE for number, end in found.ends.items()} == {1: 10, 2: 15, 3: 15, 4: 16}
    assert (found.capacity, found.unplaced, found.cut, found.preemptions) == (4, {}, 0, 0)
    assert found.tally.busy_s == 4 * 16 * 60
    assert digest(state) == before
    waits = waits_by_class([one.job for one in (submitted(2, 1, 5, 2), submitted(3, 2, 5, 2))], found.starts)
    assert (waits["2-7"].mean_s, waits["2-7"].longest_s) == (8.5 * 60, 9 * 60)


def test_a_job_without_a_queue_starts_once_it_fits() -> None:
    found = played(cluster(1, queue=None), submitted(1, 0, 10, 3), submitted(2, 1, 5, 2), submitted(3, 2, 5, 1))
    assert starts(found) == {1: 0, 3: 2, 2: 10}


def test_a_short_job_runs_before_one_that_cannot_start_yet() -> None:
    jobs = [submitted(1, 0, 60, 3, limit=60), submitted(2, 1, 10, 4, limit=20), submitted(3, 2, 5, 1, limit=10)]
    assert starts(played(cluster(1, queue=FAIR), *jobs)) == {1: 0, 3: 2, 2: 60}


def test_a_job_larger_than_a_node_is_a_gang() -> None:
    found = played(cluster(2), submitted(1, 0, 10, 1), submitted(2, 1, 10, 8), submitted(3, 30, 1, 12))
    assert starts(found) == {1: 0, 2: 10}
    assert list(found.unplaced) == [3]
    assert "more GPUs than the 8 that jobs can have" in found.unplaced[3]


def with_service(state: Snapshot, id: str, *cards: str, namespace: str = "team", node: int = 1) -> Snapshot:
    """A service whose allocation has some cards of a node."""
    job = replace(factories.job(id), namespace=namespace, node_pool="gpu")
    edit = state.edit(state.index + 1)
    edit.put(Tables.jobs, job.key, job)
    if cards:
        devices = (AllocatedDeviceResource(vendor="nvidia", type="gpu", name="h100", device_ids=cards),)
        resources = AllocatedResources(tasks={"task": AllocatedTaskResources(devices=devices)})
        made = factories.alloc(job, node_id=factories.number_id(node))
        made = replace(made, allocated_resources=resources, client_status="running")
        edit.put(Tables.allocs, made.id, made)
    return edit.commit()


def test_a_job_without_gpus_takes_none() -> None:
    """It runs beside a job that has all GPUs, and counts in no size class of them."""
    jobs = (submitted(1, 0, 10, 4), submitted(2, 1, 5, 0), submitted(3, 2, 5, 1))
    found = played(cluster(1), *jobs)
    assert starts(found) == {1: 0, 2: 1, 3: 10}
    assert found.tally.busy_s == (4 * 10 + 5) * 60
    waits = waits_by_class([one.job for one in jobs], found.starts)
    assert (waits["0"].jobs, waits["1"].jobs, waits["all"].jobs) == (1, 1, 3)
    assert set(private_ends([one.job for one in jobs], 4)) == {1, 3}


def test_a_waiting_job_without_gpus_strands_none() -> None:
    found = played(cluster(1), submitted(1, 0, 10, 2), submitted(2, 1, 5, 0)._replace(cpu=4000))
    assert starts(found) == {1: 0, 2: 10}
    assert found.tally.idle_unused_s == 0


def test_what_services_keep_is_no_capacity() -> None:
    state = with_service(cluster(2), "web", "card-0-0", "card-0-1", "card-0-2::3")
    found = played(state, submitted(1, 0, 10, 4), submitted(2, 0, 10, 4), submitted(3, 0, 10, 6))
    assert (found.capacity, found.kept) == (5, 3)
    assert starts(found) == {1: 0, 2: 10}
    assert found.unplaced == {3: "it asks for more GPUs than the 5 that jobs can have"}
    assert found.tally.busy_s == 4 * 20 * 60
    all_kept = with_service(cluster(1, cards=1), "web", "card-0-0")
    with pytest.raises(Invalid, match='services and system jobs keep all GPUs of the pool "gpu"'):
        played(all_kept, submitted(1, 0, 1, 1))


@pytest.mark.parametrize(
    ("size", "count", "is_rounded"),
    [(1, 1, False), (8, 1, False), (12, 2, False), (9, 3, False), (17, 17, False), (127, 127, False)],
)
def test_a_size_is_split_into_equal_allocations(size: int, count: int, is_rounded: bool) -> None:
    units = PoolUnits((NodeAmounts(gpus=8),) * 20, NodeAmounts())
    assert units.split(NodeAmounts(gpus=size), size) == (count, is_rounded, "")


def test_a_large_prime_is_rounded_up() -> None:
    """10,007 MHz would be 10,007 allocations of 1 MHz each."""
    units = PoolUnits((NodeAmounts(cpu=8000, memory_mb=100),) * 5, NodeAmounts())
    assert units.split(NodeAmounts(cpu=10_007), 10_007) == (2, True, "")
    assert units.split(NodeAmounts(cpu=10_000, memory_mb=450), 10_000) == (5, False, ""), "memory decides"
    assert units.split(NodeAmounts(gpus=1, cpu=10), 1) == (1, False, NO_NODE)


@pytest.mark.parametrize(
    ("free", "size", "split"),
    [
        ((3, 3, 4, 3), 8, (4, False, "")),
        ((3, 3, 4, 3), 12, (4, False, "")),
        ((3, 3, 4, 3), 11, (11, False, "")),
        ((8, 1), 9, (9, False, "")),
        ((100, *(1,) * 600), 600, (600, False, "")),
        ((2, 2), 5, (1, False, NOT_AT_ONCE)),
    ],
)
def test_the_parts_of_a_job_fit_all_at_once(free: tuple[int, ...], size: int, split: tuple[int, bool, str]) -> None:
    units = PoolUnits(tuple(NodeAmounts(gpus=each) for each in free), NodeAmounts())
    assert units.split(NodeAmounts(gpus=size), size) == split


def test_no_job_gets_more_units_than_it_asks_for_since_it_is_split_by_memory() -> None:
    units = PoolUnits((NodeAmounts(gpus=8, memory_mb=10), NodeAmounts(memory_mb=10_000)), NodeAmounts())
    assert units.split(NodeAmounts(gpus=1, memory_mb=100), 1) == (1, False, TOO_FEW_UNITS)


def test_a_gang_starts_where_services_keep_a_part_of_each_node() -> None:
    state = cluster(4)
    for node in (1, 2, 4):
        state = with_service(state, f"web-{node}", f"card-{node - 1}-0", node=node)
    found = played(state, submitted(1, 0, 10, 8), submitted(2, 1, 10, 1))
    assert starts(found) == {1: 0, 2: 1}


@pytest.mark.parametrize(("memory_mb", "problem"), [(10**9, TOO_FEW_UNITS), (2 * 8192 + 1, NOT_AT_ONCE)])
def test_a_job_that_cannot_be_held_blocks_nobody(memory_mb: int, problem: str) -> None:
    state = with_service(with_service(cluster(2), "web", "card-0-0"), "db", "card-1-0", node=2)
    heavy = submitted(1, 0, 10, 4)._replace(memory_mb=memory_mb)
    found = played(state, heavy, submitted(2, 0, 10, 6), submitted(3, 1, 10, 1))
    assert starts(found) == {2: 0, 3: 10}
    assert found.unplaced == {1: problem}


def test_free_cores_are_as_many_as_free_mhz_have() -> None:
    """The factory's node has 4,000 MHz in 4 cores; a service takes 2,500 MHz without cores, another one core."""
    state = cluster(2)
    nodes = [state.nodes[factories.number_id(number)] for number in (1, 2)]
    cpu = replace(nodes[0].node_resources.cpu, cpu_shares=4000, total_cpu_cores=4, reservable_cpu_cores=(0, 1, 2, 3))
    nodes = [replace(each, node_resources=replace(each.node_resources, cpu=cpu)) for each in nodes]
    edit = state.edit(state.index + 1)
    given = (AllocatedCpuResources(cpu_shares=2500), AllocatedCpuResources(cpu_shares=1000, reserved_cores=(2,)))
    for number, (node, share) in enumerate(zip(nodes, given, strict=True)):
        resources = AllocatedResources(tasks={"task": AllocatedTaskResources(cpu=share)})
        made = factories.alloc(factories.job(f"web-{number}"), node_id=node.id)
        edit.put(Tables.allocs, made.id, replace(made, allocated_resources=resources, client_status="running"))
    found = pool_units(edit.commit(), nodes)
    reserved = nodes[0].reserved_resources.cpu.cpu_shares
    assert reserved == 0
    assert [(each.cores, each.cpu) for each in found.free] == [(1, 1500), (3, 3000)]
    assert (found.reserved.cores, found.reserved.cpu) == (4, 3500)


def test_rounded_jobs_are_counted_and_run() -> None:
    state = cluster(2)
    big = Submission(TraceJob(1, 0, MINUTE, 0, 4001, "team"), cpu=4001)
    found = play_trace(state, TracePlan((big,), "MHz", "gpu", "global"), now=NOW)
    assert (found.rounded, list(found.starts)) == (1, [1])
    assert found.tally.busy_s == 4002 * 60


def test_played_jobs_have_ids_that_no_job_of_the_cluster_has() -> None:
    """A service called like a played job would be replaced by it."""
    state = with_service(cluster(1), "trace-1")
    found = played(state, submitted(1, 0, 10, 4))
    assert starts(found) == {1: 0}
    assert (found.unplaced, found.last - NOW) == ({}, 10 * MINUTE)


def test_a_job_ends_at_its_limit() -> None:
    found = played(cluster(1), submitted(1, 0, 100, 4, limit=30), submitted(2, 1, 5, 4))
    assert starts(found) == {1: 0, 2: 30}
    assert found.cut == 1


def test_a_preempted_job_starts_again_from_the_beginning() -> None:
    low, high = submitted(1, 0, 20, 4, priority=10), submitted(2, 10, 5, 4, priority=90)
    found = played(cluster(1, queue=None, preempts=True), low, high)
    assert starts(found) == {1: 0, 2: 10}
    assert (found.preemptions, found.lost_s) == (1, 4 * 10 * 60)
    assert found.ends[1] // MINUTE == 15 + 20


def test_the_error_of_forecasts_is_measured() -> None:
    jobs = [submitted(number, number, 10, 4, limit=10) for number in range(30)]
    found = played(cluster(1), *jobs, has_forecasts=True)
    assert found.accuracy is not None
    assert (found.accuracy.starts, found.accuracy.median_error) == (29, 0), "each lasts as long as it declares"


def test_equal_traces_give_equal_outcomes() -> None:
    jobs = [submitted(n, n * 3, 7 * n % 40 + 1, n % 6 + 1, limit=50, tenant=f"team-{n % 3}") for n in range(40)]
    first, second = (played(cluster(2, queue=FAIR), *jobs) for _ in range(2))
    assert (first.starts, first.ends, first.attempts) == (second.starts, second.ends, second.attempts)


@pytest.mark.parametrize(
    ("state", "unit", "problem"),
    [
        (cluster(0), "gpu", 'the node pool "gpu" has no ready node'),
        (cluster(1, cards=0), "gpu", 'the nodes of the pool "gpu" have no GPUs'),
    ],
)
def test_what_cannot_be_played_is_said(state: Snapshot, unit: str, problem: str) -> None:
    with pytest.raises(Invalid, match=problem):
        play_trace(state, TracePlan((submitted(1, 0, 1, 1),), unit, "gpu", "global"), now=NOW)


@pytest.mark.parametrize("queue", [FIFO, None])
def test_a_job_starts_when_the_protection_of_a_borrower_ends(queue: BatchQueue | None) -> None:
    """Only a delayed evaluation says so: nothing ends and nobody submits at that time."""
    edit = cluster(1).edit(6)
    for name, units in (("a", 1), ("b", 2)):
        spec = replace(quota(name, cpu=4000), protection=Duration(30 * MINUTE))
        edit.put(Tables.quotas, name, guaranteed(spec, cpu=units * 1000))
        edit.put(Tables.namespaces, name, Namespace(name=name, quota=name))
    edit.put(Tables.node_pools, "gpu", NodePool(name="gpu", batch_queue=queue))
    borrowers = [submitted(number, 0, 1000, 1, tenant="a")._replace(cpu=2000) for number in (1, 2)]
    owner = submitted(3, 1, 5, 1, tenant="b")._replace(cpu=2000)
    found = played(edit.commit(), *borrowers, owner)
    assert starts(found) == {1: 0, 2: 0, 3: 30}
