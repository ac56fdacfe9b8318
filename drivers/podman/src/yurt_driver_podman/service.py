"""One podman engine with its tasks of this client; a driver has one per socket."""

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
from yurt.sdk.containers.common import TASK_LABEL, core_mhz, parse_stamp
from yurt.sdk.containers.creation import ContainerCreator, container_of
from yurt.sdk.containers.dangling import ContainerOrigin, DanglingRemover
from yurt.sdk.containers.dev_cleanup import DevCleanup
from yurt.sdk.containers.engine import EngineDown
from yurt.sdk.containers.hosts import share_names
from yurt.sdk.containers.logfiles import LogFiles
from yurt.sdk.containers.mount_sources import LABEL as HELD_LABEL
from yurt.sdk.containers.mount_sources import Hold, Holder
from yurt.sdk.containers.starting import Starter, StartSteps, handle_of
from yurt.sdk.containers.tasks import Container, ContainerTask, ContainerTasks
from yurt.sdk.containers.watch import Watch
from yurt.sdk.core_partitions import partitions_of
from yurt.sdk.driver import ExecResult, Leftover, LogRotation, TaskHandle, TaskRequest, TaskStats
from yurt.sdk.errors import Conflict, DriverError, NotFound
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano

from yurt_driver_podman import reports
from yurt_driver_podman.config import DRIVER, PluginConfig
from yurt_driver_podman.create import OWN_LOG_DRIVERS, Site, create_body
from yurt_driver_podman.ended_commands import EndedCommands
from yurt_driver_podman.engine import PREFIX, PodmanCalls, PodmanQueries, labelled, new_engine, post
from yurt_driver_podman.images import Images
from yurt_driver_podman.inotify import Notices
from yurt_driver_podman.logs import LogReader
from yurt_driver_podman.network import driver_address

NAME_ATTEMPTS = 5


class PodmanService:
    """The driver's operations on one engine."""

    def __init__(self, socket: str, config: PluginConfig, clock: Callable[[], UnixNano]) -> None:
        self.socket = socket
        self._config = config
        self._clock = clock
        self._socket_path = config.sockets[socket]
        self._engine = new_engine(self._socket_path)
        self._calls = PodmanCalls(self._engine)
        self._queries = PodmanQueries(self._engine, config, socket)
        self._background = DriverTasks(DRIVER)
        self._images = Images(self._engine, config, self._background, socket=socket)
        self._notices = Notices()
        self._ended = EndedCommands(self._background)
        partitions = partitions_of(config.cgroup_parent, dev=config.is_dev)
        folder = os.path.join(config.state_dir, "cores")
        cores = ContainerCores(partitions, self._calls.set_cores, self._background, folder=folder)
        self.tasks = ContainerTasks(self._calls, self._background, clock, cores)
        self._creator = ContainerCreator(
            self._calls, self._background, is_running=self.tasks.is_running, command=DRIVER
        )
        self._starter = Starter(self._calls, self._creator, self._images.pulled_images, self.tasks)
        self.watch = Watch(self._engine, self._queries, on_end=self.tasks.on_end, on_list=self.tasks.on_list)
        self.dangling = DanglingRemover(
            config.dangling, clock, made=self._made, has_task=self.tasks.has_task, remove=self._calls.remove
        )
        self._holder = Holder(f"{config.owner}-{socket}", self._socket_path, self._background)
        self._dev_cleanup = DevCleanup(
            self._socket_path, PREFIX, self._queries.owned, unmount=self._holder.places.clear_command
        )
        self._looking = asyncio.Lock()
        self._is_begun = False

    def begin(self) -> None:
        """Start the background work, with the first call."""
        if self._is_begun:
            return
        self._is_begun = True
        self.watch.begin(self._background)
        self._background.start("first steps", self._first_steps)
        self._background.start("removal of dangling containers", lambda: self.dangling.run(self.watch))

    async def _first_steps(self) -> None:
        """Remove stale mounts; once the engine works import the `podman` package and schedule the removal of images."""
        await self._holder.open()
        await self.watch.up.wait()
        await self._guard()
        with suppress(DriverError):
            await self._engine.warm_up()
        self._images.pulled_images.collect_left_over()

    async def _guard(self) -> None:
        """Before the first container of a dev agent, ensure that none outlives the agent."""
        if self._config.is_dev and self._dev_cleanup.process is None:
            await asyncio.to_thread(self._dev_cleanup.start)

    async def _made(self) -> dict[str, ContainerOrigin]:
        """The task and time for which each container of this client was created."""
        found = await self._engine.ask("/containers/json", {"all": "true", "filters": labelled(self._queries.owned)})
        return {
            str(each["Id"]): ContainerOrigin(
                str((each.get("Labels") or {}).get(TASK_LABEL, "")),
                parse_stamp(str(each["Created"]).encode()) / NANOSECONDS,
            )
            for each in found or ()
        }

    def progress(self, task_id: str) -> AsyncIterator[str]:
        """The progress of the task's image."""
        return self._images.start_progress.follow(task_id)

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Pull the image, create and start the container."""
        self.begin()
        await self._guard()
        holds = await self._holder.holds(request.dirs.alloc_dir)

        async def body(image_id: str) -> Mapping[str, Any]:
            made = create_body(request, await self._site(image_id, holds.plan))
            if self._config.options.recover_stopped:
                made["labels"][HELD_LABEL] = holds.text()
            await asyncio.to_thread(share_names, request, request.config.extra_hosts)
            return made

        steps = StartSteps(
            image=functools.partial(self._images.ensure, request),
            body=body,
            address=driver_address,
            rotation=self._rotation,
            holds=holds,
            take_up=self._take_up,
            attempts=NAME_ATTEMPTS,
            is_terminal=request.config.tty,
        )
        task, inspected = await self._starter.start(request, steps)
        return handle_of(task, inspected, DRIVER, self._clock(), socket=self.socket)

    async def _site(self, image_id: str, hold: Hold) -> Site:
        """The task's context."""
        async with self._looking:
            if not self._queries.info:
                await self._queries.look()
        security = (self._queries.info.get("host") or {}).get("security") or {}
        return Site(
            config=self._config,
            image_id=image_id,
            core_mhz=core_mhz(),
            resolve=os.path.realpath,
            hold=hold,
            is_rootless=bool(security.get("rootless")),
        )

    def _rotation(self, logs: LogRotation) -> LogRotation:
        """The task's log rotation; the agent may disable log collection."""
        is_off = logs.disabled or self._config.options.disable_log_collection
        return LogRotation(max_files=logs.max_files, max_bytes=logs.max_bytes, disabled=is_off)

    def _take_up(self, task: ContainerTask, inspected: Mapping[str, Any]) -> None:
        """Register a task, and collect its output and its end."""
        self.tasks.add(task, pid=int((inspected.get("State") or {}).get("Pid") or 0))
        self._images.pulled_images.hold(task.container.image_id, task.task_id)
        self._collect(task, inspected)
        self.tasks.on_end(task.container.container_id)

    def _collect(self, task: ContainerTask, inspected: Mapping[str, Any]) -> None:
        """Collect the task's output in the background, unless its log driver sends it elsewhere."""
        container = task.container
        where = (inspected.get("HostConfig") or {}).get("LogConfig") or {}
        if container.logs.disabled or task.output or where.get("Type") not in OWN_LOG_DRIVERS or not where.get("Path"):
            return
        task.output = reader = LogReader(
            str(where["Path"]),
            os.stat(self._socket_path).st_uid,
            files=lambda: LogFiles(container.logs_dir, container.task_name, container.logs),
            ledger_path=self._ledger_path(container.container_id),
            notices=self._notices,
        )
        self._background.start("output of a container", reader.run)

    def _ledger_path(self, container_id: str) -> str:
        return os.path.join(self._config.state_dir, "logs", container_id)

    async def recover_task(self, handle: TaskHandle) -> None:
        """Find the container; while the engine is unreachable the task counts as running."""
        if self.tasks.has(handle.task_id):
            return
        self.begin()
        with self.tasks.seeking(handle.task_id):
            await self._recover(handle)

    async def _recover(self, handle: TaskHandle) -> None:
        if handle.is_intent:
            container = await self._found(handle)
        else:
            container = msgspec.convert({**handle.state}, Container)
        inspected: dict[str, Any] = {}
        with suppress(EngineDown):
            inspected = await self._calls.inspect(container.container_id)
            if self._config.options.recover_stopped and reports.is_restarted(inspected):
                await self._start_again(container.container_id, inspected)
        if self.tasks.has(handle.task_id):
            return
        task = ContainerTask(handle.task_id, container, handle.reserved_cores)
        self._take_up(task, inspected)
        if not inspected:
            self._background.start("taking up of a container", lambda: self._collect_later(task))

    async def _start_again(self, container_id: str, inspected: Mapping[str, Any]) -> None:
        """Restart a container that ended with a reboot, on its previous mounts."""
        holds = await self._holder.again(str((inspected["Config"].get("Labels") or {}).get(HELD_LABEL, "")))
        try:
            await holds.take()
            await self._starter.run(container_id, holds)
        finally:
            holds.release()

    async def _collect_later(self, task: ContainerTask) -> None:
        """Collect the output of a task whose engine was unreachable, once it returns."""
        await self.watch.up.wait()
        with suppress(NotFound, EngineDown):
            self._collect(task, await self._calls.inspect(task.container.container_id))

    async def _found(self, handle: TaskHandle) -> Container:
        """Find the container of a task by its id alone; a container that was never started is removed."""
        filters = labelled(self._queries.owned, f"{TASK_LABEL}={handle.task_id}")
        listing = await self._engine.ask("/containers/json", {"all": "true", "filters": filters}) or []
        for each in [each for each in listing if each.get("State") in reports.NOT_STARTED]:
            await self._calls.remove(str(each["Id"]))
        started = [each for each in listing if each.get("State") not in reports.NOT_STARTED]
        if not started:
            raise NotFound(f"no container was started for task {handle.task_id}")
        inspected = await self._calls.inspect(str(started[0]["Id"]))
        return container_of(inspected, driver_address(inspected), self._rotation)

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """Ask the container to end, and kill it after `timeout`."""
        await self.tasks.stop(task_id, self.watch, signal=signal, timeout=timeout)

    async def destroy_task(self, task_id: str) -> None:
        """Kill and remove the container, with its anonymous volumes, and forget it."""
        removes = self._config.options.gc.container
        task = await self.tasks.destroy(task_id, self.watch, removes=removes)
        with suppress(FileNotFoundError):
            os.unlink(self._ledger_path(task.container.container_id))
        self._images.pulled_images.release(task.container.image_id, task_id)

    async def task_stats(self, task_id: str) -> TaskStats:
        """Present use of resources."""
        task = self.tasks.get(task_id)
        query = {"containers": task.container.container_id, "stream": "false"}
        answer = await self._engine.ask("/containers/stats", query)
        return task.cgroup.with_memory_stall(reports.task_stats(answer, self._clock()))

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command in the container."""
        exec_id = await self._prepare_exec(task_id, command, tty=False, has_input=False)
        try:
            return await exec_to_end.execute(self._engine, exec_id, command, timeout=timeout)
        finally:
            self._ended.add(exec_id)

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> exec_session.EngineExecSession:
        """Start an interactive command in the container."""
        exec_id = await self._prepare_exec(task_id, command, tty=tty, has_input=True)
        return await exec_session.begin(self._engine, exec_id, tty=tty, on_close=self._ended.add)

    async def _prepare_exec(self, task_id: str, command: tuple[str, ...], *, tty: bool, has_input: bool) -> str:
        """Create an exec for a command; returns its id."""
        container_id = self.tasks.get(task_id).container.container_id
        if not command:
            raise DriverError("the command is empty; name a command to run")
        body = {
            "Cmd": list(command), "Tty": tty, "AttachStdin": has_input, "AttachStdout": True, "AttachStderr": True,
        }  # fmt: skip
        try:
            made = await self._engine.act(post(f"/containers/{container_id}/exec", body))
        except Conflict as error:
            raise DriverError(f"the task does not run: {error}") from None
        return str(made["Id"])

    async def leftovers(self) -> list[Leftover]:
        """Containers and mounts of a previous agent, on this engine."""
        pinned = await asyncio.to_thread(leftovers.pinned_leftovers, self._holder.places)
        if not leftovers.has_engine(self._socket_path):
            return pinned
        found = await self._engine.ask("/containers/json", {"all": "true", "filters": labelled(self._queries.owned)})
        return [*leftovers.container_leftovers(found or ()), *pinned]

    async def remove_leftover(self, leftover: Leftover) -> None:
        """Remove one leftover, if it belongs to this engine."""
        if leftover in await self.leftovers():
            await leftovers.remove(leftover, self._holder.places, self._calls.remove)

    async def close(self) -> None:
        """End the background work; containers continue."""
        await asyncio.to_thread(self._dev_cleanup.dismiss)
        self.tasks.close()
        await self._background.close()
        await self._holder.close()
        self._notices.close()
        await self._engine.close()
