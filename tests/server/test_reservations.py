"""Several reservations of a queue: what a decision computes again, and what a job without a reserved start means."""

from __future__ import annotations

from collections import Counter

import pytest
from yurt.scheduler.capacity.pool_capacity import PoolCapacity
from yurt.sdk.value import replace
from yurt.server.queueing import reservations
from yurt.server.queueing.pool_view import PoolView

from bench.queue.engine import HOUR
from bench.queue.trace import SECOND, Job
from tests.server.test_queue_simulated import BEGIN, FIFO, POOL, TENANTS, Pool

RESERVED = 8
ENDLESS = 0


def jobs_of(*rows: tuple[int, int], begin: int = BEGIN) -> list[Job]:
    """Jobs of these GPUs and limits in hours, submitted one after another."""
    return [
        Job(number, begin + number * SECOND, HOUR, hours * HOUR, gpus, TENANTS[0])
        for number, (gpus, hours) in enumerate(rows)
    ]


def waiting_pool(jobs: list[Job], *, gpus: int = 8, reserved: int = RESERVED) -> Pool:
    """A pool in which each job was submitted in turn; none has ended."""
    pool = Pool(replace(FIFO, reservations=reserved), jobs, gpus=gpus)
    for job in jobs:
        pool.arrive(job)
        pool.decide(job.submit)
    return pool


@pytest.mark.parametrize("hours", [10, ENDLESS])
def test_reservations_are_computed_once_while_nothing_in_the_pool_changes(
    monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    counts = Counter[str]()
    release, ends = PoolCapacity.first_release, PoolView.expected_ends
    monkeypatch.setattr(
        PoolCapacity, "first_release", lambda self, *given: counts.update(["release"]) or release(self, *given)
    )
    monkeypatch.setattr(
        PoolView, "expected_ends", lambda self, *given: counts.update(["expected ends"]) or ends(self, *given)
    )
    jobs = jobs_of((7, hours), *[(8, hours)] * RESERVED, (1, ENDLESS), (1, ENDLESS))
    pool = waiting_pool(jobs[:-1])
    assert [bool(each.start) for each in pool.gate.promises[POOL]] == [True] * RESERVED
    # By limits each has one search, by expected ends one more for the first, which no limit allows.
    assert counts["release"] == RESERVED + (hours == ENDLESS)
    assert counts["expected ends"] == (hours == ENDLESS)
    promised = pool.gate.promises[POOL]
    counts.clear()
    pool.arrive(jobs[-1])
    pool.decide(jobs[-1].submit)
    assert pool.gate.promises[POOL] == promised
    assert counts == {}


def test_later_starts_are_promised_also_when_nothing_may_pass_the_first() -> None:
    jobs = jobs_of((4, ENDLESS), (8, ENDLESS), (8, ENDLESS))
    pool = waiting_pool(jobs, reserved=2)
    (small,) = jobs_of((1, 1), begin=BEGIN + 2 * reservations.PATIENCE)
    pool.arrive(small._replace(id=9))
    pool.decide(small.submit)
    assert 9 not in pool.starts
    head, second = pool.gate.promises[POOL]
    assert 0 < head.start < second.start
    assert not second.is_sure


def test_a_later_job_that_needs_more_ends_than_are_looked_at_goes_without_a_reservation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reservations, "RELEASES_MAX", 2)
    pool = waiting_pool(jobs_of((1, 3), (1, 4), (1, 5), (3, 9), (4, 9), (1, 1)), gpus=4, reserved=2)
    assert 5 in pool.starts, "it ends before the head starts"
    pool = waiting_pool(jobs_of((1, 3), (1, 4), (1, 5), (3, 9), (4, 9), (1, ENDLESS)), gpus=4, reserved=2)
    head, second = pool.gate.promises[POOL]
    assert (head.start, second.start) == (BEGIN + 4 * HOUR + SECOND, 0)
    assert 5 not in pool.starts
