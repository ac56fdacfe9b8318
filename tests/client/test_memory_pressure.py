"""A task that stands still at its memory limit is explained, once for each run."""

from __future__ import annotations

from yurt.client.allocations.memory_pressure import StalledRun, pressure_text
from yurt.sdk.driver import TaskStats
from yurt.sdk.value import NANOSECONDS, UnixNano
from yurt.structs.resources import Resources


def told(*stalls_s: float) -> list[bool]:
    """Whether each sample is told, 10 s apart, with these seconds of waiting in between."""
    run, found, total = StalledRun(0), [], 0.0
    before = TaskStats(at=UnixNano(0))
    for number, stall_s in enumerate(stalls_s, 1):
        total += stall_s
        now = TaskStats(at=UnixNano(number * 10 * NANOSECONDS), memory_stall_ns=round(total * NANOSECONDS))
        found.append(run.is_stalled(before, now))
        before = now
    return found


def test_a_stall_is_told_at_its_second_sample_and_once() -> None:
    assert told(5, 5, 5, 5, 0, 5, 5) == [False, True, False, False, False, False, False]


def test_a_short_or_a_slight_stall_is_not_told() -> None:
    assert not any(told(5, 0, 5, 0, 5))
    assert not any(told(0.9, 0.9, 0.9))


def test_a_task_whose_figures_nothing_counts_is_not_told() -> None:
    assert not any(told(0, 0, 0))


def test_the_share_is_that_of_the_stalled_samples() -> None:
    run = StalledRun(0)
    run.is_stalled(TaskStats(at=UnixNano(0)), TaskStats(at=UnixNano(10 * NANOSECONDS), memory_stall_ns=3 * NANOSECONDS))
    assert (round(run.share, 2), run.elapsed_s) == (0.3, 10.0)


def test_the_text_names_the_limit_that_counts() -> None:
    plain = pressure_text(0.47, 20.4, Resources(memory_mb=10))
    assert "47% of the last 20 s" in plain and "10 MiB (memory)" in plain and plain.endswith("raise memory")
    assert "64 MiB (memory_max)" in pressure_text(0.3, 20, Resources(memory_mb=10, memory_max_mb=64))
