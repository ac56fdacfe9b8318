"""Places of mounts: clearing away what is left never touches what is being made meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.sdk import mounting
from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.mount_sources import EngineView, Holder, Holds
from yurt.sdk.errors import DriverError
from yurt.sdk.opening import HOLD_FLAGS
from yurt.sdk.pinned_paths import PinnedPaths
from yurt.testing.rights import may_mount

WAIT_S = 30.0


@pytest.fixture
def places() -> Iterator[PinnedPaths]:
    """Places of a driver that nobody else knows."""
    made = PinnedPaths(f"test-{uuid.uuid4().hex}")
    yield made
    made.close()


async def test_the_sources_in_a_label_are_those_of_the_container_that_its_engine_restarts() -> None:
    holder = Holder(f"test-{uuid.uuid4().hex}", "", DriverTasks("test"))
    holds = Holds(holder, "/alloc", group="group", view=EngineView())
    holds.plan("/alloc/task/secrets", "/secrets", makes=True)

    again = await holder.again(holds.text())

    assert json.loads(holds.text())["sources"] == [[holds.sources[0].name, "task/secrets", "/secrets", True, True]]
    assert (again.sources, again.group) == (holds.sources, "group")


@pytest.mark.skipif(not may_mount(), reason="mounting takes root with CAP_SYS_ADMIN on Linux")
def test_what_is_mounted_while_old_places_are_cleared_stays(
    places: PinnedPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    places.mount(os.open(tmp_path, HOLD_FLAGS), "left", 0)
    made = []
    look = mounting.points_below

    def a_start_after_the_look(*arguments: str) -> tuple[str, ...]:
        found = look(*arguments)
        if not made:
            made.append(places.mount(os.open(tmp_path, HOLD_FLAGS), places.new_group(), 0))
        return found

    monkeypatch.setattr(mounting, "points_below", a_start_after_the_look)

    places.clear()

    assert os.listdir(made[0]) == ["file"]
    assert not os.path.exists(f"{places.folder}/left")


async def test_nothing_is_held_before_the_old_places_are_cleared() -> None:
    holder = Holder(f"test-{uuid.uuid4().hex}", "", DriverTasks("test"))
    may_end, rounds = threading.Event(), []

    def slow_clear() -> None:
        rounds.append(may_end.wait(WAIT_S))

    holder.places.clear = slow_clear  # type: ignore[method-assign]
    async with asyncio.TaskGroup() as group:
        starts = [group.create_task(each) for each in (holder.holds("/alloc"), holder.again(""), holder.open())]
        done, _ = await asyncio.wait(starts, timeout=0.1)
        assert not done
        may_end.set()

    assert rounds == [True]


@pytest.fixture
def container() -> Iterator[subprocess.Popen[bytes]]:
    """What stands for the first process of a container."""
    with subprocess.Popen(["sleep", "1000"]) as process:
        yield process
        process.kill()


def holds_of(container: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, *, ends: bool) -> Holds:
    """One source, at whose place the container shows something else; the container may end while that is seen."""

    def is_other(*_: object) -> bool:
        if ends:
            container.kill()
            container.wait()
        return True

    holds = Holds(Holder("test", "", DriverTasks("test")), "/alloc", group="g", view=EngineView(is_visible=True))
    holds.plan("/alloc/data", "/data")
    monkeypatch.setattr(holds, "_is_other", is_other)
    return holds


@pytest.mark.skipif(sys.platform != "linux", reason="containers are looked at in /proc")
async def test_a_container_that_shows_something_else_is_refused(
    container: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DriverError, match="shows another folder at /data"):
        await holds_of(container, monkeypatch, ends=False).check({"State": {"Pid": container.pid}})


@pytest.mark.skipif(sys.platform != "linux", reason="containers are looked at in /proc")
async def test_what_a_container_shows_that_has_just_ended_is_no_matter(
    container: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    await holds_of(container, monkeypatch, ends=True).check({"State": {"Pid": container.pid}})
