"""A folder that a task mounts is swapped for a link to the host, while podman starts the container."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from yurt.sdk import mounting
from yurt.sdk.containers.mount_sources import EngineView
from yurt.sdk.driver import TaskHandle
from yurt.sdk.errors import RecoverableError
from yurt.sdk.value import replace, seconds
from yurt.testing.driver_suite import Config, DriverBench, SwappedMountTests
from yurt.testing.driver_suite.swaps import MOUNT, laid_trap, swaps_before, until
from yurt.testing.faults.link_swaps import exchange
from yurt.testing.services.engines import PodmanEngine
from yurt_driver_podman import reports
from yurt_driver_podman.config import plugin_config
from yurt_driver_podman.driver import PodmanDriver
from yurt_driver_podman.service import PodmanService


@pytest_asyncio.fixture
async def bench(engine: PodmanEngine, tmp_path: Path) -> AsyncIterator[DriverBench]:
    """A driver of an agent that lets no task mount paths of the host."""
    options = {"socket_path": str(engine.socket), "recover_stopped": True}
    made = DriverBench(lambda context: PodmanDriver(plugin_config(replace(context, config=options))), tmp_path)
    yield made
    await made.close()


def task(command: str = "cat /seen/whose", **options: Any) -> dict[str, Any]:
    """A task that says whose folder it sees."""
    return {
        "image": PodmanEngine.image, "command": "sh", "args": ["-c", command], "network_mode": "none",
        "volumes": [MOUNT], **options,
    }  # fmt: skip


def service_of(bench: DriverBench) -> PodmanService:
    assert isinstance(bench.driver, PodmanDriver)
    return bench.driver._services["default"]


class TestSwappedMounts(SwappedMountTests):
    @pytest.fixture
    def whose(self) -> Config:
        return task()

    @pytest.fixture
    def calls(self, bench: DriverBench) -> Any:
        return service_of(bench)._calls


async def test_nothing_stays_mounted_here(bench: DriverBench) -> None:
    laid_trap(bench)
    handle = await bench.start(task())
    await bench.wait(handle.task_id)
    await until(lambda: not mounting.points_below(service_of(bench)._holder.places.folder))


async def test_where_our_mounts_are_not_seen_a_container_with_other_mounts_never_runs(
    bench: DriverBench, engine: PodmanEngine
) -> None:
    mine, link = laid_trap(bench)
    service_of(bench)._holder._look = lambda: EngineView(is_visible=True)  # type: ignore[method-assign]
    script = "touch /alloc/data/$0; cat /seen/whose"
    handle = await bench.start(task(args=["-c", script, "first"]), name="first")
    assert (await bench.wait(handle.task_id)).is_success
    assert bench.text(name="first") == "ours"
    swaps_before(service_of(bench)._calls, "prepare", lambda: exchange(mine, link))

    with pytest.raises(RecoverableError, match='the mount at /seen is not "alloc/data/mine" of the allocation'):
        await bench.start(task(args=["-c", script, "second"]), name="second")

    await until(lambda: engine.containers() == [str(handle.state["container_id"])])
    assert sorted(os.listdir(mine.parent)) == ["first", "link", "mine"]


async def test_a_container_that_ended_with_the_machine_is_started_on_the_mounts_that_it_had(
    bench: DriverBench, engine: PodmanEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_trap(bench)
    handle = await bench.start(task("cat /seen/whose; while [ ! -e /local/stop ]; do sleep 0.1; done"))
    await until(lambda: bench.text() == "ours")
    await bench.throw_away()
    engine.run("kill", str(handle.state["container_id"]))
    await until(lambda: not is_running(engine, handle))
    monkeypatch.setattr(reports, "is_restarted", lambda inspected: True)

    await bench.driver.recover_task(handle)

    assert is_running(engine, handle)
    found = await bench.driver.exec_task(handle.task_id, ("cat", "/seen/whose"), timeout=seconds(20))
    assert found.stdout == b"ours"
    await until(lambda: not mounting.points_below(service_of(bench)._holder.places.folder))


def is_running(engine: PodmanEngine, handle: TaskHandle) -> bool:
    inspection = ("inspect", "--format", "{{.State.Running}}", str(handle.state["container_id"]))
    return engine.run(*inspection).stdout.strip() == b"true"
