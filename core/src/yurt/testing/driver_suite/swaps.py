"""Tests that replace a mounted folder by a symbolic link to the host while an engine starts the container.

For drivers whose tasks name folders of their allocation that the engine mounts; a driver's tests subclass
`SwappedMountTests`, and use the rest for what holds only for their engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from yurt.sdk.errors import DriverError
from yurt.testing.driver_suite.bench import LIMIT_S, Config, DriverBench
from yurt.testing.faults.link_swaps import exchange, swapping

STARTS = 8
MOUNT = "../alloc/data/mine:/seen"
"""How a task names the folder of `laid_trap`; the file `whose` in it says "ours" or "host"."""


def laid_trap(bench: DriverBench) -> tuple[Path, Path]:
    """A folder of the allocation, and next to it a symbolic link to a folder of the host."""
    data, host = bench.folder / "alloc" / "alloc" / "data", bench.folder / "host"
    for folder, owner in ((data / "mine", "ours"), (host, "host")):
        folder.mkdir(parents=True)
        (folder / "whose").write_text(owner)
    (data / "link").symlink_to(host)
    return data / "mine", data / "link"


def swaps_before(calls: Any, name: str, swap: Callable[[], None]) -> None:
    """Patch a method of `calls` so that `swap` runs right before the driver calls its engine."""
    act = getattr(calls, name)

    async def swapped(*arguments: Any) -> Any:
        swap()
        return await act(*arguments)

    setattr(calls, name, swapped)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a bound."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - what happens is outside this process
            await asyncio.sleep(0.01)


class SwappedMountTests:
    """Subclass it with fixtures `bench`, `whose` and `calls`; the driver of `bench` permits no host paths."""

    @pytest.fixture
    def whose(self) -> Config:
        """The config of a task that mounts `MOUNT` and prints the file `whose` in it; a subclass overrides this."""
        pytest.fail("swapped mounts need a fixture `whose`")

    @pytest.fixture
    def calls(self, bench: DriverBench) -> Any:
        """The object through which the driver calls its engine; a subclass overrides this."""
        pytest.fail("swapped mounts need a fixture `calls`")

    async def test_what_was_checked_is_mounted_though_its_name_leads_elsewhere_when_the_engine_looks(
        self, bench: DriverBench, whose: Config, calls: Any
    ) -> None:
        mine, link = laid_trap(bench)
        swaps_before(calls, "start", lambda: exchange(mine, link))

        handle = await bench.start(whose)

        assert (await bench.wait(handle.task_id)).is_success
        assert bench.text() == "ours"

    async def test_a_folder_swapped_without_pause_never_shows_the_host(self, bench: DriverBench, whose: Config) -> None:
        with swapping(*laid_trap(bench)):
            for number in range(STARTS):
                with suppress(DriverError):
                    handle = await bench.start(whose, name=f"t{number}")
                    await bench.wait(handle.task_id)
        seen = [bench.text(name=f"t{number}") for number in range(STARTS)]
        assert set(seen) <= {"ours", ""}, seen
