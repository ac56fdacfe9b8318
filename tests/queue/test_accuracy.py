"""The measure of forecasts: the first one of each job counts, and later ones are corrected by what came of them."""

from __future__ import annotations

from heapq import heappop, heappush
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.queue.accuracy import ENOUGH, KEPT, LEAST_WAIT, LEVELS, Accuracy, Forecast, censored_quantiles
from yurt.queue.waiting_job import JobKey

MINUTE = 60_000_000_000
KEY: JobKey = ("default", "other")


def said(wait: int, *, made: int = 0, latest: int = 0) -> Forecast:
    """A forecast of a wait in minutes."""
    likely = made + wait * MINUTE
    bound = latest and made + latest * MINUTE
    return Forecast(made, likely, likely, bound, bound)


def key(number: int) -> JobKey:
    return ("default", f"job-{number}")


def history(waits: list[tuple[int, int]]) -> Accuracy:
    """Starts after (said, real) minutes."""
    found = Accuracy()
    for number, (wait, real) in enumerate(waits):
        found.note({key(number): said(wait)}, {})
        found.started(key(number), real * MINUTE)
    return found


def test_the_first_forecast_counts() -> None:
    found = Accuracy()
    found.note({key(1): said(10)}, {})
    found.note({key(1): said(20, made=5 * MINUTE)}, {})
    found.started(key(1), 20 * MINUTE)
    summary = found.summary()
    assert summary is not None
    assert (summary.starts, summary.median_error, summary.median_error_percent) == (1, 10 * MINUTE, 50)
    assert (summary.by_likely_percent, summary.by_percent, summary.after_latest) == (0, 0, 0)


def test_a_late_forecast_is_corrected_by_late_ones_alone() -> None:
    found = Accuracy()
    for number in range(ENOUGH):
        found.note({key(number): said(10)}, {})
        found.note({key(number): said(2, made=18 * MINUTE)}, {})
        found.started(key(number), 20 * MINUTE)
    found.note({KEY: said(10)}, {})
    assert found.corrected(KEY, said(10)).likely == 20 * MINUTE
    assert found.corrected(KEY, said(2, made=18 * MINUTE)).likely == 20 * MINUTE, "it was right at that stage"


def test_the_error_at_any_time_counts_what_was_said_for_how_long() -> None:
    found = Accuracy()
    found.note({key(1): said(10)}, {})
    found.note({key(1): said(14, made=6 * MINUTE)}, {})
    found.note({key(1): said(1, made=18 * MINUTE)}, {})
    found.started(key(1), 20 * MINUTE)
    summary = found.summary()
    assert summary is not None
    assert (summary.median_error_percent, summary.any_time_error_percent) == (50, 0)


def test_what_left_or_was_never_forecast_does_not_count() -> None:
    found = Accuracy()
    found.note({key(1): said(10), key(2): Forecast(0, 0, 0, 0)}, {})
    found.left(key(1))
    for number in (1, 2, 3):
        found.started(key(number), MINUTE)
    assert found.summary() is None
    assert len(found) == 0


def test_a_start_after_the_latest_is_told() -> None:
    found = Accuracy()
    found.note({key(1): said(10, latest=15), key(2): said(10, latest=15)}, {})
    found.started(key(1), 15 * MINUTE)
    found.started(key(2), 16 * MINUTE)
    summary = found.summary()
    assert summary is not None
    assert summary.after_latest == 1


def test_short_waits_are_no_large_errors() -> None:
    found = Accuracy()
    found.note({key(1): Forecast(0, 1, 1, 0)}, {})
    found.started(key(1), LEAST_WAIT // 10)
    summary = found.summary()
    assert summary is not None
    assert summary.median_error_percent < 11


def test_forecasts_are_corrected_by_what_waits_came_to() -> None:
    waits = [(10, 20)] * 10 + [(10, 30)] * 10
    assert history(waits[: ENOUGH - 1]).corrected(KEY, said(60)) == said(60), "too few to learn from"
    found = history(waits).corrected(KEY, said(60))
    assert (found.likely, found.by) == (180 * MINUTE, 180 * MINUTE)
    assert history(waits).corrected(KEY, said(60, latest=100)).likely == 100 * MINUTE, "limits are never exceeded"
    assert history(waits).corrected(KEY, Forecast(0, 0, 0, 0)) == Forecast(0, 0, 0, 0)


def test_each_start_is_learned_from_although_what_was_learned_is_kept() -> None:
    found = history([(10, 20)] * ENOUGH)
    assert found.corrected(KEY, said(60)).likely == 120 * MINUTE
    for number in range(ENOUGH, 3 * ENOUGH):
        found.note({key(number): said(10)}, {})
        found.started(key(number), 30 * MINUTE)
    assert found.corrected(KEY, said(60)).likely == 180 * MINUTE


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), min_size=ENOUGH, max_size=60), st.integers(1, 999))
def test_a_corrected_forecast_would_have_held_for_half_and_for_four_of_five(
    waits: list[tuple[int, int]], wait: int
) -> None:
    accuracy = history(waits)
    found = accuracy.corrected(KEY, said(wait))
    assert 0 < found.likely <= found.by
    ratios = [real / said_ for said_, real in waits]
    assert sum(ratio <= found.likely / (wait * MINUTE) + 1e-6 for ratio in ratios) * 2 >= len(ratios)
    assert sum(ratio <= found.by / (wait * MINUTE) + 1e-6 for ratio in ratios) * 5 >= 4 * len(ratios)


def test_only_the_last_starts_are_kept() -> None:
    summary = history([(1, 1)] * (KEPT + 5)).summary()
    assert summary is not None
    assert summary.starts == KEPT


def test_a_clock_that_steps_back_makes_no_stage_before_the_first() -> None:
    found = Accuracy()
    found.note({key(1): said(10, made=120 * MINUTE)}, {})
    early = said(10, made=20 * MINUTE)
    assert found.corrected(key(1), early) == early
    found.note({key(1): early}, {})
    found.started(key(1), 130 * MINUTE)
    summary = found.summary()
    assert summary is not None
    assert summary.median_error == 0


def test_no_forecast_weighs_less_than_nothing() -> None:
    found = Accuracy()
    found.note({key(1): said(10, made=60 * MINUTE)}, {})
    found.note({key(1): said(10, made=65 * MINUTE)}, {})
    found.started(key(1), 62 * MINUTE)
    assert [weight for _, weight in found.last.errors()] == [5 * MINUTE, 0]


def test_first_forecasts_are_summed_up_by_the_length_of_the_wait() -> None:
    summary = history([(10, 5), (10, 20), (30, 20), (600, 300), (100, -1)]).summary()
    assert summary is not None
    found = [(each.below // MINUTE, each.starts, each.median_error // MINUTE) for each in summary.by_wait]
    assert found == [(15, 2, 53), (60, 2, 10), (0, 1, 300)], "a clock that was set back makes a short wait"
    assert [each.by_likely_percent for each in summary.by_wait] == [100, 50, 100]


def test_without_waiting_jobs_the_quantiles_are_those_of_the_ended_ones() -> None:
    values = [float(number) for number in range(1, 22)]
    assert censored_quantiles(values, [], LEVELS) == [11.0, 17.0]


def test_jobs_that_wait_count_up_to_what_they_have_reached() -> None:
    """Of five jobs one ended at 1, two at 2; two wait, one of them for longer than any that ended."""
    assert censored_quantiles([1.0, 2.0, 2.0], [1.5, 3.0], (0.1, 0.5, 0.9)) == [1.0, 2.0, 3.0]
    assert censored_quantiles([1.0, 2.0, 2.0], [], (0.1, 0.5, 0.9)) == [1.0, 2.0, 2.0]


@given(
    st.lists(st.tuples(st.integers(1, 500), st.booleans()), min_size=1, max_size=60).filter(
        lambda pairs: any(is_final for _, is_final in pairs)
    )
)
def test_the_estimator_is_the_product_over_all_that_were_left(pairs: list[tuple[int, bool]]) -> None:
    """Compared with the definition: of those that had not ended before a value, the part that did not end at it."""
    final = [float(value) for value, is_final in pairs if is_final]
    waiting = [float(value) for value, is_final in pairs if not is_final]

    def left(until: float) -> float:
        product = 1.0
        for value in sorted(set(final)):
            if value <= until:
                product *= 1 - final.count(value) / sum(other >= value for other in final + waiting)
        return product

    for level, found in zip(LEVELS, censored_quantiles(final, waiting, LEVELS), strict=True):
        reached = [value for value in sorted(set(final)) if left(value) < 1 - level - 1e-7]
        assert found == (reached[0] if reached else max(final + waiting))


def test_jobs_that_still_wait_lengthen_the_forecasts_of_others() -> None:
    """Half of the jobs started as forecast; the others were forecast alike, and wait for three times as long."""
    found = history([(10, 10)] * ENOUGH)
    plain = {key(number): said(10) for number in range(ENOUGH, 2 * ENOUGH)}
    assert found.corrected(KEY, said(10)).likely == 10 * MINUTE
    found.note(plain, {})
    found.note({KEY: said(10, made=30 * MINUTE)}, {})

    later = found.corrected(KEY, said(10, made=30 * MINUTE))

    assert later.by - later.made == 30 * MINUTE, "at least as long as those that wait have waited"


@pytest.mark.parametrize("is_growing", [False, True])
def test_half_and_four_of_five_start_by_what_was_said_also_while_waits_grow(is_growing: bool) -> None:
    """Real waits are a drawn multiple of the forecast ones, and grow by half in the course of the history."""
    random, found, number_of = Random(5), Accuracy(), 1_200
    shown: dict[int, Forecast] = {}
    queue: list[tuple[int, int]] = []
    held_likely = held_by = 0
    for number in range(number_of):
        now = number * MINUTE
        while queue and queue[0][0] <= now:
            at, job = heappop(queue)
            found.started(key(job), at)
            held_likely += at <= shown[job].likely
            held_by += at <= shown[job].by
        plain = said(30, made=now)
        shown[number] = found.corrected(key(number), plain)
        found.note({key(number): plain}, {key(number): shown[number]})
        growth = 1.5 ** (number / number_of) if is_growing else 1.0
        heappush(queue, (now + round(random.lognormvariate(0, 1) * 30 * growth * MINUTE), number))
    started = number_of - len(queue)
    assert abs(held_likely / started - 0.5) < 0.05
    assert abs(held_by / started - 0.8) < 0.05
