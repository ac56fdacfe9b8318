"""What a server has of Python's collector: young objects in small lots, a growing state unseen, all given back."""

from __future__ import annotations

import asyncio
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from yurt.runtime.env import Env, RealEnv, Timer
from yurt.runtime.metrics import Metrics
from yurt.server.python_collector import (
    CLEAN_COUNT,
    GROWTH_ROWS,
    LARGE_ROWS,
    MIDDLE_S,
    OLD_COUNT,
    OLD_S,
    SWITCH_S,
    YOUNG_COUNT,
    HeapKeeper,
)


class Clock(RealEnv):
    """Time passes when somebody sleeps, and stands still at the end."""

    def __init__(self, end_s: float) -> None:
        self.now_s = 0.0
        self.end_s = end_s
        self.sleeps = 0
        self.ended = asyncio.Event()

    def monotonic(self) -> float:
        return self.now_s

    async def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.sleeps += 1
        if self.now_s > self.end_s:
            self.ended.set()
            await asyncio.Event().wait()

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:
        self.now_s += seconds
        return super().call_later(0.0, function)


class Node:
    """One of a cycle."""

    def __init__(self) -> None:
        self.other = self


class Heap:
    """A keeper, and the rows that its state has."""

    def __init__(self, env: Env | None = None) -> None:
        self.rows = 0
        self.metrics = Metrics()
        self.keeper = HeapKeeper(env=env or RealEnv(), metrics=self.metrics, rows=lambda: self.rows)

    def begin(self) -> None:
        self.keeper.start()
        self.keeper.freeze()

    async def run(self, clock: Clock) -> None:
        """Let the keeper run until the clock's end."""
        running = asyncio.ensure_future(self.keeper.run())
        await clock.ended.wait()
        running.cancel()
        await asyncio.wait({running})
        self.keeper.restore_defaults()

    def grow(self) -> int:
        """The state has grown, and the keeper looks; how many objects are out of the collector's sight then."""
        self.rows += GROWTH_ROWS
        self.keeper.look()
        return gc.get_freeze_count()


@pytest.fixture
def heap() -> Iterator[Heap]:
    heap = Heap()
    yield heap
    heap.keeper.restore_defaults()


def make_cycles(count: int) -> None:
    for _ in range(count):
        cycle: list[object] = []
        cycle.append(cycle)


def test_a_server_collects_young_objects_only_and_in_small_lots(heap: Heap) -> None:
    heap.begin()
    assert gc.isenabled()
    assert gc.get_threshold()[0] == YOUNG_COUNT
    assert min(gc.get_threshold()[1:]) > 1_000_000


def test_what_a_growing_state_adds_is_frozen_unseen_once_a_sample_was_clean(heap: Heap) -> None:
    heap.begin()
    before = heap.grow()
    gc.collect(0)
    assert not gc.isenabled(), "a clean sample is enough until the next look"
    added: list[list[int]] = [[] for _ in range(3 * YOUNG_COUNT)]
    assert heap.grow() - before >= len(added)
    assert gc.isenabled(), "the next young objects are a sample again"


def test_while_samples_hold_garbage_a_growing_state_is_collected_too(heap: Heap) -> None:
    heap.begin()
    heap.grow()
    make_cycles(2 * CLEAN_COUNT)
    gc.collect(0)
    assert gc.isenabled()


def test_what_was_not_looked_at_is_frozen_also_when_the_state_stops_growing(heap: Heap) -> None:
    heap.begin()
    before = heap.grow()
    gc.collect(0)
    added: list[list[int]] = [[] for _ in range(YOUNG_COUNT)]
    heap.keeper.look()
    assert gc.get_freeze_count() - before >= len(added)
    assert gc.isenabled()


def test_without_growth_nothing_is_frozen(heap: Heap) -> None:
    heap.begin()
    before = gc.get_freeze_count()
    heap.rows += GROWTH_ROWS - 1
    heap.keeper.look()
    assert gc.get_freeze_count() == before


def test_rows_that_went_away_must_come_back_before_the_state_counts_as_grown(heap: Heap) -> None:
    heap.rows = 10 * GROWTH_ROWS
    heap.begin()
    heap.rows = 0
    heap.keeper.look()
    before = gc.get_freeze_count()
    assert heap.grow() > before


@pytest.mark.parametrize(("rows", "written", "is_frozen"), [
    (LARGE_ROWS, GROWTH_ROWS, True),
    (LARGE_ROWS, GROWTH_ROWS - 1, False),
    (LARGE_ROWS - 1, GROWTH_ROWS, False),
])  # fmt: skip
def test_a_large_state_that_is_written_anew_counts_as_growing(
    heap: Heap, rows: int, written: int, is_frozen: bool
) -> None:
    heap.rows = rows
    heap.begin()
    kept = [Node() for _ in range(10)]
    frozen = gc.get_freeze_count()
    heap.keeper.note_writes(written)
    heap.keeper.look()
    assert (gc.get_freeze_count() > frozen) is is_frozen
    after = gc.get_freeze_count()
    heap.keeper.look()
    assert gc.get_freeze_count() == after, "only what was written since the last look counts"
    assert kept


async def test_what_lived_for_long_and_ended_is_collected_soon_so_that_little_of_it_gathers() -> None:
    clock = Clock(20.0)
    timed = Heap(clock)
    timed.begin()
    node = Node()
    gone = weakref.ref(node)
    gc.collect()
    gc.collect()
    del node
    gc.collect(0)
    assert gone() is not None
    timed.keeper.note_writes(1)
    await timed.run(clock)
    assert gone() is None


async def test_while_nothing_is_written_old_objects_are_left_alone_and_wake_ups_are_rare() -> None:
    clock = Clock(200.0)
    timed = Heap(clock)
    timed.begin()
    collected: list[int] = []
    count = partial(_note_generation, collected)
    gc.callbacks.append(count)
    await timed.run(clock)
    gc.callbacks.remove(count)
    assert 2 not in collected
    assert collected.count(1) >= 12, "survivors of the young generation are collected"
    assert clock.sleeps <= 30


async def test_old_objects_are_collected_at_last_where_nothing_is_written() -> None:
    clock = Clock(OLD_S + 2 * MIDDLE_S)
    timed = Heap(clock)
    timed.begin()
    node = Node()
    gone = weakref.ref(node)
    gc.collect()
    gc.collect()
    del node
    await timed.run(clock)
    assert gone() is None


async def test_too_many_old_objects_are_counted_once_for_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(OLD_S - 2 * MIDDLE_S)
    timed = Heap(clock)
    timed.begin()
    counts: list[int] = []
    monkeypatch.setattr(gc, "get_objects", lambda generation: (counts.append(generation), [None] * OLD_COUNT * 2)[1])
    timed.keeper.note_writes(1)
    await timed.run(clock)
    assert counts == [2]


def _note_generation(collected: list[int], phase: str, info: dict[str, int]) -> None:
    if phase == "start":
        collected.append(info["generation"])


def test_each_collection_is_timed(heap: Heap) -> None:
    heap.begin()
    gc.collect(0)
    assert heap.metrics.timings["runtime.gc_pause_ns"].count >= 1


def test_the_process_is_left_as_it_was_found_once_its_last_server_has_ended(heap: Heap) -> None:
    found = (gc.isenabled(), gc.get_threshold(), sys.getswitchinterval(), len(gc.callbacks))
    other = Heap()
    heap.begin()
    other.begin()
    heap.keeper.restore_defaults()
    assert sys.getswitchinterval() == pytest.approx(SWITCH_S)
    other.keeper.restore_defaults()
    assert (gc.isenabled(), gc.get_threshold(), sys.getswitchinterval(), len(gc.callbacks)) == found
    assert gc.get_freeze_count() == 0
