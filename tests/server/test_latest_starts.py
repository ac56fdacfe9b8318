"""Latest starts that the queue guarantees: none is broken, and none is said where later jobs may pass."""

from __future__ import annotations

from typing import Any

import pytest
from yurt.sdk.value import Duration, replace
from yurt.server.queueing import latest_starts
from yurt.server.queueing.report import forecasts
from yurt.structs.cluster import Namespace
from yurt.structs.commands import RegisterJob, UpsertNamespaces, UpsertQuotas
from yurt.structs.constraint import Constraint
from yurt.structs.queueing.batch_queue import BatchQueue, FairShareQueue
from yurt.structs.quota import QuotaSpec
from yurt.testing.nightly import cases

from bench.queue.policies import HALF_LIFE
from bench.queue.trace import SECOND, Job
from tests.server.test_queue_simulated import BEGIN, DYNAMIC, FAIR, FIFO, POOL, TENANTS, Pool, jobs_of

HOUR = 3600 * SECOND
SOON_BOOSTED = BatchQueue(fair_share=FairShareQueue(half_life=Duration(HALF_LIFE), boost_after=Duration(8 * HOUR)))


class PromisingPool(Pool):
    """A pool that asks for the guaranteed starts after each decision; `early` has the earliest of each job."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        self.early: dict[int, int] = {}
        super().__init__(*given, **settings)

    def decide(self, now: int) -> None:
        super().decide(now)
        for (_, job), forecast in forecasts(self.state, POOL, now, region="global").items():
            if forecast.latest:
                self.early[int(job)] = min(forecast.latest, self.early.get(int(job), forecast.latest))

    @property
    def broken(self) -> list[int]:
        """The jobs that started after what was guaranteed."""
        return [job for job, latest in self.early.items() if self.starts[job] > latest]


@pytest.fixture(autouse=True)
def without_margin(monkeypatch: pytest.MonkeyPatch) -> None:
    """In virtual time nothing takes time to stop."""
    monkeypatch.setattr(latest_starts, "_stop_time", lambda view: 0)


@pytest.mark.parametrize("nodes", [1, 3])
@pytest.mark.parametrize("seed", range(cases(2, 40)))
@pytest.mark.parametrize(
    "queue", [FIFO, replace(FIFO, reservations=4), SOON_BOOSTED], ids=["fifo", "reservations", "boost"]
)
def test_no_guaranteed_start_is_broken(queue: BatchQueue, seed: int, nodes: int) -> None:
    jobs = jobs_of(seed, 80 * nodes if queue is SOON_BOOSTED else 40 * nodes, 4)
    pool = PromisingPool(queue, jobs, gpus=4, nodes=nodes)

    pool.play()

    assert pool.early or queue is SOON_BOOSTED
    assert pool.broken == []


def busy(queue: BatchQueue) -> Pool:
    """A pool of 4 GPUs whose job 0 runs for 2 hours; job 1 waits for it."""
    pool = Pool(queue, [], gpus=4)
    for number, hours in enumerate((2, 1)):
        pool.arrive(Job(number, BEGIN, HOUR, hours * HOUR, 4, TENANTS[number]))
        pool.decide(BEGIN)
    assert list(pool.starts) == [0]
    return pool


def latest(pool: Pool, hours: float = 0) -> int:
    """The guaranteed start of the waiting job, in nanoseconds from the begin; -1 for none."""
    found = forecasts(pool.state, POOL, BEGIN + round(hours * HOUR), region="global")
    at = found[TENANTS[1], "1"].latest
    return at - BEGIN if at else -1


def test_the_head_of_a_fifo_queue_has_a_latest_start() -> None:
    assert latest(busy(FIFO)) == 2 * HOUR


@pytest.mark.parametrize("queue", [FAIR, DYNAMIC], ids=["fair_share", "dynamic_priority"])
def test_where_later_jobs_may_pass_there_is_no_latest_start(queue: BatchQueue) -> None:
    assert latest(busy(queue)) == -1


@pytest.mark.parametrize("is_new", [False, True], ids=["of a known tenant", "of a new tenant"])
def test_the_first_job_of_a_fair_share_queue_starts_later_than_reserved_when_a_lighter_tenant_comes(
    is_new: bool,
) -> None:
    """Why a reservation is no promise there: limits say 2 h, and a job that comes an hour later takes the capacity."""
    pool = Pool(FAIR, [], gpus=4)
    heavy, light = TENANTS[1], "new" if is_new else TENANTS[2]
    pool.arrive(Job(0, BEGIN, 2 * HOUR, 2 * HOUR, 4, heavy))
    pool.decide(BEGIN)
    pool.arrive(Job(1, BEGIN, HOUR, HOUR, 4, heavy))
    pool.decide(BEGIN)
    found = forecasts(pool.state, POOL, BEGIN, region="global")[heavy, "1"]
    assert (found.by_limits, found.latest) == (BEGIN + 2 * HOUR, 0)
    pool._apply(UpsertNamespaces(namespaces=(Namespace(name=light),)))
    pool.arrive(Job(2, BEGIN + HOUR, HOUR, HOUR, 4, light))
    pool.decide(BEGIN + HOUR)

    pool.play()

    assert pool.starts[2] == BEGIN + 2 * HOUR
    assert pool.starts[1] == BEGIN + 3 * HOUR > found.by_limits


def test_the_boosted_job_has_a_latest_start_that_others_cannot_move() -> None:
    queue = BatchQueue(fair_share=FairShareQueue(half_life=Duration(HALF_LIFE), boost_after=Duration(HOUR)))
    pool = busy(queue)

    assert latest(pool, hours=0.9) == -1, "it is not boosted yet"
    assert latest(pool, hours=1.5) == 2 * HOUR
    assert latest(pool, hours=0.99) == -1


def test_a_boost_that_others_may_use_up_guarantees_nothing() -> None:
    queue = BatchQueue(fair_share=FairShareQueue(half_life=Duration(HALF_LIFE), boost_after=Duration(HOUR)))
    pool = busy(queue)
    pool.arrive(Job(2, BEGIN + SECOND, HOUR, HOUR, 4, TENANTS[2]))

    assert latest(pool, hours=1.5) == -1, "job 2 is boosted too, and would fill the boosted part of the pool"


def test_a_job_with_a_condition_on_its_node_has_no_latest_start() -> None:
    pool = busy(FIFO)
    job = pool.state.jobs[TENANTS[1], "1"]
    (group,) = job.task_groups
    rule = Constraint(l_target="${node.class}", operand="=", r_target="none")
    pool._apply(RegisterJob(job=replace(job, task_groups=(replace(group, constraints=(rule,)),))))

    assert latest(pool) == -1


def test_a_job_below_a_quota_has_no_latest_start() -> None:
    pool = busy(FIFO)
    pool._apply(UpsertQuotas(quotas=(QuotaSpec(name="small"),)))
    pool._apply(UpsertNamespaces(namespaces=(replace(pool.state.namespaces[TENANTS[1]], quota="small"),)))

    assert latest(pool) == -1
