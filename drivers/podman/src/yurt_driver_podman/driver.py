"""The podman driver: a task is a container of one of the machine's podman engines."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable

from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.common import wall_clock
from yurt.sdk.containers.exec_session import EngineExecSession
from yurt.sdk.driver import (
    HEALTHY,
    ExecResult,
    ExitResult,
    Fingerprint,
    Leftover,
    TaskHandle,
    TaskRequest,
    TaskStats,
)
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.value import Duration, UnixNano, replace

from yurt_driver_podman.config import CAPABILITIES, DEFAULT_NAME, DRIVER, PluginConfig, TaskConfig
from yurt_driver_podman.service import PodmanService


class PodmanDriver:
    """Runs tasks as containers of podman."""

    name = DRIVER
    task_config = TaskConfig
    capabilities = CAPABILITIES

    def __init__(self, config: PluginConfig, *, clock: Callable[[], UnixNano] | None = None) -> None:
        self._background = DriverTasks(DRIVER)
        self._services = {name: PodmanService(name, config, clock or wall_clock) for name in config.sockets}

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """Whether the default engine works, with facts about the others, at once and after each change."""
        changed = asyncio.Event()
        found: dict[str, Fingerprint] = {}

        async def follow(service: PodmanService) -> None:
            async for each in service.watch.fingerprints():
                found[service.socket] = each
                changed.set()

        for service in self._services.values():
            service.begin()
            self._background.start("fingerprints of an engine", functools.partial(follow, service))
        while True:
            await changed.wait()
            changed.clear()
            if DEFAULT_NAME in found:
                yield together(found)

    def _of(self, task_id: str) -> PodmanService:
        """The engine of a task."""
        for service in self._services.values():
            if service.tasks.has(task_id):
                return service
        raise NotFound(f"the podman driver knows no task {task_id}")

    def _named(self, socket: str) -> PodmanService:
        """The engine that a task selected."""
        found = self._services.get(socket or DEFAULT_NAME)
        if found is None:
            raise DriverError(
                f'socket = "{socket}" is none of this client\'s ({", ".join(self._services)});'
                ' add a socket block to plugin "podman" of its configuration'
            )
        return found

    async def progress(self, task_id: str) -> AsyncIterator[str]:
        """The progress of the task's image, on any engine."""
        texts: asyncio.Queue[str] = asyncio.Queue()

        async def follow(service: PodmanService) -> None:
            async for text in service.progress(task_id):
                texts.put_nowait(text)

        followers = [
            self._background.start("progress of an image", functools.partial(follow, each))
            for each in self._services.values()
        ]
        try:
            while True:
                yield await texts.get()
        finally:
            for each in followers:
                each.cancel()

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Pull the image, create and start the container."""
        config: TaskConfig = request.config
        return await self._named(config.socket).start_task(request)

    async def recover_task(self, handle: TaskHandle) -> None:
        """Find the container, by its handle or by the task's id alone."""
        if not handle.is_intent:
            await self._named(str(handle.state.get("socket", ""))).recover_task(handle)
            return
        missing: NotFound | None = None
        for service in self._services.values():
            try:
                await service.recover_task(handle)
                return
            except NotFound as error:
                missing = error
        assert missing is not None
        raise missing

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for the end, through outages of the engine."""
        return await self._of(task_id).tasks.wait(task_id)

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Send a signal to the container's first process."""
        await self._of(task_id).tasks.signal(task_id, signal)

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """Ask the container to end, and kill it after `timeout`."""
        await self._of(task_id).stop_task(task_id, signal=signal, timeout=timeout)

    async def destroy_task(self, task_id: str) -> None:
        """Kill and remove the container, and forget it."""
        await self._of(task_id).destroy_task(task_id)

    async def task_stats(self, task_id: str) -> TaskStats:
        """Present use of resources."""
        return await self._of(task_id).task_stats(task_id)

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command in the container."""
        return await self._of(task_id).exec_task(task_id, command, timeout=timeout)

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> EngineExecSession:
        """Start an interactive command in the container."""
        return await self._of(task_id).exec_stream(task_id, command, tty=tty)

    async def leftovers(self) -> tuple[Leftover, ...]:
        """Containers and mounts of a previous agent, on all engines."""
        return tuple([each for service in self._services.values() for each in await service.leftovers()])

    async def remove_leftover(self, leftover: Leftover) -> None:
        """Remove one leftover."""
        for service in self._services.values():
            await service.remove_leftover(leftover)

    async def close(self) -> None:
        """End the background work; containers continue."""
        await self._background.close()
        for service in self._services.values():
            await service.close()


def together(found: dict[str, Fingerprint]) -> Fingerprint:
    """The default engine's fingerprint, with the attributes of other healthy engines."""
    attributes: dict[str, str] = {}
    for each in found.values():
        if each.health == HEALTHY:
            attributes |= dict(each.attributes)
    return replace(found[DEFAULT_NAME], attributes=attributes)
