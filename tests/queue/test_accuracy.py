"""The measure of forecasts: the first one of each job counts, and later ones are corrected by what came of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from yurt.queue.accuracy import ENOUGH, KEPT, LEAST_WAIT, Accuracy, Forecast
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
