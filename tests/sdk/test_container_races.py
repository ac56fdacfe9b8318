"""What container drivers do beside their calls, while tasks start and are found again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.creation import ContainerCreator
from yurt.sdk.containers.dangling import ContainerOrigin, DanglingRemover
from yurt.sdk.containers.dev_cleanup import DevCleanup
from yurt.sdk.containers.images import PulledImages
from yurt.sdk.containers.options import DanglingRules
from yurt.sdk.containers.starting import Starter, StartSteps
from yurt.sdk.containers.tasks import Container, ContainerTask, ContainerTasks
from yurt.sdk.driver import LogRotation, TaskDirs, TaskRequest, TaskResources
from yurt.sdk.value import NANOSECONDS, UnixNano

NOW_S = 1_000
IMAGE, TASK = "sha256:1", "alloc/web/0"
WAIT_S = 30.0


class Engine:
    """Containers and what is done with them."""

    def __init__(self) -> None:
        self.containers = {
            "c1": ContainerOrigin("a/web/0", 0),
            "c2": ContainerOrigin("b/web/0", 0),
            "young": ContainerOrigin("c/web/0", NOW_S),
        }

    async def made(self) -> Mapping[str, ContainerOrigin]:
        return dict(self.containers)

    async def remove(self, container_id: str) -> None:
        del self.containers[container_id]


@pytest.fixture
async def background() -> AsyncIterator[DriverTasks]:
    made = DriverTasks("test")
    yield made
    await made.close()


@pytest.fixture
def tasks(background: DriverTasks) -> ContainerTasks:
    """A table without an engine: nothing of it is asked here."""
    return ContainerTasks(None, background, lambda: UnixNano(0))  # type: ignore[arg-type]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def dangling(engine: Engine, tasks: ContainerTasks) -> DanglingRemover:
    rules = DanglingRules(enabled=True, period_s=1, grace_s=10, dry_run=False)
    return DanglingRemover(
        rules, lambda: UnixNano(NOW_S * NANOSECONDS), made=engine.made, has_task=tasks.has_task, remove=engine.remove
    )


def take_up(tasks: ContainerTasks, task_id: str, container_id: str) -> None:
    """A task is known from now on."""
    container = Container(container_id=container_id, image_id=IMAGE, logs_dir="", task_name="web", logs=LogRotation())
    tasks.add(ContainerTask(task_id, container), pid=0)


async def test_old_containers_that_no_task_knows_go(
    engine: Engine, tasks: ContainerTasks, dangling: DanglingRemover
) -> None:
    take_up(tasks, "b/web/0", "c2")
    assert (await dangling.sweep(), list(engine.containers)) == (["c1"], ["c2", "young"])


async def test_a_container_whose_task_is_found_while_another_is_removed_stays(
    engine: Engine, tasks: ContainerTasks, dangling: DanglingRemover
) -> None:
    async def remove(container_id: str) -> None:
        take_up(tasks, "b/web/0", "c2")
        await engine.remove(container_id)

    dangling.remove = remove
    assert (await dangling.sweep(), list(engine.containers)) == (["c1"], ["c2", "young"])


async def test_a_container_whose_task_starts_or_is_looked_for_stays(
    engine: Engine, tasks: ContainerTasks, dangling: DanglingRemover
) -> None:
    tasks.reserve("a/web/0")
    with tasks.seeking("b/web/0"):
        assert await dangling.sweep() == []
    tasks.give_up("a/web/0")
    assert (await dangling.sweep(), list(engine.containers)) == (["c1", "c2"], ["young"])


def test_a_janitor_that_was_dismissed_does_not_start_any_more() -> None:
    cleanup = DevCleanup("/no/socket", "", "yurt.owner=nobody", unmount=("true",))
    cleanup.dismiss()
    cleanup.start()
    assert cleanup.process is None


def test_a_janitor_starts_once() -> None:
    cleanup = DevCleanup("/no/socket", "", "yurt.owner=nobody", unmount=("true",))
    cleanup.start()
    first = cleanup.process
    cleanup.start()
    assert first is not None and cleanup.process is first
    cleanup.dismiss()
    assert first.returncode == 0


class Shop:
    """An engine with one image, which takes its time to remove it."""

    def __init__(self) -> None:
        self.has_image = True
        self.pulls = 0
        self.removing, self.may_remove = asyncio.Event(), asyncio.Event()

    async def image(self) -> str:
        if not self.has_image:
            self.pulls += 1
            self.has_image = True
        return IMAGE

    async def remove(self, image_id: str) -> None:
        self.removing.set()
        await self.may_remove.wait()
        self.has_image = False


async def test_a_start_that_gets_an_image_in_removal_brings_it_again(
    background: DriverTasks, tasks: ContainerTasks, tmp_path: Path
) -> None:
    shop = Shop()
    pulled_images = PulledImages(background, tmp_path / "images", shop.remove, delay_s=0, removes=True)
    pulled_images.own(IMAGE)
    pulled_images.hold(IMAGE, "earlier")
    pulled_images.release(IMAGE, "earlier")
    async with asyncio.timeout(WAIT_S):
        await shop.removing.wait()
    acts: Any = None
    creator = ContainerCreator(acts, background, is_running=tasks.is_running, command="test")
    starter = Starter(acts, creator, pulled_images, tasks)
    steps = StartSteps(
        image=shop.image, body=acts, address=acts, rotation=acts, holds=acts, take_up=acts, attempts=1,
        is_terminal=False,
    )  # fmt: skip

    async with asyncio.timeout(WAIT_S), asyncio.TaskGroup() as group:
        held = group.create_task(starter._reserved_image(TASK, steps))
        await asyncio.sleep(0)
        shop.may_remove.set()

    assert (held.result(), shop.has_image, shop.pulls) == (IMAGE, True, 1)
    assert pulled_images._users == {IMAGE: {TASK}}


class RunningEngine:
    """Starts every container, and remembers those that it removes."""

    def __init__(self) -> None:
        self.removed: list[str] = []

    async def image(self) -> str:
        return IMAGE

    async def body(self, image_id: str) -> dict[str, Any]:
        return {}

    async def make(self, request: object, body: object, *, attempts: int) -> str:
        return "c1"

    def remove_in_background(self, container_id: str) -> None:
        self.removed.append(container_id)

    async def start(self, container_id: str) -> None:
        return

    async def inspect(self, container_id: str) -> dict[str, Any]:
        return {"State": {"Pid": 1}}

    wants_look_before = False

    async def take(self) -> None:
        return

    async def check(self, inspected: object) -> None:
        return

    def release(self) -> None:
        return


async def test_a_container_that_cannot_be_taken_up_after_its_start_is_removed(
    background: DriverTasks, tasks: ContainerTasks, tmp_path: Path
) -> None:
    acts: Any = RunningEngine()
    pulled_images = PulledImages(background, tmp_path / "images", acts.start, delay_s=0, removes=False)

    def take_up(task: ContainerTask, inspected: object) -> None:
        tasks.add(task, pid=0)
        raise UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "a mount point")

    steps = StartSteps(
        image=acts.image, body=acts.body, address=lambda _: "", rotation=lambda logs: logs, holds=acts,
        take_up=take_up, attempts=1, is_terminal=False,
    )  # fmt: skip
    dirs = TaskDirs(**dict.fromkeys(TaskDirs.__struct_fields__, str(tmp_path)))
    request = TaskRequest(
        task_id=TASK, alloc_id="alloc", task_name="web", job_id="j", group_name="g", namespace="default",
        config=None, env={}, dirs=dirs, resources=TaskResources(),
    )  # fmt: skip
    with pytest.raises(UnicodeDecodeError):
        await Starter(acts, acts, pulled_images, tasks).start(request, steps)
    assert (acts.removed, tasks.has(TASK), tasks.is_running("c1")) == (["c1"], False, False)
    assert not pulled_images._users.get(IMAGE)
