"""A folder that a task mounts is swapped for a link to the host, while podman starts the container."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from yurt.sdk import mounting
from yurt.sdk.containers.held import View
from yurt.sdk.driver import TaskHandle
from yurt.sdk.errors import DriverError, RecoverableError
from yurt.sdk.value import replace, seconds
from yurt.testing.driver_suite import Bench
from yurt.testing.engines import PodmanEngine
from yurt.testing.swapping import exchange, swapping
from yurt_driver_podman import reports
from yurt_driver_podman.config import plugin_config
from yurt_driver_podman.driver import PodmanDriver
from yurt_driver_podman.service import PodmanService

STARTS = 6
LIMIT_S = 60.0


@pytest_asyncio.fixture
async def bench(engine: PodmanEngine, tmp_path: Path) -> AsyncIterator[Bench]:
    """A driver of an agent that lets no task mount paths of the host."""
    options = {"socket_path": str(engine.socket), "recover_stopped": True}
    made = Bench(lambda context: PodmanDriver(plugin_config(replace(context, config=options))), tmp_path)
    yield made
    await made.close()


def task(command: str = "cat /seen/whose", **options: Any) -> dict[str, Any]:
    """A task that says whose folder it sees."""
    return {
        "image": PodmanEngine.image, "command": "sh", "args": ["-c", command], "network_mode": "none",
        "volumes": ["../alloc/data/mine:/seen"], **options,
    }  # fmt: skip


def laid_trap(bench: Bench) -> tuple[Path, Path]:
    """A folder of the allocation, and beside it a link to one of the host."""
    data, host = bench.folder / "alloc" / "alloc" / "data", bench.folder / "host"
    for folder, owner in ((data / "mine", "ours"), (host, "host")):
        folder.mkdir(parents=True)
        (folder / "whose").write_text(owner)
    (data / "link").symlink_to(host)
    return data / "mine", data / "link"


def service_of(bench: Bench) -> PodmanService:
    assert isinstance(bench.driver, PodmanDriver)
    return bench.driver._services["default"]


def swaps_before(service: PodmanService, name: str, swap: Callable[[], None]) -> None:
    """Let the swap happen right before the driver asks the engine for something."""
    act = getattr(service._acts, name)

    async def swapped(*arguments: Any) -> Any:
        swap()
        return await act(*arguments)

    setattr(service._acts, name, swapped)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, with a bound."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - what happens is outside this process
            await asyncio.sleep(0.01)


async def test_what_was_checked_is_mounted_though_its_name_leads_elsewhere_when_the_engine_looks(bench: Bench) -> None:
    mine, link = laid_trap(bench)
    swaps_before(service_of(bench), "start", lambda: exchange(mine, link))

    handle = await bench.start(task())

    assert (await bench.wait(handle.task_id)).is_success
    assert bench.text() == "ours"
    await until(lambda: not mounting.points_below(service_of(bench)._holder.places.folder))


async def test_a_folder_swapped_without_pause_never_shows_the_host(bench: Bench) -> None:
    with swapping(*laid_trap(bench)):
        for number in range(STARTS):
            with suppress(DriverError):
                handle = await bench.start(task(), name=f"t{number}")
                await bench.wait(handle.task_id)
    seen = [bench.text(name=f"t{number}") for number in range(STARTS)]
    assert set(seen) <= {"ours", ""}, seen


async def test_where_our_mounts_are_not_seen_a_container_with_other_mounts_never_runs(
    bench: Bench, engine: PodmanEngine
) -> None:
    mine, link = laid_trap(bench)
    service_of(bench)._holder._look = lambda: View(is_visible=True)  # type: ignore[method-assign]
    script = "touch /alloc/data/$0; cat /seen/whose"
    handle = await bench.start(task(args=["-c", script, "first"]), name="first")
    assert (await bench.wait(handle.task_id)).is_success
    assert bench.text(name="first") == "ours"
    swaps_before(service_of(bench), "prepare", lambda: exchange(mine, link))

    with pytest.raises(RecoverableError, match='the mount at /seen is not "alloc/data/mine" of the allocation'):
        await bench.start(task(args=["-c", script, "second"]), name="second")

    await until(lambda: engine.containers() == [str(handle.state["container_id"])])
    assert sorted(os.listdir(mine.parent)) == ["first", "link", "mine"]


async def test_a_container_that_ended_with_the_machine_is_started_on_the_mounts_that_it_had(
    bench: Bench, engine: PodmanEngine, monkeypatch: pytest.MonkeyPatch
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
    wanted = ("inspect", "--format", "{{.State.Running}}", str(handle.state["container_id"]))
    return engine.run(*wanted).stdout.strip() == b"true"
