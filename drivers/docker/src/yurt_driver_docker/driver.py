"""The docker driver: a task is a container, whose state is read from the engine."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from yurt.sdk.containers import exec_session, exec_to_end, leftovers
from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.cgroups.cores import ContainerCores
from yurt.sdk.containers.cgroups.usage import usage_of
from yurt.sdk.containers.common import TASK_LABEL, core_mhz, wall_clock
from yurt.sdk.containers.creation import ContainerCreator, container_of
from yurt.sdk.containers.dangling import DanglingRemover
from yurt.sdk.containers.dev_cleanup import DevCleanup
from yurt.sdk.containers.engine import EngineDown
from yurt.sdk.containers.hosts import share_names
from yurt.sdk.containers.logfiles import LogFiles
from yurt.sdk.containers.mount_sources import Hold, Holder
from yurt.sdk.containers.starting import Starter, StartSteps, handle_of
from yurt.sdk.containers.tasks import Container, ContainerTask, ContainerTasks
from yurt.sdk.containers.watch import Watch
from yurt.sdk.core_partitions import partitions_of
from yurt.sdk.driver import (
    ExecResult,
    ExitResult,
    Fingerprint,
    Leftover,
    LogRotation,
    TaskHandle,
    TaskRequest,
    TaskStats,
)
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.value import Duration, UnixNano

from yurt_driver_docker import reports
from yurt_driver_docker.calls import DockerCalls
from yurt_driver_docker.config import CAPABILITIES, NAME, PluginConfig, TaskConfig
from yurt_driver_docker.create import Site, create_body
from yurt_driver_docker.engine import new_engine
from yurt_driver_docker.images import Images
from yurt_driver_docker.logs import LogReader
from yurt_driver_docker.network import driver_address
from yurt_driver_docker.node import read_text
from yurt_driver_docker.pause import PauseContainers
from yurt_driver_docker.queries import DockerQueries


class DockerDriver:
    """Runs tasks as containers of a Docker engine."""

    name = NAME
    task_config = TaskConfig
    capabilities = CAPABILITIES

    def __init__(self, config: PluginConfig, *, clock: Callable[[], UnixNano] | None = None) -> None:
        self._config = config
        self._clock = clock or wall_clock
        self._engine = new_engine(config.endpoint, config.options.tls)
        self._calls = DockerCalls(self._engine)
        self._queries = DockerQueries(self._engine, config)
        self._background = DriverTasks(NAME)
        self._images = Images(self._engine, config, self._background)
        partitions = partitions_of(config.cgroup_parent, dev=config.is_dev)
        is_here, folder = bool(self._engine.target.socket_path), os.path.join(config.state_dir, "cores")
        cores = ContainerCores(partitions, self._calls.set_cores, self._background, folder=folder) if is_here else None
        self._tasks = ContainerTasks(self._calls, self._background, self._clock, cores)
        self._creator = ContainerCreator(self._calls, self._background, is_running=self._tasks.is_running, command=NAME)
        self._starter = Starter(self._calls, self._creator, self._images.pulled_images, self._tasks)
        self._watch = Watch(self._engine, self._queries, on_end=self._tasks.on_end, on_list=self._tasks.on_list)
        self._pauses = PauseContainers(self._engine, self._calls, config, self._images)
        self._dangling = DanglingRemover(
            config.dangling,
            self._clock,
            made=self._queries.made,
            has_task=self._tasks.has_task,
            remove=self._calls.remove,
        )
        self._holder = Holder(config.owner, self._engine.target.socket_path, self._background)
        self._dev_cleanup = DevCleanup(
            self._engine.target.socket_path, "", self._queries.owned, unmount=self._holder.places.clear_command
        )
        self._is_begun = False

    def _begin(self) -> None:
        """Start the background work, with the first call."""
        if self._is_begun:
            return
        self._is_begun = True
        self._watch.begin(self._background)
        self._background.start("first steps", self._first_steps)
        self._background.start("removal of dangling containers", lambda: self._dangling.run(self._watch))

    async def _first_steps(self) -> None:
        """Remove stale mounts; once the engine works import the `docker` package and schedule the removal of images."""
        await self._holder.open()
        await self._watch.up.wait()
        await self._guard()
        with suppress(DriverError):
            await self._engine.warm_up()
        self._images.pulled_images.collect_left_over()

    async def _guard(self) -> None:
        """Before the first container of a dev agent, ensure that none outlives the agent."""
        if self._config.is_dev and self._engine.target.socket_path and self._dev_cleanup.process is None:
            await asyncio.to_thread(self._dev_cleanup.start)

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """Whether the engine works, at once and after each change."""
        self._begin()
        async for found in self._watch.fingerprints():
            yield found

    def progress(self, task_id: str) -> AsyncIterator[str]:
        """The progress of the task's image."""
        return self._images.start_progress.follow(task_id)

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Pull the image, create and start the container."""
        self._begin()
        await self._guard()
        config: TaskConfig = request.config
        holds = await self._holder.holds(request.dirs.alloc_dir)

        async def body(image_id: str) -> Mapping[str, Any]:
            made = create_body(request, await self._site(request, image_id, holds.plan))
            await asyncio.to_thread(share_names, request, config.extra_hosts)
            return made

        steps = StartSteps(
            image=functools.partial(self._images.ensure, request),
            body=body,
            address=functools.partial(driver_address, wants_ipv6=config.advertise_ipv6_address),
            rotation=self._rotation,
            holds=holds,
            take_up=self._take_up,
            attempts=config.container_exists_attempts or self._config.options.container_exists_attempts,
            is_terminal=config.tty,
        )
        task, inspected = await self._starter.start(request, steps)
        return handle_of(task, inspected, NAME, self._clock())

    async def _site(self, request: TaskRequest, image_id: str, hold: Hold) -> Site:
        """The task's context; asks for the engine's runtimes before the first health check."""
        if not self._queries.runtimes:
            await self._queries.look()
        return Site(
            config=self._config,
            image_id=image_id,
            core_mhz=core_mhz(),
            resolve=os.path.realpath,
            read_text=read_text,
            hold=hold,
            runtimes=self._queries.runtimes,
            has_cdi=self._queries.has_cdi,
            pause_id=await self._pauses.id_of(request.alloc_id) if request.network_namespace else "",
        )

    def _rotation(self, logs: LogRotation) -> LogRotation:
        """The task's log rotation; the agent may disable log collection."""
        is_off = logs.disabled or self._config.options.disable_log_collection
        return LogRotation(max_files=logs.max_files, max_bytes=logs.max_bytes, disabled=is_off)

    def _take_up(self, task: ContainerTask, inspected: Mapping[str, Any]) -> None:
        """Register a task, and collect its output and its end."""
        is_here = bool(self._engine.target.socket_path)
        pid = int((inspected.get("State") or {}).get("Pid") or 0)
        self._tasks.add(task, pid=pid if is_here else 0)
        self._images.pulled_images.hold(task.container.image_id, task.task_id)
        if not task.container.logs.disabled:
            self._collect(task)
        self._tasks.on_end(task.container.container_id)

    def _collect(self, task: ContainerTask) -> None:
        """Collect the task's output in the background."""
        container = task.container
        task.output = reader = LogReader(
            self._engine,
            container.container_id,
            files=lambda: LogFiles(container.logs_dir, container.task_name, container.logs),
            ledger_path=self._ledger_path(container.container_id),
            is_terminal=container.is_terminal,
            is_here=lambda: task.cgroup.is_found,
        )
        self._background.start("output of a container", lambda: reader.run(lambda: self._is_running(container)))

    def _ledger_path(self, container_id: str) -> str:
        return os.path.join(self._config.state_dir, "logs", container_id)

    async def _is_running(self, container: Container) -> bool:
        """Whether the engine reports a container as running."""
        return not reports.has_ended(await self._calls.inspect(container.container_id))

    async def recover_task(self, handle: TaskHandle) -> None:
        """Find the container; while the engine is unreachable the task counts as running."""
        if self._tasks.has(handle.task_id):
            return
        self._begin()
        with self._tasks.seeking(handle.task_id):
            container = await self._found(handle) if handle.is_intent else msgspec.convert(handle.state, Container)
            inspected: dict[str, Any] = {}
            with suppress(EngineDown):
                inspected = await self._calls.inspect(container.container_id)
            if not self._tasks.has(handle.task_id):
                self._take_up(ContainerTask(handle.task_id, container, handle.reserved_cores), inspected)

    async def _found(self, handle: TaskHandle) -> Container:
        """Find the container of a task by its id alone; a container that was never started is removed."""
        listing = await self._queries.listing(self._queries.owned, f"{TASK_LABEL}={handle.task_id}")
        for each in [each for each in listing if each.get("State") == "created"]:
            await self._calls.remove(str(each["Id"]))
        started = [each for each in listing if each.get("State") != "created"]
        if not started:
            raise NotFound(f"no container was started for task {handle.task_id}")
        inspected = await self._calls.inspect(str(started[0]["Id"]))
        return container_of(inspected, driver_address(inspected, wants_ipv6=False), self._rotation)

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for the end, through outages of the engine."""
        return await self._tasks.wait(task_id)

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Send a signal to the container's first process."""
        await self._tasks.signal(task_id, signal)

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """Ask the container to end, and kill it after `timeout`."""
        await self._tasks.stop(task_id, self._watch, signal=signal, timeout=timeout)

    async def destroy_task(self, task_id: str) -> None:
        """Kill and remove the container, with its anonymous volumes, and forget it."""
        task = await self._tasks.destroy(task_id, self._watch, removes=self._config.options.gc.container)
        with suppress(FileNotFoundError):
            os.unlink(self._ledger_path(task.container.container_id))
        self._images.pulled_images.release(task.container.image_id, task_id)

    async def task_stats(self, task_id: str) -> TaskStats:
        """Present use of resources: from the container's cgroup, or from the engine where that cannot be read."""
        task = self._tasks.get(task_id)
        if (sample := usage_of(task.cgroup, self._clock())) is not None:
            return sample
        query = {"stream": "false", "one-shot": "true"}
        stats = await self._engine.ask(f"/containers/{task.container.container_id}/stats", query)
        return task.cgroup.with_memory_stall(reports.task_stats(stats, self._clock()))

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command in the container."""
        container_id = self._tasks.get(task_id).container.container_id
        exec_id = await self._calls.prepare_exec(container_id, command)
        return await exec_to_end.execute(self._engine, exec_id, command, timeout=timeout)

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> exec_session.EngineExecSession:
        """Start an interactive command in the container."""
        container_id = self._tasks.get(task_id).container.container_id
        exec_id = await self._calls.prepare_exec(container_id, command, tty=tty, has_input=True)
        return await exec_session.begin(self._engine, exec_id, tty=tty)

    async def create_network(self, alloc_id: str, *, hostname: str = "") -> str:
        """Create the namespace of a group's network, kept by a pause container; returns its path."""
        self._begin()
        await self._guard()
        return await self._pauses.create(alloc_id, hostname)

    async def destroy_network(self, alloc_id: str) -> None:
        """Remove the namespace of a group's network."""
        await self._pauses.destroy(alloc_id)

    async def leftovers(self) -> tuple[Leftover, ...]:
        """Containers and mounts of a previous agent."""
        found = await asyncio.to_thread(leftovers.pinned_leftovers, self._holder.places)
        if not leftovers.has_engine(self._engine.target.socket_path):
            return tuple(found)
        return (*leftovers.container_leftovers(await self._queries.listing(self._queries.owned)), *found)

    async def remove_leftover(self, leftover: Leftover) -> None:
        """Remove one leftover."""
        await leftovers.remove(leftover, self._holder.places, self._calls.remove)

    async def close(self) -> None:
        """End the background work; containers continue."""
        await asyncio.to_thread(self._dev_cleanup.dismiss)
        self._tasks.close()
        await self._background.close()
        await self._holder.close()
        await self._engine.close()
