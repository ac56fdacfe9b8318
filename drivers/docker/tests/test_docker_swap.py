"""A folder that a task mounts is swapped for a link to the host, while the engine starts the container."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from yurt.sdk import mounting
from yurt.sdk.containers.dev_cleanup import DevCleanup
from yurt.sdk.containers.mount_sources import EngineView
from yurt.sdk.errors import RecoverableError
from yurt.sdk.value import replace, seconds
from yurt.testing.driver_suite import Config, DriverBench, SwappedMountTests
from yurt.testing.driver_suite.swaps import MOUNT, laid_trap, swaps_before, until
from yurt.testing.faults.link_swaps import exchange
from yurt.testing.services.engines import DockerEngine
from yurt_driver_docker.config import plugin_config
from yurt_driver_docker.driver import DockerDriver

IMAGE = "yurt-test/busybox:1"
LIMIT_S = 60.0


@pytest_asyncio.fixture
async def bench(engine: DockerEngine, tmp_path: Path) -> AsyncIterator[DriverBench]:
    """A driver of an agent that lets no task mount paths of the host."""
    options = {"endpoint": engine.endpoint}
    made = DriverBench(lambda context: DockerDriver(plugin_config(replace(context, config=options))), tmp_path)
    yield made
    await made.close()


def task(**options: Any) -> dict[str, Any]:
    """A task that says whose folder it sees."""
    return {
        "image": IMAGE, "command": "cat", "args": ["/seen/whose"], "network_mode": "none",
        "volumes": [MOUNT], **options,
    }  # fmt: skip


def ours(bench: DriverBench) -> tuple[str, ...]:
    """The mounts for containers of this driver."""
    assert isinstance(bench.driver, DockerDriver)
    return mounting.points_below(bench.driver._holder.places.folder)


class TestSwappedMounts(SwappedMountTests):
    @pytest.fixture
    def whose(self) -> Config:
        return task()

    @pytest.fixture
    def calls(self, bench: DriverBench) -> Any:
        assert isinstance(bench.driver, DockerDriver)
        return bench.driver._calls


async def test_an_engine_that_does_not_see_our_mounts_is_told_the_name_and_looked_at_when_it_has_started(
    bench: DriverBench, engine: DockerEngine
) -> None:
    mine, link = laid_trap(bench)
    assert isinstance(bench.driver, DockerDriver)
    bench.driver._holder._look = lambda: EngineView(is_visible=True)  # type: ignore[method-assign]
    handle = await bench.start(task(command="sleep", args=["1000"]), name="first")
    assert (await bench.driver.exec_task(handle.task_id, ("cat", "/seen/whose"), timeout=seconds(20))).stdout == b"ours"
    swaps_before(bench.driver._calls, "start", lambda: exchange(mine, link))

    with pytest.raises(RecoverableError, match='the mount at /seen is not "alloc/data/mine" of the allocation'):
        await bench.start(task(command="sleep", args=["1000"]), name="second")

    await until(lambda: engine.containers() == [str(handle.state["container_id"])])


async def test_a_container_is_not_made_while_it_is_not_known_what_its_engine_sees(bench: DriverBench) -> None:
    laid_trap(bench)
    assert isinstance(bench.driver, DockerDriver)
    bench.driver._holder._socket_path = str(bench.folder / "nobody-listens")
    with pytest.raises(RecoverableError, match="the engine refuses connections"):
        await bench.start(task())


async def test_folders_files_and_what_is_missing_are_mounted_and_nothing_stays_mounted_here(bench: DriverBench) -> None:
    data = bench.folder / "alloc" / "alloc" / "data"
    (data / "inner").mkdir(parents=True)
    (data / "inner" / "file").write_text("one file")
    script = "cat /file /inner/file; echo made > /new/it; touch /local/here"
    volumes = ["../alloc/data/inner/file:/file:ro", "../alloc/data/inner:/inner", "local/deep/new:/new"]

    handle = await bench.start(task(command="sh", args=["-c", script], volumes=volumes))

    assert (await bench.wait(handle.task_id)).is_success
    assert bench.text() == "one fileone file"
    local = bench.folder / "alloc" / "web" / "local"
    assert (local / "deep" / "new" / "it").read_text() == "made\n"
    assert (local / "here").exists()
    await until(lambda: not ours(bench))


async def test_what_a_killed_agent_left_mounted_goes_with_the_next_one(bench: DriverBench) -> None:
    assert isinstance(bench.driver, DockerDriver)
    places, kept = bench.driver._holder.places, bench.folder / "kept"
    kept.mkdir()
    (kept / "file").touch()
    places.mount(os.open(kept, os.O_PATH), "left", 0)
    assert ours(bench)

    async for _ in bench.driver.fingerprint():
        break

    await until(lambda: not os.path.exists(places.folder))
    assert (kept / "file").exists()


async def test_a_dev_agent_that_is_killed_leaves_nothing_mounted(bench: DriverBench, engine: DockerEngine) -> None:
    assert isinstance(bench.driver, DockerDriver)
    places, kept = bench.driver._holder.places, bench.folder / "kept"
    kept.mkdir()
    (kept / "file").touch()
    places.mount(os.open(kept, os.O_PATH), "left", 0)
    cleanup = DevCleanup(str(engine.socket), "", "yurt.owner=nobody", unmount=places.clear_command)
    cleanup.start()
    assert cleanup.process is not None
    assert cleanup.process.stdin is not None

    cleanup.process.stdin.close()

    assert await asyncio.to_thread(cleanup.process.wait, LIMIT_S) == 0
    await until(lambda: not os.path.exists(places.folder))
    assert (kept / "file").exists()
