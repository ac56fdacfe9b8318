"""The leader's start forecasts learn from runs of the same number of cards."""

from __future__ import annotations

from yurt.queue.run_times import ENOUGH
from yurt.sdk.value import replace
from yurt.server.queueing.entries import kinds_of
from yurt.server.queueing.report import forecasts
from yurt.structs.resources import RequestedDevice, Resources
from yurt.testing import factories

from bench.queue.trace import SECOND, Job
from tests.server.test_queue_simulated import BEGIN, FIFO, POOL, Pool

HOUR = 3600 * SECOND


def job_of(number: int, at: int, duration: int, gpus: int) -> Job:
    return Job(number, BEGIN + at, duration, 24 * HOUR, gpus, "vision")


def test_a_forecast_takes_run_times_of_jobs_with_as_many_cards() -> None:
    """Small jobs ran for a minute, large ones for five hours, each in one allocation."""
    small = [job_of(number, number * HOUR // 4, 60 * SECOND, 1) for number in range(30)]
    large = [job_of(40 + number, (10 + 6 * number) * HOUR, 5 * HOUR, 4) for number in range(ENOUGH)]
    pool = Pool(FIFO, [*small, *large], gpus=4).play()
    now = BEGIN + 140 * HOUR
    pool.arrive(job_of(90, 140 * HOUR, 5 * HOUR, 4))
    pool.decide(now)
    pool.arrive(job_of(91, 140 * HOUR, 5 * HOUR, 4))
    pool.decide(now)
    assert forecasts(pool.state, POOL, now)["vision", "91"].likely == now + 5 * HOUR


def test_runs_of_a_job_with_other_cards_count_after_those_with_as_many() -> None:
    def trainer(cards: int) -> tuple[object, ...]:
        device = RequestedDevice(name="nvidia/gpu", count=cards)
        task = factories.task(resources=Resources(devices=(device,)))
        group = factories.group(count=2, tasks=(task,))
        return kinds_of(replace(factories.job("train", type="batch"), task_groups=(group,)))

    one, four = trainer(1), trainer(4)
    assert one[0] != four[0]
    assert one[1] == four[1] == ("job", "default", "train")
    assert (one[2], four[2]) == (("size", "default", 2), ("size", "default", 8))
