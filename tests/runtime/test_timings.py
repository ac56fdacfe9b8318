"""What a timing keeps of its durations: figures and the newest ones, and no object for each of them."""

from __future__ import annotations

import sys

from yurt.runtime.metrics import KEPT_MAX, RECENT, Metrics, Timing


def timing_of(count: int) -> Timing:
    timing = Timing()
    for number in range(count):
        timing.add(float(number))
    return timing


def test_the_newest_durations_are_kept_in_their_order() -> None:
    for count in (0, 1, RECENT - 1, RECENT, RECENT + 1, 3 * RECENT + 7):
        assert timing_of(count).recent == [float(number) for number in range(max(0, count - RECENT), count)]


def test_the_sums_are_those_of_all_durations_whenever_they_are_read() -> None:
    for count in (1, RECENT, KEPT_MAX - 1, KEPT_MAX, 3 * KEPT_MAX + 7):
        read_often, read_once = Timing(), timing_of(count)
        for number in range(count):
            read_often.add(float(number))
            assert (read_often.count, read_often.max_s) == (number + 1, float(number))
        numbers = [float(number) for number in range(count)]
        for timing in (read_often, read_once, read_once.copy()):
            assert (timing.count, timing.min_s, timing.max_s) == (count, 0.0, numbers[-1])
            assert timing.total_s == sum(numbers)
            assert timing.squares == sum(number * number for number in numbers)


def test_no_duration_is_the_shortest_of_none() -> None:
    assert (Timing().count, Timing().min_s, Timing().max_s, Timing().mean_s) == (0, 0.0, 0.0, 0.0)


def test_a_copy_stays_as_it_is() -> None:
    timing = timing_of(RECENT)
    copied = timing.copy()
    timing.add(1000.0)
    assert (copied.count, copied.recent[-1], copied.max_s) == (RECENT, RECENT - 1.0, RECENT - 1.0)


def test_durations_leave_no_objects_behind() -> None:
    metrics, seconds = Metrics(), [float(number) for number in range(RECENT)]
    before = [sys.getrefcount(each) for each in seconds]
    for number in range(RECENT):
        metrics.time("plan.submit", seconds[number])
    after = [sys.getrefcount(each) for each in seconds]
    assert after[1:-1] == before[1:-1], "only the shortest and the longest one are kept"
