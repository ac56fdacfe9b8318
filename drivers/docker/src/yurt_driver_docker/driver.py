"""The docker driver: a task is a container, and the engine is the truth about it.

States of a task here: starting -> running -> settling -> ended -> (forgotten). `recover_task` enters at running. A
task settles when the engine says that its container has ended: its output is read to the end, and only then do
waiters learn of it. While the engine is away a task stays as it was; the watch tells of whatever happened meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from yurt.sdk.containers import exec_session, execute
from yurt.sdk.containers.background import Background
from yurt.sdk.containers.common import parse_stamp
from yurt.sdk.containers.engine import EngineDown
from yurt.sdk.containers.logfiles import LogFiles
from yurt.sdk.driver import (
    Capabilities,
    ExecResult,
    ExitResult,
    Fingerprint,
    LogRotation,
    TaskHandle,
    TaskRequest,
    TaskStats,
)
from yurt.sdk.errors import Conflict, DriverError, NotFound, RecoverableError
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano

from yurt_driver_docker import acts, reports
from yurt_driver_docker.config import PluginConfig, TaskConfig
from yurt_driver_docker.create import LOGS_LABEL, TASK_LABEL, Site, container_name, create_body
from yurt_driver_docker.dangling import Dangling
from yurt_driver_docker.engine import new_engine
from yurt_driver_docker.images import Images
from yurt_driver_docker.logs import LogReader
from yurt_driver_docker.network import driver_address
from yurt_driver_docker.node import core_mhz, read_text
from yurt_driver_docker.pause import PauseContainers
from yurt_driver_docker.watch import Watch

NAME = "docker"
KILL_LIMIT_S = 30.0
ENGINE_WAIT_S = 20.0


def wall_clock() -> UnixNano:
    """The system's clock, where the agent gives none."""
    return UnixNano(time.time_ns())  # noqa: TID251 - a driver that is used without an agent


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """What a handle keeps of a task, so that a later agent finds it again."""

    container_id: str
    image_id: str
    logs_dir: str
    task_name: str
    logs: LogRotation
    is_terminal: bool = False
    address: str = ""


class DockerTask:
    """A task that this driver knows."""

    def __init__(self, task_id: str, container: Container) -> None:
        self.task_id = task_id
        self.container = container
        self.ended: asyncio.Future[ExitResult] = asyncio.get_running_loop().create_future()
        self.reader: LogReader | None = None
        self.hints = 0
        self.is_settling = False


class DockerDriver:
    """Runs tasks as containers of a Docker engine."""

    name = NAME
    task_config = TaskConfig
    capabilities = Capabilities(
        send_signals=True,
        exec=True,
        fs_isolation="image",
        network_modes=("host", "group", "task", "none"),
        must_create_network=True,
        mounts=True,
        devices=True,
        finds_by_id=True,
    )

    def __init__(self, config: PluginConfig, *, clock: Callable[[], UnixNano] | None = None) -> None:
        self._config = config
        self._clock = clock or wall_clock
        self._engine = new_engine(config.endpoint, config.options.tls)
        self._background = Background(NAME)
        self._images = Images(self._engine, config, self._background)
        self._tasks: dict[str, DockerTask | None] = {}
        self._by_container: dict[str, DockerTask] = {}
        self._watch = Watch(self._engine, config, on_end=self._on_end, on_list=self._on_list)
        self._pauses = PauseContainers(self._engine, config, self._images)
        self._dangling = Dangling(self._engine, config, self._clock, knows=self._knows)
        self._is_begun = False

    def _begin(self) -> None:
        """Start the work beside the calls, at the first of them."""
        if self._is_begun:
            return
        self._is_begun = True
        self._watch.begin(self._background)
        self._background.start("first steps", self._first_steps)
        self._background.start("removal of dangling containers", lambda: self._dangling.run(self._watch))

    async def _first_steps(self) -> None:
        """Once the engine works: load the `docker` package, and plan the removal of images left over."""
        await self._watch.up.wait()
        with suppress(DriverError):
            await self._engine.warm_up()
        self._images.collect_left_over()

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """Whether the engine works, and again after each change."""
        self._begin()
        async for found in self._watch.fingerprints():
            yield found

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Get the image, make the container, start it."""
        if request.task_id in self._tasks:
            raise DriverError(f"task {request.task_id} runs already; destroy it first")
        self._begin()
        self._tasks[request.task_id] = None
        try:
            task, started_at, pid = await self._start(request)
        except BaseException:
            del self._tasks[request.task_id]
            raise
        self._take_up(task)
        return TaskHandle(
            driver=NAME,
            task_id=request.task_id,
            pid=pid,
            started_at=started_at,
            state=msgspec.to_builtins(task.container),
        )

    async def _start(self, request: TaskRequest) -> tuple[DockerTask, UnixNano, int]:
        """All steps of a start; a container that cannot be started is removed again."""
        config: TaskConfig = request.config
        image_id = await self._images.ensure(request)
        self._images.hold(image_id, request.task_id)
        container_id = ""
        try:
            pause_id = await self._pauses.id_of(request.alloc_id) if request.network_namespace else ""
            site = Site(
                config=self._config,
                image_id=image_id,
                core_mhz=core_mhz(),
                resolve=os.path.realpath,
                read_text=read_text,
                runtimes=self._watch.runtimes,
                has_cdi=self._watch.has_cdi,
                pause_id=pause_id,
            )
            container_id = await self._create_or_undo(request, create_body(request, site))
            await self._engine.act(lambda client: client.start(container_id), slow=True)
            inspected = await acts.inspect(self._engine, container_id)
        except BaseException as error:
            self._images.release(image_id, request.task_id)
            if container_id:
                self._background.start(
                    "removal of a failed container", lambda: acts.remove_quietly(self._engine, container_id)
                )
            if isinstance(error, NotFound | Conflict):
                raise RecoverableError(f"the container was not started: {error}") from None
            raise
        container = Container(
            container_id=container_id,
            image_id=image_id,
            logs_dir=request.dirs.logs_dir,
            task_name=request.task_name,
            logs=self._rotation(request.logs),
            is_terminal=config.tty,
            address=driver_address(inspected, wants_ipv6=config.advertise_ipv6_address),
        )
        started = parse_stamp(str(inspected["State"].get("StartedAt") or "").encode())
        pid = int(inspected["State"].get("Pid") or 0)
        return DockerTask(request.task_id, container), UnixNano(started or self._clock()), pid

    def _rotation(self, logs: LogRotation) -> LogRotation:
        """The task's rotation; the agent may collect nothing at all."""
        is_off = logs.disabled or self._config.options.disable_log_collection
        return LogRotation(max_files=logs.max_files, max_bytes=logs.max_bytes, disabled=is_off)

    async def _create_or_undo(self, request: TaskRequest, body: Mapping[str, Any]) -> str:
        """Make the container; whoever gives up waiting leaves none behind, although the engine cannot be stopped."""
        made: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        made.add_done_callback(lambda done: done.cancelled() or done.exception())

        async def make() -> None:
            try:
                made.set_result(await self._create(request, body))
            except (DriverError, Conflict, NotFound) as error:
                made.set_exception(error)
            finally:
                made.cancel()

        async def undo() -> None:
            await acts.remove_quietly(self._engine, await made)

        self._background.start("making of a container", make)
        try:
            return await asyncio.shield(made)
        except asyncio.CancelledError:
            self._background.start("removal of a container that nobody waited for", undo)
            raise

    async def _create(self, request: TaskRequest, body: Mapping[str, Any]) -> str:
        """Make the container; an ended one of an earlier run that bears its name goes first."""
        name = container_name(request)
        config: TaskConfig = request.config
        attempts = config.container_exists_attempts or self._config.options.container_exists_attempts
        for attempt in range(max(1, attempts)):
            try:
                made = await self._engine.act(lambda client: client.create_container_from_config(body, name), slow=True)
                return str(made["Id"])
            except Conflict as error:
                if "in use" not in str(error):
                    raise DriverError(str(error)) from None
                await self._clear_name(name, request)
                await asyncio.sleep(0.05 * 2**attempt)
            except NotFound as error:
                raise RecoverableError(f"the container was not made: {error}") from None
        raise RecoverableError(f'a container named "{name}" is in the way; remove it with: docker rm -f {name}')

    async def _clear_name(self, name: str, request: TaskRequest) -> None:
        """Remove a container that an earlier run of the same task left; refuse to touch any other."""
        try:
            found = await acts.inspect(self._engine, name)
        except NotFound:
            return
        owner = str(((found.get("Config") or {}).get("Labels") or {}).get(TASK_LABEL, ""))
        is_same_task = owner.rpartition("/")[0] == request.task_id.rpartition("/")[0]
        if not owner or not is_same_task or self._knows(str(found["Id"])):
            raise DriverError(f'the container name "{name}" is taken; remove it with: docker rm -f {name}')
        await acts.remove(self._engine, str(found["Id"]))

    def _take_up(self, task: DockerTask) -> None:
        """Know a task from now on: its output, its end."""
        container = task.container
        self._tasks[task.task_id] = task
        self._by_container[container.container_id] = task
        self._images.hold(container.image_id, task.task_id)
        if not container.logs.disabled:
            self._collect(task)
        self._on_end(container.container_id)

    def _collect(self, task: DockerTask) -> None:
        """Collect the task's output beside."""
        container = task.container
        task.reader = reader = LogReader(
            self._engine,
            container.container_id,
            files=lambda: LogFiles(container.logs_dir, container.task_name, container.logs),
            ledger_path=self._ledger_path(container.container_id),
            is_terminal=container.is_terminal,
        )
        self._background.start("output of a container", lambda: reader.run(lambda: self._is_running(container)))

    def _ledger_path(self, container_id: str) -> str:
        return os.path.join(self._config.state_dir, "logs", container_id)

    async def _is_running(self, container: Container) -> bool:
        """Whether the engine says that a container has not ended."""
        return not reports.has_ended(await acts.inspect(self._engine, container.container_id))

    async def recover_task(self, handle: TaskHandle) -> None:
        """Find the container again; while the engine is away the task counts as running until it can tell."""
        if handle.task_id in self._tasks:
            return
        self._begin()
        container = await self._found(handle) if handle.is_intent else msgspec.convert(handle.state, Container)
        with suppress(EngineDown):
            await acts.inspect(self._engine, container.container_id)
        if handle.task_id not in self._tasks:
            self._take_up(DockerTask(handle.task_id, container))

    async def _found(self, handle: TaskHandle) -> Container:
        """The container that was made for a task of which only the id is known; one never started is removed."""
        wanted = json.dumps({"label": [self._watch.owned(), f"{TASK_LABEL}={handle.task_id}"]})
        listing = await self._engine.ask("/containers/json", {"all": "1", "filters": wanted})
        for each in [each for each in listing if each.get("State") == "created"]:
            await acts.remove(self._engine, str(each["Id"]))
        started = [each for each in listing if each.get("State") != "created"]
        if not started:
            raise NotFound(f"no container was started for task {handle.task_id}")
        inspected = await acts.inspect(self._engine, str(started[0]["Id"]))
        kept = json.loads(inspected["Config"]["Labels"].get(LOGS_LABEL, "{}"))
        return Container(
            container_id=str(inspected["Id"]),
            image_id=str(inspected["Image"]),
            logs_dir=str(kept.get("folder", "")),
            task_name=str(kept.get("task_name", "")),
            logs=self._rotation(msgspec.convert(kept.get("rotation", {}), LogRotation)),
            is_terminal=bool(inspected["Config"].get("Tty")),
            address=driver_address(inspected, wants_ipv6=False),
        )

    def _task(self, task_id: str) -> DockerTask:
        task = self._tasks.get(task_id)
        if task is None:
            raise NotFound(f"the docker driver knows no task {task_id}")
        return task

    def _knows(self, container_id: str) -> bool:
        return container_id in self._by_container

    def _on_end(self, container_id: str) -> None:
        """A container may have ended: find out."""
        task = self._by_container.get(container_id)
        if not task or task.ended.done():
            return
        task.hints += 1
        if not task.is_settling:
            task.is_settling = True
            self._background.start("end of a container", lambda: self._settle(task))

    def _on_list(self, listing: list[dict[str, Any]]) -> None:
        """All containers of this client: those that ended or are gone are looked at."""
        running = {str(each["Id"]) for each in listing if each.get("State") in ("running", "paused", "restarting")}
        for container_id in [each for each in self._by_container if each not in running]:
            self._on_end(container_id)

    async def _settle(self, task: DockerTask) -> None:
        """Ask the engine how a container is, and tell its end once all its output is read."""
        try:
            result, seen = None, 0
            while result is None and seen != task.hints:
                seen = task.hints
                result = await self._result_of(task)
            if result is None:
                return
            if task.reader:
                await task.reader.drained()
            if not task.ended.done():
                task.ended.set_result(result)
        finally:
            task.is_settling = False

    async def _result_of(self, task: DockerTask) -> ExitResult | None:
        """How the container ended; None while it runs or the engine is away."""
        try:
            inspected = await acts.inspect(self._engine, task.container.container_id)
        except EngineDown:
            return None
        except NotFound:
            return ExitResult(error="the container was removed by somebody else", finished_at=self._clock())
        return reports.exit_result(inspected) if reports.has_ended(inspected) else None

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for the end, over any trouble of the engine."""
        return await asyncio.shield(self._task(task_id).ended)

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Send a signal to the container's first process."""
        task = self._task(task_id)
        name = reports.signal_name(signal)
        try:
            await acts.kill(self._engine, task.container.container_id, name)
        except (Conflict, NotFound) as error:
            raise DriverError(f"{name} was not sent to task {task_id}: {error}") from None

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """Ask the container to end, and kill it after `timeout`."""
        task = self._task(task_id)
        name = reports.signal_name(signal or "SIGTERM")
        await self._kill(task, name)
        if not await self._has_ended_within(task, timeout / NANOSECONDS):
            await self._kill(task, "SIGKILL")
            if not await self._has_ended_within(task, KILL_LIMIT_S):
                raise RecoverableError(
                    f"task {task_id} does not end although it was killed; look at the log of dockerd"
                )

    async def _kill(self, task: DockerTask, signal: str) -> None:
        """Send a signal, unless the container has ended; an engine that is away gets some time to return."""
        if task.ended.done():
            return
        with suppress(Conflict, NotFound):
            try:
                await self._require_engine()
                await acts.kill(self._engine, task.container.container_id, signal)
            except EngineDown:
                if not await self._watch.wait_up(ENGINE_WAIT_S):
                    raise
                await acts.kill(self._engine, task.container.container_id, signal)
            return
        self._on_end(task.container.container_id)

    async def _require_engine(self) -> None:
        """Find out soon whether an engine that was last seen down is still down, before a thread waits for it."""
        if not self._watch.up.is_set():
            await self._engine.ask("/version")

    async def _has_ended_within(self, task: DockerTask, limit_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await asyncio.shield(task.ended)
        return task.ended.done()

    async def destroy_task(self, task_id: str) -> None:
        """Kill and remove the container, with its anonymous volumes, and forget it."""
        task = self._task(task_id)
        container_id = task.container.container_id
        await self._require_engine()
        if self._config.options.gc.container:
            with suppress(NotFound):
                await acts.remove(self._engine, container_id)
        elif not task.ended.done():
            await self._kill(task, "SIGKILL")
        self._tasks.pop(task_id, None)
        self._by_container.pop(container_id, None)
        if not task.ended.done():
            task.ended.set_result(ExitResult(exit_code=137, signal=9, finished_at=self._clock()))
        if task.reader:
            await task.reader.drained()
        with suppress(FileNotFoundError):
            os.unlink(self._ledger_path(container_id))
        self._images.release(task.container.image_id, task_id)

    async def task_stats(self, task_id: str) -> TaskStats:
        """Present use of resources."""
        container_id = self._task(task_id).container.container_id
        query = {"stream": "false", "one-shot": "true"}
        stats = await self._engine.ask(f"/containers/{container_id}/stats", query)
        return reports.task_stats(stats, self._clock())

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command in the container."""
        container_id = self._task(task_id).container.container_id
        exec_id = await acts.prepare_exec(self._engine, container_id, command)
        return await execute.execute(self._engine, exec_id, command, timeout=timeout)

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> exec_session.EngineExecSession:
        """Begin a command in the container, to be worked with."""
        container_id = self._task(task_id).container.container_id
        exec_id = await acts.prepare_exec(self._engine, container_id, command, tty=tty, has_input=True)
        return await exec_session.begin(self._engine, exec_id, tty=tty)

    async def create_network(self, alloc_id: str, *, hostname: str = "") -> str:
        """Make the namespace of a group's network, kept by a pause container; returns its path."""
        self._begin()
        return await self._pauses.create(alloc_id, hostname)

    async def destroy_network(self, alloc_id: str) -> None:
        """Remove the namespace of a group's network."""
        await self._pauses.destroy(alloc_id)

    async def close(self) -> None:
        """End the work beside the calls; containers go on."""
        await self._background.close()
        await self._engine.close()
