"""Starts a task: pulls the image, creates and starts the container; a failed start leaves nothing behind."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

import msgspec

from yurt.sdk.containers.common import parse_stamp
from yurt.sdk.containers.creation import ContainerCreator, CreationCalls, chosen_cores
from yurt.sdk.containers.images import PulledImages
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


class StartSteps(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of a start that differ by engine and task.

    `image` brings the image and tells its id; `body` is the container to make of it; `address` reads the container's
    own address; `rotation` is that of its log files; `holds` are the mount sources that the body names; `take_up`
    registers the running container, which is removed if that fails.
    """

    image: Callable[[], Awaitable[str]]
    body: Callable[[str], Awaitable[Mapping[str, Any]]]
    address: Callable[[Inspected], str]
    rotation: Callable[[LogRotation], LogRotation]
    holds: Holds
    take_up: Callable[[ContainerTask, Inspected], None]
    attempts: int
    is_terminal: bool


class Starter:
    """Starts the tasks of one driver."""

    def __init__(
        self, calls: StartCalls, creator: ContainerCreator, pulled_images: PulledImages, tasks: ContainerTasks
    ) -> None:
        self._calls = calls
        self._creator = creator
        self._pulled_images = pulled_images
        self._tasks = tasks

    async def start(self, request: TaskRequest, steps: StartSteps) -> tuple[ContainerTask, Inspected]:
        """Pull the image, create and start the container; the task id is reserved from the beginning."""
        self._tasks.reserve(request.task_id)
        try:
            return await self._start(request, steps)
        except BaseException:
            self._tasks.give_up(request.task_id)
            raise

    async def _start(self, request: TaskRequest, steps: StartSteps) -> tuple[ContainerTask, Inspected]:
        image_id = await self._reserved_image(request.task_id, steps)
        container_id = ""
        try:
            body = await steps.body(image_id)
            await steps.holds.take()
            container_id = await self._creator.make(request, body, attempts=steps.attempts)
            self._tasks.reserve_cores(request.task_id, request.resources.reserved_cores)
            inspected = await self.run(container_id, steps.holds)
            task = started(request, steps, inspected, container_id=container_id, image_id=image_id)
            steps.take_up(task, inspected)
        except BaseException as error:
            self._pulled_images.release(image_id, request.task_id)
            if container_id:
                self._creator.remove_in_background(container_id)
            if isinstance(error, NotFound | Conflict):
                raise RecoverableError(f"the container was not started: {error}") from None
            raise
        finally:
            steps.holds.release()
        return task, inspected

    async def _reserved_image(self, task_id: str, steps: StartSteps) -> str:
        """Pull and acquire the image; pulled again if its removal had already begun."""
        for _ in range(IMAGE_ROUNDS):
            image_id = await steps.image()
            self._pulled_images.hold(image_id, task_id)
            if not await self._is_lost(image_id, task_id):
                return image_id
        raise RecoverableError("the image was removed again and again while the task started")

    async def _is_lost(self, image_id: str, task_id: str) -> bool:
        """Whether an acquired image was removed; then, or when the wait is cancelled, it is released."""
        is_lost = True
        try:
            is_lost = await self._pulled_images.is_lost(image_id)
        finally:
            if is_lost:
                self._pulled_images.release(image_id, task_id)
        return is_lost

    async def run(self, container_id: str, holds: Holds) -> Inspected:
        """Start a created container and check that it has the mounts that were verified."""
        if holds.wants_look_before and await self._calls.prepare(container_id):
            await holds.check(await self._calls.inspect(container_id))
        await self._calls.start(container_id)
        inspected = await self._calls.inspect(container_id)
        await holds.check(inspected)
        return inspected


def started(
    request: TaskRequest, steps: StartSteps, inspected: Inspected, *, container_id: str, image_id: str
) -> ContainerTask:
    """The task of a container that runs."""
    container = Container(
        container_id=container_id,
        image_id=image_id,
        logs_dir=request.dirs.logs_dir,
        task_name=request.task_name,
        logs=steps.rotation(request.logs),
        is_terminal=steps.is_terminal,
        address=steps.address(inspected),
        cores=request.resources.reserved_cores,
        cpuset_cpus=chosen_cores(request),
    )
    return ContainerTask(request.task_id, container)


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
