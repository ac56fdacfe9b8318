"""Usage of pools with a fair-share queue: rows follow allocations, configuration and restores, and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.fsm import snapshot
from yurt.fsm.bookkeeping.queue_usage import usage_of_row
from yurt.queue.decay import used
from yurt.sdk.value import UnixNano, replace, seconds
from yurt.structs.alloc import Allocation
from yurt.structs.cluster import NodePool
from yurt.structs.commands import (
    AllocUpdate,
    ApplyPlan,
    RegisterJob,
    RegisterNode,
    UpdateAllocsFromClient,
    UpsertNodePools,
)
from yurt.structs.job import Job
from yurt.structs.plan import Placement, Plan
from yurt.structs.queueing.batch_queue import BatchQueue, FairShareQueue, FifoQueue
from yurt.structs.queueing.usage import QueueUsage
from yurt.testing import factories
from yurt.testing.replica import Replica

POOL, HOUR = "gpu", seconds(3600)
START = UnixNano(1_700_000_000_000_000_000)
NODE = factories.node(node_pool=POOL)
FAIR = FairShareQueue(half_life=HOUR)


def pool(queue: FairShareQueue | None = FAIR) -> NodePool:
    return NodePool(name=POOL, batch_queue=None if queue is None else BatchQueue(fair_share=queue))


@pytest.fixture
def replica() -> Replica:
    made = Replica()
    made.apply(UpsertNodePools(pools=(pool(),), now=START), RegisterNode(node=NODE))
    return made


def place(replica: Replica, job: Job, *ids: str, at: int) -> None:
    """Place allocations of a registered job."""
    if job.key not in replica.state.jobs:
        replica.apply(RegisterJob(job=job))
    stored = replica.state.jobs[job.key]
    placements = tuple(
        Placement(
            id=id,
            node_id=NODE.id,
            task_group="web",
            name=f"{job.id}.web[{number}]",
            job_version=stored.version,
            resources=factories.allocated(job.task_groups[0]),
        )
        for number, id in enumerate(ids)
    )
    plan = Plan(
        eval_id="e1", namespace=job.namespace, job_id=job.id, priority=50, placements=placements, now=UnixNano(at)
    )
    replica.apply(ApplyPlan(plan=plan))


def finish(replica: Replica, id: str, *, at: int) -> None:
    update = AllocUpdate(id=id, node_id=NODE.id, client_status="complete")
    replica.apply(UpdateAllocsFromClient(updates=(update,), now=UnixNano(at)))


def row(replica: Replica, *tenant: str) -> QueueUsage:
    return replica.state.queue_usages[(POOL, tenant or ("default",))]


def cpu_hours(replica: Replica, at: int, *tenant: str) -> float:
    found = row(replica, *tenant)
    return used(usage_of_row(found), at, found.half_life)[1] / HOUR


def batch(id: str = "train", **changes: object) -> Job:
    return factories.job(id, type="batch", node_pool=POOL, **changes)


def test_rates_follow_allocations_and_usage_decays(replica: Replica) -> None:
    place(replica, batch(), "a", "b", at=START)
    assert row(replica).rates == (0, 200, 256)
    finish(replica, "a", at=START + HOUR)
    assert row(replica).rates == (0, 100, 128)
    # An hour of 200 MHz with a half-life of an hour: 200 / (2 ln 2).
    assert abs(cpu_hours(replica, START + HOUR) - 144.27) < 0.01
    finish(replica, "b", at=START + HOUR)
    assert abs(cpu_hours(replica, START + 2 * HOUR) - 72.13) < 0.01
    assert row(replica).rates == (0, 0, 0)


def test_pools_without_fair_share_write_no_row() -> None:
    made = Replica()
    made.apply(UpsertNodePools(pools=(NodePool(name=POOL, batch_queue=BatchQueue(fifo=FifoQueue())),), now=START))
    made.apply(RegisterNode(node=NODE))
    place(made, batch(), "a", at=START)
    assert len(made.state.queue_usages) == 0


def test_a_queue_that_is_switched_on_counts_what_runs_already() -> None:
    made = Replica()
    made.apply(UpsertNodePools(pools=(pool(None),)), RegisterNode(node=NODE))
    place(made, batch(), "a", at=START)
    made.apply(UpsertNodePools(pools=(pool(),), now=UnixNano(START + HOUR)))
    assert row(made).rates == (0, 100, 128)
    assert cpu_hours(made, START + HOUR) == 0
    made.apply(UpsertNodePools(pools=(pool(None),), now=UnixNano(START + 2 * HOUR)))
    assert len(made.state.queue_usages) == 0


def test_another_half_life_keeps_what_counts_now(replica: Replica) -> None:
    place(replica, batch(), "a", at=START)
    before = cpu_hours(replica, START + HOUR)
    longer = replace(FAIR, half_life=seconds(86_400))
    replica.apply(UpsertNodePools(pools=(pool(longer),), now=UnixNano(START + HOUR)))
    assert abs(cpu_hours(replica, START + HOUR) - before) < 1e-6
    assert row(replica).half_life == seconds(86_400)


def test_users_of_a_namespace_are_told_apart_by_job_meta() -> None:
    made = Replica()
    by_user = replace(FAIR, metadata_key="user")
    made.apply(UpsertNodePools(pools=(pool(by_user),), now=START), RegisterNode(node=NODE))
    place(made, batch("one", meta={"user": "ann"}), "a", at=START)
    place(made, batch("two"), "b", at=START)
    assert row(made, "default", "ann").rates == row(made, "default", "").rates == (0, 100, 128)


def test_a_snapshot_holds_usage(replica: Replica) -> None:
    place(replica, batch(), "a", at=START)
    copy = snapshot.decode(snapshot.encode(replica.state))
    assert snapshot.digest(copy) == snapshot.digest(replica.state)
    finish(replica, "a", at=START + HOUR)
    assert isinstance(replica.state.allocs["a"], Allocation)
    assert row(replica).rates == (0, 0, 0)


@settings(max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 10)), min_size=1, max_size=12))
def test_rates_are_what_runs_whatever_the_clock_says(steps: list[tuple[int, int]]) -> None:
    made = Replica()
    made.apply(UpsertNodePools(pools=(pool(),), now=START), RegisterNode(node=NODE))
    now, running = int(START), set[int]()
    for number, hours in steps:
        now += hours * HOUR
        if number in running:
            finish(made, f"alloc-{number}", at=now)
            running.discard(number)
        elif f"alloc-{number}" not in made.state.allocs:
            place(made, batch(f"job-{number}"), f"alloc-{number}", at=now)
            running.add(number)
        found = made.state.queue_usages.get((POOL, ("default",)))
        rates = (0, 0, 0) if found is None else found.rates
        assert rates == (0, 100 * len(running), 128 * len(running))
        assert found is None or min(used(usage_of_row(found), now, found.half_life)) >= 0
