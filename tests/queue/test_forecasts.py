"""Expected starts, run times, and the published formula of dynamic priority."""

from __future__ import annotations

import sys
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.queue import run_times
from yurt.queue.amounts import Amounts
from yurt.queue.dynamic_priority import Weights, dynamic_order, percentage_used
from yurt.queue.expected_start import drawn_percent, draws_of, expected_starts, start_quantiles
from yurt.queue.run_times import ENOUGH, ENOUGH_OF_JOB, KEPT, Kind, RunTimes
from yurt.queue.waiting_job import Waiting
from yurt.sdk.value import Duration, UnixNano

from tests.queue.strategies import HOUR, job, jobs

GPUS = 16
JOB: Kind = ("job", "train")
TENANT: Kind = ("namespace", "vision")
ALL: Kind = ("all",)


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


def test_kinds_to_which_runs_are_added_stay_beyond_the_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_times, "KINDS_MAX", 10)
    times = RunTimes()
    for number in range(20):
        times.add((("job", number), ("all",)), 5)
    assert times.expected((("job", 20), ("all",)), percent=50, elapsed=0, limit=0) == 5


def test_a_job_is_expected_after_those_before_it() -> None:
    found = forecast([job(1, gpus=12, hours=3), job(2, gpus=8, hours=2), job(3, gpus=4, hours=2)], [(HOUR, (8,))], 8)
    assert found == {("vision", "job-1"): HOUR, ("vision", "job-3"): HOUR, ("vision", "job-2"): 4 * HOUR}


@given(jobs(), st.lists(st.tuples(st.integers(-5, 30), st.integers(0, 6)), max_size=20))
def test_a_forecast_is_that_of_the_plain_algorithm(waiting: list[Waiting], ends: list[tuple[int, int]]) -> None:
    """Try the first job, then up to 32 behind it, at each end; every shadow is looked for anew."""
    running = [(end * HOUR // 4, (gpus,)) for end, gpus in ends]
    assert forecast(waiting, running, 4) == plain_forecast(waiting, running, 4)


def plain_forecast(
    order: list[Waiting], ends: list[tuple[int, tuple[int, ...]]], free: int
) -> dict[tuple[str, str], int]:
    now, left, found = 0, list(order), {}
    releases = [(max(0, end), gpus) for end, (gpus,) in ends]

    def start(one: Waiting) -> None:
        nonlocal free
        left.remove(one)
        free -= vector(one)[0]
        releases.append((now + one.limit, vector(one)[0]))
        found[one.key] = now

    while left:
        asked = vector(left[0])[0]
        if asked <= free:
            start(left[0])
            continue
        enough = [end for end, _ in releases if asked <= free + sum(gpus for at, gpus in releases if at <= end)]
        if not enough:
            del left[0]
            continue
        for one in left[1:33]:
            if vector(one)[0] <= free and now + one.limit <= min(enough):
                start(one)
        now = min(end for end, _ in releases)
        free += sum(gpus for end, gpus in releases if end <= now)
        releases = [each for each in releases if each[0] > now]
    return found


def calls_of_a_forecast(running: int) -> int:
    """The calls for one job that starts after the end of all that runs."""
    calls = 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    ends = [(number + 1, (1,)) for number in range(running)]
    sys.setprofile(count)
    try:
        found = forecast([job(1, gpus=running), job(2, gpus=running)], ends, 0)
    finally:
        sys.setprofile(None)
    assert found["vision", "job-1"] == running
    return calls


def test_the_cost_of_a_forecast_follows_what_runs() -> None:
    assert calls_of_a_forecast(400) < 3 * calls_of_a_forecast(200)


def test_what_nothing_makes_room_for_is_not_expected() -> None:
    assert forecast([job(1, gpus=20), job(2)], [], GPUS) == {("vision", "job-2"): 0}


@given(st.lists(st.integers(1, 1000), min_size=ENOUGH, max_size=KEPT + 50), st.integers(0, 100), st.integers(0, 1200))
def test_expected_run_times_lie_between_what_has_passed_and_the_limit(
    durations: list[int], percent: int, elapsed: int
) -> None:
    times = RunTimes()
    for duration in durations:
        times.add((ALL,), duration)
    found = times.expected((ALL,), percent=percent, elapsed=elapsed, limit=1100)
    assert elapsed <= found <= max(elapsed, 1100)


def test_the_narrowest_kind_with_enough_runs_answers() -> None:
    times = RunTimes()
    for duration in range(10, 30):
        times.add((ALL,), duration)
    for duration in (100, 110, 120, 130, 140):
        times.add((JOB, ALL), duration)
    assert times.expected((JOB, ALL), percent=50, elapsed=0, limit=1000) == 120
    assert times.expected((("job", "new"), ALL), percent=50, elapsed=0, limit=1000) == 22
    assert times.expected((JOB, ALL), percent=50, elapsed=125, limit=1000) == 1000, "two runs say nothing"
    assert times.expected((("nobody",),), percent=50, elapsed=0, limit=1000) == 1000


def test_few_runs_of_a_tenant_give_way_to_many_of_all() -> None:
    times = RunTimes()
    for duration in range(ENOUGH - 1):
        times.add((TENANT, ALL), 100 + duration)
    for _ in range(ENOUGH):
        times.add((ALL,), 10)
    assert times.expected((TENANT, ALL), percent=0, elapsed=0, limit=1000) == 10
    times.add((TENANT, ALL), 200)
    assert times.expected((TENANT, ALL), percent=0, elapsed=0, limit=1000) == 100


def test_where_no_kind_has_enough_runs_that_with_the_most_answers() -> None:
    times = RunTimes()
    for number in range(ENOUGH - 1):
        times.add((TENANT, ALL) if number < ENOUGH_OF_JOB else (ALL,), 100 if number < ENOUGH_OF_JOB else 10)
    assert times.expected((TENANT, ALL), percent=0, elapsed=0, limit=1000) == 10
    assert times.expected((TENANT, ALL), percent=0, elapsed=50, limit=1000) == 100, "of the long ones"


def test_only_the_last_runs_count() -> None:
    times = RunTimes()
    for duration in [1] * KEPT + [50] * KEPT:
        times.add((ALL,), duration)
    assert times.expected((ALL,), percent=0, elapsed=0, limit=1000) == 50


def test_runs_as_parts_of_their_limits_answer_once_they_were_nearer() -> None:
    """Each job declares twice its run time, which differs by factors of ten."""
    times = RunTimes()
    durations = [10, 1000, 10, 100_000, 100, 10_000] * 4
    for duration in durations:
        times.add(("all",), duration, limit=2 * duration)
    assert times.expected(("all",), percent=50, elapsed=0, limit=4000) == 2000
    assert times.expected(("all",), percent=50, elapsed=3000, limit=4000) == 4000, "no run took such a part"
    assert times.expected(("all",), percent=50, elapsed=0, limit=0) in durations, "nothing was declared"


def test_limits_that_say_nothing_are_not_believed() -> None:
    times = RunTimes()
    for number in range(40):
        times.add(("all",), 100 + number % 3, limit=1000 * (1 + number % 7 * 50))
    assert 100 <= times.expected(("all",), percent=50, elapsed=0, limit=350_000) <= 102


def test_draws_cover_the_distribution_evenly() -> None:
    for name in ("train", "sweep-7"):
        assert sorted(drawn_percent(name, 5)) == [10, 30, 50, 70, 90]
    assert drawn_percent("train", 15) != drawn_percent("sweep-7", 15)
    assert [draws_of(count) for count in (0, 4000, 10_000, 100_000)] == [15, 15, 6, 3]
    found = start_quantiles([{("a", "b"): start} for start in (5, 1, 4, 2, 3)])
    assert (found.likely, found.by) == ({("a", "b"): 3}, {("a", "b"): 5})


def test_a_draw_without_a_start_counts_as_one_that_never_starts() -> None:
    key = ("a", "b")
    found = start_quantiles([{key: 1}, {key: 2}, {key: 3}, {}, {}])
    assert (found.likely, found.by) == ({key: 3}, {}), "two of five draws start later than any time"
    assert start_quantiles([{key: 1}, {}, {}]).likely == {}


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
