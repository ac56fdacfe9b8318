"""Expected starts, run times, and the published formula of dynamic priority."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from yurt.queue.amounts import Amounts
from yurt.queue.dynamic_priority import Weights, dynamic_order, percentage_used
from yurt.queue.expected_start import expected_starts
from yurt.queue.run_times import ENOUGH, KEPT, RunTimes
from yurt.queue.waiting_job import Waiting
from yurt.sdk.value import Duration, UnixNano

from tests.queue.strategies import HOUR, job, jobs

GPUS = 16


def vector(one: Waiting) -> tuple[int, ...]:
    return (one.asked.gpu // 1000,)


def forecast(order: list[Waiting], ends: list[tuple[int, tuple[int, ...]]], free: int) -> dict[tuple[str, str], int]:
    return expected_starts(order, now=0, free=(free,), ends=ends, vector=vector, run_time=lambda one: one.limit)


@given(jobs())
def test_every_job_that_fits_the_pool_is_expected_to_start(waiting: list[Waiting]) -> None:
    found = forecast(waiting, [], GPUS)
    assert set(found) == {one.key for one in waiting}
    by_time = sorted((start, vector(one)[0], start + one.limit) for one in waiting if (start := found[one.key]) >= 0)
    for start, _, _ in by_time:
        assert sum(gpus for begin, gpus, end in by_time if begin <= start < end) <= GPUS


def test_a_job_is_expected_after_those_before_it() -> None:
    found = forecast([job(1, gpus=12, hours=3), job(2, gpus=8, hours=2), job(3, gpus=4, hours=2)], [(HOUR, (8,))], 8)
    assert found == {("vision", "job-1"): HOUR, ("vision", "job-3"): HOUR, ("vision", "job-2"): 4 * HOUR}


def test_what_nothing_makes_room_for_is_not_expected() -> None:
    assert forecast([job(1, gpus=20), job(2)], [], GPUS) == {("vision", "job-2"): 0}


@given(st.lists(st.integers(1, 1000), min_size=ENOUGH, max_size=KEPT + 50), st.integers(0, 100), st.integers(0, 1200))
def test_expected_run_times_lie_between_what_has_passed_and_the_limit(
    durations: list[int], percent: int, elapsed: int
) -> None:
    times = RunTimes()
    for duration in durations:
        times.add(("kind",), duration)
    found = times.expected(("kind",), percent=percent, elapsed=elapsed, limit=1100)
    assert elapsed <= found <= max(elapsed, 1100)


def test_the_narrowest_kind_with_enough_runs_answers() -> None:
    times = RunTimes()
    for duration in range(10, 20):
        times.add(("all",), duration)
    for duration in (100, 110, 120, 130, 140):
        times.add(("job", "all"), duration)
    assert times.expected(("job", "all"), percent=50, elapsed=0, limit=1000) == 120
    assert times.expected(("new job", "all"), percent=50, elapsed=0, limit=1000) == 17
    assert times.expected(("job", "all"), percent=50, elapsed=125, limit=1000) == 1000, "two runs say nothing"
    assert times.expected(("nobody",), percent=50, elapsed=0, limit=1000) == 1000


def test_only_the_last_runs_count() -> None:
    times = RunTimes()
    for duration in [1] * KEPT + [50] * KEPT:
        times.add(("kind",), duration)
    assert times.expected(("kind",), percent=0, elapsed=0, limit=1000) == 50


def nomad_job(number: int, tenant: str) -> Waiting:
    return Waiting((tenant, str(number)), (tenant,), 50, number, UnixNano(0), Amounts(cpu=600, memory=256), Duration(0))


def test_the_published_example_of_dynamic_priority() -> None:
    weights = Weights(fairshare=50, age=10, max_age=HOUR, cpu=10, max_cpu=1000, memory=10, max_memory=1024)
    waiting = [nomad_job(3, "team-a"), nomad_job(4, "team-b"), nomad_job(5, "team-b")]
    used = {("team-a",): Amounts(cpu=600, memory=256)}
    found = dynamic_order(waiting, used, weights, now=0)
    assert [(one.job.key[0], one.priority, one.fairshare, one.age, one.cpu, one.memory) for one in found] == [
        ("team-b", 111, 50, 0, 4, 7), ("team-b", 111, 50, 0, 4, 7), ("team-a", 61, 0, 0, 4, 7),
    ]  # fmt: skip
    later = dynamic_order(waiting, used, weights, now=HOUR // 2)
    assert later[0].age == 5
    assert percentage_used(used[("team-a",)], used[("team-a",)]) == 100


@given(jobs(), st.integers(0, 10**18))
def test_weights_of_zero_add_nothing(waiting: list[Waiting], now: int) -> None:
    found = dynamic_order(waiting, {}, Weights(), now=now)
    assert [(-one.priority, one.job.create_index) for one in found] == sorted(
        (-one.priority, one.create_index) for one in waiting
    )
