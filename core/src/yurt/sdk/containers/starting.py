"""Starts a task: pulls the image, creates and starts the container; a failed start leaves nothing behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from yurt.sdk.containers.common import parse_stamp
from yurt.sdk.containers.creation import CreationCalls, Maker
from yurt.sdk.containers.images import ImageShelf
from yurt.sdk.containers.mount_sources import Holds
from yurt.sdk.containers.tasks import Container, ContainerTask, ContainerTasks
from yurt.sdk.driver import LogRotation, TaskHandle, TaskRequest
from yurt.sdk.errors import Conflict, NotFound, RecoverableError
from yurt.sdk.value import UnixNano

Inspected = Mapping[str, Any]
IMAGE_ROUNDS = 5


class StartCalls(CreationCalls, Protocol):
    """Engine calls from a container's creation to its start."""

    async def prepare(self, container_id: str) -> bool:
        """Create the container without starting it; false where the engine cannot separate the two."""
        ...

    async def start(self, container_id: str) -> None:
        """Start the container."""
        ...


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that differ by engine and task.

    `image` brings the image and tells its id; `body` is the container to make of it; `address` reads the container's
    own address; `rotation` is that of its log files; `holds` are the mount sources that the body names.
    """

    image: Callable[[], Awaitable[str]]
    body: Callable[[str], Awaitable[Mapping[str, Any]]]
    address: Callable[[Inspected], str]
    rotation: Callable[[LogRotation], LogRotation]
    holds: Holds
    attempts: int
    is_terminal: bool


class Starter:
    """Starts the tasks of one driver."""

    def __init__(self, calls: StartCalls, maker: Maker, shelf: ImageShelf, tasks: ContainerTasks) -> None:
        self._calls = calls
        self._maker = maker
        self._shelf = shelf
        self._tasks = tasks

    async def start(self, request: TaskRequest, recipe: Recipe) -> tuple[ContainerTask, Inspected]:
        """Pull the image, create and start the container; the task id is reserved from the beginning."""
        self._tasks.reserve(request.task_id)
        try:
            return await self._start(request, recipe)
        except BaseException:
            self._tasks.give_up(request.task_id)
            raise

    async def _start(self, request: TaskRequest, recipe: Recipe) -> tuple[ContainerTask, Inspected]:
        image_id = await self._reserved_image(request.task_id, recipe)
        container_id = ""
        try:
            body = await recipe.body(image_id)
            await recipe.holds.take()
            container_id = await self._maker.make(request, body, attempts=recipe.attempts)
            inspected = await self.run(container_id, recipe.holds)
        except BaseException as error:
            self._shelf.release(image_id, request.task_id)
            if container_id:
                self._maker.remove_beside(container_id)
            if isinstance(error, NotFound | Conflict):
                raise RecoverableError(f"the container was not started: {error}") from None
            raise
        finally:
            recipe.holds.release()
        container = Container(
            container_id=container_id,
            image_id=image_id,
            logs_dir=request.dirs.logs_dir,
            task_name=request.task_name,
            logs=recipe.rotation(request.logs),
            is_terminal=recipe.is_terminal,
            address=recipe.address(inspected),
        )
        return ContainerTask(request.task_id, container), inspected

    async def _reserved_image(self, task_id: str, recipe: Recipe) -> str:
        """Pull and acquire the image; pulled again if its removal had already begun."""
        for _ in range(IMAGE_ROUNDS):
            image_id = await recipe.image()
            self._shelf.hold(image_id, task_id)
            if not await self._is_lost(image_id, task_id):
                return image_id
        raise RecoverableError("the image was removed again and again while the task started")

    async def _is_lost(self, image_id: str, task_id: str) -> bool:
        """Whether an acquired image was removed; then, or when the wait is cancelled, it is released."""
        is_lost = True
        try:
            is_lost = await self._shelf.is_lost(image_id)
        finally:
            if is_lost:
                self._shelf.release(image_id, task_id)
        return is_lost

    async def run(self, container_id: str, holds: Holds) -> Inspected:
        """Start a created container and check that it has the mounts that were verified."""
        if holds.wants_look_before and await self._calls.prepare(container_id):
            await holds.check(await self._calls.inspect(container_id))
        await self._calls.start(container_id)
        inspected = await self._calls.inspect(container_id)
        await holds.check(inspected)
        return inspected


def handle_of(task: ContainerTask, inspected: Inspected, driver: str, now: UnixNano, **more: str) -> TaskHandle:
    """The handle that the client stores for a started task; `more` is the driver's own part."""
    state = inspected["State"]
    started_at = parse_stamp(str(state.get("StartedAt") or "").encode())
    return TaskHandle(
        driver=driver,
        task_id=task.task_id,
        pid=int(state.get("Pid") or 0),
        started_at=UnixNano(started_at or now),
        address=task.container.address,
        state={**msgspec.to_builtins(task.container), **more},
    )
