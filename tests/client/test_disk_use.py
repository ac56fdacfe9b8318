"""What an allocation takes of the disk, and what becomes of one that takes too much."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from yurt.client.allocations import disk_use
from yurt.client.allocations.disk_use import (
    FREE_FALL,
    INTERVAL_S,
    LOT_S,
    QUIET_PAUSE_MAX_S,
    WARN,
    DiskWatch,
    Measured,
    bytes_below,
    next_of,
    sizes_below,
    was_warned,
)
from yurt.lifecycle import events
from yurt.runtime.env import Env, RealEnv
from yurt.structs.alloc import TaskEvent, TaskState

ALLOC_ID = "11111111-0000-4000-8000-000000000001"


def test_all_files_below_count_once_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    before = bytes_below(str(tmp_path))
    (tmp_path / "deep" / "er" / "file").write_bytes(b"x" * 1_000_000)
    os.link(tmp_path / "deep" / "er" / "file", tmp_path / "again")
    os.symlink("/usr", tmp_path / "link")
    used = bytes_below(str(tmp_path)) - before
    assert 1_000_000 <= used < 1_100_000


def test_holes_take_nothing(tmp_path: Path) -> None:
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(10_000_000)
    assert bytes_below(str(tmp_path)) < 100_000


def test_what_is_gone_takes_nothing(tmp_path: Path) -> None:
    assert bytes_below(str(tmp_path / "absent")) == 0


class Overfull:
    """An allocation with a limit of 1 MiB, which notes what it is told."""

    def __init__(self, alloc_id: str) -> None:
        self.alloc = SimpleNamespace(id=alloc_id)
        self.task_group = SimpleNamespace(ephemeral_disk=SimpleNamespace(size_mb=1))
        self.is_over = False
        self.noted: list[TaskEvent] = []
        self.hooked = SimpleNamespace(note=self.noted.append)

    @property
    def states(self) -> dict[str, TaskState]:
        return {"main": TaskState(events=tuple(self.noted))}


def watch(root: Path, runners: dict[str, Any], env: Env | None = None) -> DiskWatch:
    return DiskWatch(str(root), env or RealEnv(), mode=WARN, runners=lambda: runners)


class Clock(RealEnv):
    """Time passes by hand."""

    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


class Walks:
    """The looks at one allocation, each `INTERVAL_S` after the last, and how many of them walked its directory."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.clock = Clock()
        self.file = root / ALLOC_ID / "file"
        self.file.parent.mkdir()
        self.agent = watch(root, {ALLOC_ID: Overfull(ALLOC_ID)}, self.clock)
        self.free = 1 << 40
        monkeypatch.setattr(disk_use, "bytes_below", self._walk)
        monkeypatch.setattr(disk_use, "free_bytes", lambda folder: self.free)

    def _walk(self, root: str) -> int:
        self.count += 1
        return bytes_below(root)

    async def look(self, times: int) -> int:
        """The number of walks in so many looks."""
        before = self.count
        for _ in range(times):
            await self.agent._look()
            self.clock.now_s += INTERVAL_S
        return self.count - before


async def test_a_directory_that_does_not_change_is_walked_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = Walks(tmp_path, monkeypatch)
    looks = round(QUIET_PAUSE_MAX_S / INTERVAL_S)
    assert await walks.look(looks) < looks
    await walks.look(2 * looks)
    assert await walks.look(looks) == 1


async def test_a_directory_that_has_changed_is_walked_at_each_look_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = Walks(tmp_path, monkeypatch)
    looks = round(QUIET_PAUSE_MAX_S / INTERVAL_S)
    await walks.look(3 * looks)
    walks.file.write_bytes(b"x" * 100_000)
    assert await walks.look(looks) >= 1
    assert await walks.look(1) == 1


async def test_a_quiet_directory_is_walked_at_once_where_the_disk_fills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks = Walks(tmp_path, monkeypatch)
    await walks.look(3 * round(QUIET_PAUSE_MAX_S / INTERVAL_S) + 1)
    for lost, count in ((FREE_FALL, 0), (FREE_FALL + 1, 1)):
        walks.free -= lost
        assert await walks.look(1) == count


def test_a_pause_ends_before_the_last_rate_of_growth_reaches_the_limit() -> None:
    grown = next_of(Measured(0, 0, 5, 0), 100, now_s=10, limit=160)
    assert (grown.pause_s, grown.rate) == (5, 10)
    quiet = next_of(next_of(grown, 100, now_s=15, limit=160), 100, now_s=21, limit=160)
    assert quiet.pause_s == 6
    assert next_of(quiet, 100, now_s=27, limit=120).pause_s == INTERVAL_S


def test_a_lot_ends_with_its_time() -> None:
    times = iter([0.0, 0.1, 0.2, LOT_S, 1.0])
    assert len(sizes_below(["/absent"] * 9, lambda: next(times))) == 3


async def test_an_allocation_is_warned_once_also_by_the_next_agent(tmp_path: Path) -> None:
    alloc_id = ALLOC_ID
    (tmp_path / alloc_id).mkdir()
    (tmp_path / alloc_id / "large").write_bytes(b"x" * 2_000_000)
    runner = Overfull(alloc_id)
    for agent in (watch(tmp_path, {alloc_id: runner}), watch(tmp_path, {alloc_id: runner})):
        await agent._look()
        await agent._look()

    assert [event.type for event in runner.noted] == [events.DISK_EXCEEDED]
    assert was_warned(runner.states.values())


async def test_what_was_warned_is_forgotten_with_the_allocation(tmp_path: Path) -> None:
    alloc_id = ALLOC_ID
    (tmp_path / alloc_id).mkdir()
    (tmp_path / alloc_id / "large").write_bytes(b"x" * 2_000_000)
    runners: dict[str, Any] = {alloc_id: Overfull(alloc_id)}
    agent = watch(tmp_path, runners)
    await agent._look()
    assert agent._warned == {alloc_id}
    runners.clear()
    await agent._look()
    assert agent._warned == set()
