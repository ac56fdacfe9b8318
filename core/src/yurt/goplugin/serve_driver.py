"""Serves a driver as the driver service of Nomad's plugin protocol: each method converts a message to a call and back.

The driver makes all decisions. The host's handle has the driver's own handle inside, so that the host's RecoverTask
recovers the task after a restart of this process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from yurt.goplugin import convert
from yurt.goplugin.connection import NOT_FOUND_TEXT
from yurt.goplugin.hclspec import decode_options, spec_from_schema
from yurt.goplugin.messages import Message, driver_message
from yurt.goplugin.output_pump import TaskOutput
from yurt.goplugin.serve_events import StartEvents
from yurt.goplugin.serve_networks import NetworkService
from yurt.goplugin.stats import stats_message
from yurt.runtime.background import Background
from yurt.runtime.env import Env
from yurt.sdk.driver import Driver, ExitResult, TaskHandle, TaskRequest, TaskStats
from yurt.sdk.errors import DriverError, NotFound, YurtError
from yurt.sdk.exec import ExecSession, StreamsExec, TerminalSize
from yurt.sdk.schema import decode_config, schema_of
from yurt.sdk.value import NANOSECONDS, UnixNano, seconds

HANDLE_VERSION = 1
STATS_INTERVAL_MIN_S = 0.1
STOP_LIMIT = seconds(5)
EXEC_LIMIT = seconds(600)


class ServedTask:
    """A task that a host started: its message, its output pipes, and its exit result."""

    def __init__(self, config: Message, output: TaskOutput, *, started_at: UnixNano, address: str) -> None:
        self.config = config
        self.output = output
        self.started_at = started_at
        self.network = convert.network_message(config, address)
        self.result: ExitResult | None = None


class DriverService:
    """The methods of the driver service, by their names on the wire in `methods`."""

    def __init__(self, folder: Path, env: Env) -> None:
        self.driver: Driver | None = None
        self._folder = folder / "logs"
        self._env = env
        self._tasks: dict[str, ServedTask] = {}
        self._background = Background("served driver")
        self._events = StartEvents(env)
        self._networks = NetworkService(self._driver)
        self.closed = asyncio.Event()

    @property
    def methods(self) -> dict[str, Any]:
        """All methods that are offered."""
        return {
            "Init": self.init, "TaskConfigSchema": self.schema, "Capabilities": self.capabilities,
            "Fingerprint": self.fingerprint, "StartTask": self.start, "RecoverTask": self.recover,
            "WaitTask": self.wait, "StopTask": self.stop, "DestroyTask": self.destroy, "InspectTask": self.inspect,
            "TaskStats": self.stats, "TaskEvents": self._events.events, "SignalTask": self.signal,
            "ExecTask": self.execute, "ExecTaskStreaming": self.execute_streaming, "Shutdown": self.shutdown,
            "CreateNetwork": self._networks.create, "DestroyNetwork": self._networks.destroy,
        }  # fmt: skip

    def _driver(self) -> Driver:
        if self.driver is None:
            raise DriverError("the driver was given no configuration yet; SetConfig comes first")
        return self.driver

    def _task(self, task_id: str) -> ServedTask:
        try:
            return self._tasks[task_id]
        except KeyError:
            raise NotFound(NOT_FOUND_TEXT) from None

    async def init(self, _request: Message) -> Message:
        """Does nothing."""
        return driver_message("InitResponse")

    async def schema(self, _request: Message) -> Message:
        """The options of a task."""
        return driver_message("TaskConfigSchemaResponse", spec=spec_from_schema(schema_of(self._driver().task_config)))

    async def capabilities(self, _request: Message) -> Message:
        """The driver's capabilities."""
        capabilities = convert.capabilities_message(self._driver().capabilities)
        return driver_message("CapabilitiesResponse", capabilities=capabilities)

    async def fingerprint(self, _request: Message) -> AsyncIterator[Message]:
        """The driver's health, at once and after each change."""
        async for found in self._driver().fingerprint():
            yield convert.fingerprint_message(found)

    async def start(self, request: Message) -> Message:
        """Start a task; raises an error when it does not start.

        Nomad reads the reason only from the call's error, and takes any answer for a started task.
        """
        message = request.task
        output = self._output(message)
        try:
            if message.id in self._tasks:
                raise DriverError(f"task {message.id} runs already; destroy it first")
            config = decode_config(self._driver().task_config, decode_options(message.msgpack_driver_config))
            task_request = convert.request_of(message, config, logs_dir=str(output.logs_dir), logs=output.rotation)
            handle = await self._start(message, task_request)
        except YurtError:
            if message.id not in self._tasks:
                output.remove()
            raise
        task = self._keep(message, output, handle)
        task_handle = driver_message(
            "TaskHandle",
            version=HANDLE_VERSION,
            config=message,
            state=convert.STATE_RUNNING,
            driver_state=msgspec.msgpack.encode(handle),
        )
        return driver_message("StartTaskResponse", handle=task_handle, network_override=task.network)

    async def _start(self, message: Message, request: TaskRequest) -> TaskHandle:
        following = self._background.start("progress of a start", lambda: self._events.follow(self._driver(), message))
        try:
            return await self._driver().start_task(request)
        finally:
            following.cancel()

    def _output(self, message: Message) -> TaskOutput:
        return TaskOutput(self._folder, message.id, message.name, (message.stdout_path, message.stderr_path))

    def _keep(self, message: Message, output: TaskOutput, handle: TaskHandle) -> ServedTask:
        started_at = handle.started_at or self._env.now()
        task = ServedTask(message, output, started_at=started_at, address=handle.address)
        self._tasks[message.id] = task
        output.start(self._background)
        return task

    async def recover(self, request: Message) -> Message:
        """Recover a task of an earlier process of this plugin."""
        if request.task_id not in self._tasks:
            try:
                handle = msgspec.msgpack.decode(request.handle.driver_state, type=TaskHandle)
            except msgspec.DecodeError as error:
                raise NotFound(f"{NOT_FOUND_TEXT}: the handle is damaged: {error}") from None
            await self._driver().recover_task(handle)
            self._keep(request.handle.config, self._output(request.handle.config), handle)
        return driver_message("RecoverTaskResponse")

    async def wait(self, request: Message) -> Message:
        """Wait for the end of a task and of its output, whose pipes are then closed, as the host expects."""
        task = self._task(request.task_id)
        task.result = await self._driver().wait_task(request.task_id)
        await task.output.finish()
        return driver_message("WaitTaskResponse", result=convert.exit_message(task.result), err=task.result.error)

    async def stop(self, request: Message) -> Message:
        """Stop a task."""
        self._task(request.task_id)
        timeout = convert.duration_of(request.timeout)
        await self._driver().stop_task(request.task_id, signal=request.signal or "SIGINT", timeout=timeout)
        return driver_message("StopTaskResponse")

    async def destroy(self, request: Message) -> Message:
        """Destroy a task; a running one only with `force`."""
        task = self._task(request.task_id)
        if not request.force and await self._is_running(request.task_id):
            raise DriverError(f"task {request.task_id} runs; stop it first, or destroy it with force")
        await self._driver().destroy_task(request.task_id)
        self._tasks.pop(request.task_id, None)
        task.output.remove()
        return driver_message("DestroyTaskResponse")

    async def _is_running(self, task_id: str) -> bool:
        task = self._task(task_id)
        if task.result is None:
            with contextlib.suppress(TimeoutError):
                task.result = await asyncio.wait_for(self._driver().wait_task(task_id), 0.01)
        return task.result is None

    async def inspect(self, request: Message) -> Message:
        """The status of a task."""
        task = self._task(request.task_id)
        is_running = await self._is_running(request.task_id)
        result = task.result or ExitResult()
        status = driver_message(
            "TaskStatus",
            id=request.task_id,
            name=task.config.name,
            state=convert.STATE_RUNNING if is_running else convert.STATE_EXITED,
            started_at=convert.timestamp_fields(task.started_at),
            completed_at=convert.timestamp_fields(result.finished_at),
            result=convert.exit_message(result),
        )
        return driver_message("InspectTaskResponse", task=status, network_override=task.network)

    async def stats(self, request: Message) -> AsyncIterator[Message]:
        """Usage of a task at each interval, the first at once."""
        self._task(request.task_id)
        interval_s = max(convert.duration_of(request.collection_interval) / NANOSECONDS, STATS_INTERVAL_MIN_S)
        before: TaskStats | None = None
        while await self._is_running(request.task_id):
            now = await self._driver().task_stats(request.task_id)
            yield driver_message("TaskStatsResponse", stats=stats_message(request.task_id, now, before))
            before = now
            await self._env.sleep(interval_s)

    async def signal(self, request: Message) -> Message:
        """Send a signal."""
        self._task(request.task_id)
        await self._driver().signal_task(request.task_id, request.signal)
        return driver_message("SignalTaskResponse")

    async def execute(self, request: Message) -> Message:
        """Run a command in a task."""
        self._task(request.task_id)
        timeout = convert.duration_of(request.timeout)
        found = await self._driver().exec_task(request.task_id, tuple(request.command), timeout=timeout)
        result = {"exit_code": found.exit_code}
        return driver_message("ExecTaskResponse", stdout=found.stdout, stderr=found.stderr, result=result)

    async def execute_streaming(self, requests: AsyncIterator[Message]) -> AsyncIterator[Message]:
        """Run a command in a task with its streams."""
        first = await anext(requests, None)
        if first is None or not first.setup.task_id:
            raise DriverError("the first message must say the task and the command")
        setup, command = first.setup, tuple(first.setup.command)
        self._task(setup.task_id)
        driver = self._driver()
        if not isinstance(driver, StreamsExec):
            found = await driver.exec_task(setup.task_id, command, timeout=EXEC_LIMIT)
            for name, data in (("stdout", found.stdout), ("stderr", found.stderr)):
                yield driver_message("ExecTaskStreamingResponse", **{name: {"data": data, "close": True}})
            yield driver_message("ExecTaskStreamingResponse", exited=True, result={"exit_code": found.exit_code})
            return
        session = await driver.exec_stream(setup.task_id, command, tty=setup.tty)
        feeding = self._background.start("feed exec", lambda: feed(session, requests))
        try:
            async for output in session.output():
                yield driver_message("ExecTaskStreamingResponse", **{output.stream: {"data": output.data}})
            yield driver_message("ExecTaskStreamingResponse", exited=True, result={"exit_code": await session.wait()})
        finally:
            feeding.cancel()
            await session.close()

    async def shutdown(self, _request: Message) -> Message:
        """Acknowledge that the host makes no more calls; does nothing else."""
        return driver_message("ShutdownResponse")

    async def close(self) -> None:
        """Close the driver; tasks continue."""
        self.closed.set()
        self._events.close()
        await self._background.close()
        if self.driver is not None:
            await self.driver.close()


async def feed(session: ExecSession, requests: AsyncIterator[Message]) -> None:
    """Pass the host's input to the command."""
    async for request in requests:
        if request.HasField("tty_size"):
            await session.resize(TerminalSize(width=request.tty_size.width, height=request.tty_size.height))
        if request.stdin.data:
            await session.write(request.stdin.data)
        if request.stdin.close:
            await session.close_input()
