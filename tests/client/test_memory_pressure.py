"""A task that stands still at its memory limit is explained, once for each run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from yurt.client.allocations.memory_pressure import MIB, MemoryPressure, StalledRun, pressure_text
from yurt.sdk.driver import TaskStats
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.structs.alloc import AllocatedMemoryResources, TaskEvent, TaskState


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
    plain = pressure_text(0.47, 20.4, AllocatedMemoryResources(memory_mb=10), used=10 * MIB)
    assert "waited for memory for 47% of the last 20 s" in plain
    assert "10 MiB (memory)" in plain and plain.endswith("raise memory")
    most = AllocatedMemoryResources(memory_mb=10, memory_max_mb=64)
    assert "64 MiB (memory_max)" in pressure_text(0.3, 20, most, used=60 * MIB)


@pytest.mark.parametrize(("max_mb", "limit"), [(-1, "it has no limit"), (64, "its limit is 64 MiB")])
def test_a_task_below_its_limit_waits_for_the_memory_of_its_node(max_mb: int, limit: str) -> None:
    text = pressure_text(0.3, 20, AllocatedMemoryResources(memory_mb=10, memory_max_mb=max_mb), used=20 * MIB)
    assert text.endswith(f"its node is short of memory; the task uses 20 MiB, {limit}")


class Runner:
    """A task's runner, with the events of its run."""

    name = "web"
    alloc = SimpleNamespace(allocated_resources=SimpleNamespace(tasks={}))

    def __init__(self) -> None:
        self.machine = SimpleNamespace(state=TaskState(started_at=UnixNano(5)))

    def note(self, event: TaskEvent) -> None:
        """Keep an event."""
        state = self.machine.state
        self.machine.state = replace(state, events=(*state.events, replace(event, time=UnixNano(6))))


def test_a_run_has_one_event_also_over_restarts_and_a_first_sample_is_a_beginning() -> None:
    runner: Any = Runner()
    counts = []
    for _ in range(2):
        pressure = MemoryPressure()
        for number in range(1, 5):
            before, now = (
                TaskStats(at=UnixNano(each * 10 * NANOSECONDS), memory_stall_ns=each * 5 * NANOSECONDS)
                for each in (number - 1, number)
            )
            pressure.take(runner, 0, before, now)
            counts.append(len(runner.machine.state.events))
    assert counts == [0, 0, 1, 1, 1, 1, 1, 1]
