"""Adapts a driver binary of `plugin_dir` to Yurt's driver contract.

The plugin runs the tasks; this module has a record of each: its handle, its output files, and one call that waits for
its end, shared by all waiters. When the plugin dies, its next process gets the handles of the running tasks, and the
waiting continues. Tasks write to FIFOs, which the log collector reads (`log_collector`).

States of a task here: (nothing) -start-> running -(WaitTask answers | lost with the plugin)-> ended -destroy-> gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, NamedTuple

import msgspec
from google.protobuf.message import DecodeError

from yurt.goplugin import convert
from yurt.goplugin.connection import CallSpec, Connection, NotOffered, PluginGone
from yurt.goplugin.exec_session import PluginExecSession
from yurt.goplugin.hclspec import encode_config, schema_from_spec, struct_of
from yurt.goplugin.log_collector_client import LogCollector, TaskLogs
from yurt.goplugin.messages import DRIVER_SERVICE, Message, driver_message, methods
from yurt.goplugin.networks import PluginNetworks
from yurt.goplugin.plugin import BinaryPlugin
from yurt.goplugin.stats import UseMeter
from yurt.goplugin.task_records import PluginTaskRecord, TaskRecords
from yurt.runtime.env import Env
from yurt.sdk.containers.progress import StartProgress
from yurt.sdk.driver import (
    UNHEALTHY,
    Capabilities,
    ExecResult,
    ExitResult,
    Fingerprint,
    TaskHandle,
    TaskRequest,
    TaskStats,
)
from yurt.sdk.errors import DriverError, NotFound, RecoverableError, YurtError
from yurt.sdk.exec import ExecSession
from yurt.sdk.search_permission import grant_search_to_all
from yurt.sdk.value import NANOSECONDS, Duration, replace, seconds

log = logging.getLogger(__name__)

CALL_LIMIT_S = 30.0
START_LIMIT_S = 3600.0
STOP_MARGIN_S = 60.0
STATS_INTERVAL_S = 1.0
STATS_LIMIT_S = 10.0
STREAM_AGAIN_S = 5.0
ASK_AGAIN_MAX = 3
START_POLL_S = 0.25
START_POLLS_MAX = 20
SUCCESS, RETRY = 0, 1


def call(method: str, limit_s: float = CALL_LIMIT_S) -> CallSpec:
    """A method of the driver service."""
    return CallSpec(service=DRIVER_SERVICE, method=method, limit_s=limit_s)


class PluginTask:
    """A task that runs in a plugin."""

    def __init__(self, handle: Message, logs: TaskLogs | None, loop: asyncio.AbstractEventLoop) -> None:
        self.handle = handle
        self.logs = logs
        self.meter = UseMeter()
        self.ended: asyncio.Future[ExitResult] = loop.create_future()


class DriverFacts(NamedTuple):
    """The constant facts of a driver binary: its name, the schema of task options, its capabilities."""

    name: str
    spec: Message
    capabilities: Capabilities


async def ask_facts(plugin: BinaryPlugin) -> DriverFacts:
    """The facts of a plugin that is a driver."""
    connection = await plugin.ready()
    with contextlib.suppress(NotOffered):
        await connection.call(call("Init"))
    spec = (await connection.call(call("TaskConfigSchema"))).spec
    capabilities = convert.capabilities_of((await connection.call(call("Capabilities"))).capabilities)
    return DriverFacts(plugin.facts.name, spec, capabilities)


def open_alloc_dir(folder: str) -> None:
    """Let every user traverse the allocation's directory: a plugin does not report the users of its tasks."""
    with contextlib.suppress(FileNotFoundError):
        grant_search_to_all(folder)


async def settle(work: Callable[[TaskLogs], Awaitable[None]], logs: TaskLogs | None, *, driver: str) -> None:
    """Drain or close the output of a task, if it has any; a collector that fails does not fail the task."""
    if logs is not None:
        try:
            await work(logs)
        except RecoverableError as error:
            log.warning("driver %s: %s", driver, error)


class BinaryDriver:
    """A driver of `plugin_dir`."""

    def __init__(self, plugin: BinaryPlugin, env: Env, facts: DriverFacts) -> None:
        self.name = facts.name
        self.capabilities = replace(facts.capabilities, finds_by_id=True)
        self.task_config = struct_of(facts.name, schema_from_spec(facts.spec))
        self._spec = facts.spec
        self._plugin = plugin
        self._env = env
        self._logs = LogCollector(f"{plugin.spec.folder}/logs", is_dev=plugin.spec.is_dev)
        self._networks = PluginNetworks(f"{plugin.spec.folder}/networks")
        self._records = TaskRecords(f"{plugin.spec.folder}/tasks")
        self._tasks: dict[str, PluginTask] = {}
        self._starting: set[str] = set()
        self._start_progress = StartProgress()
        plugin.subscribe(self._take_up_all)
        plugin.background.start("task events", self._follow_events)

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """The health that the plugin reports; unhealthy while its process is gone."""
        dead: Connection | None = None
        while not self._plugin.closed.is_set():
            try:
                connection = await self._plugin.ready(limit_s=None, after=dead)
                dead = None
                async for message in connection.stream(call("Fingerprint")):
                    yield convert.fingerprint_of(message, self.name)
                reason = "the plugin ended its report of how it fares"
            except PluginGone as error:
                dead, reason = connection, str(error)
            except YurtError as error:
                reason = str(error)
            if self._plugin.closed.is_set():
                return
            fix = f"the agent starts it again; if that does not help, see the log for plugin {self._plugin.spec.name}"
            yield Fingerprint(health=UNHEALTHY, description=self._plugin.failure or reason, fix=fix)
            if dead is None:
                await self._env.sleep(STREAM_AGAIN_S)

    async def _follow_events(self) -> None:
        """Pass the plugin's task events (an image download, say) to the log and to subscribers."""
        while not self._plugin.closed.is_set():
            with contextlib.suppress(YurtError):
                connection = await self._plugin.ready(limit_s=None)
                async for event in connection.stream(call("TaskEvents")):
                    notes = " ".join(f"{name}={value}" for name, value in sorted(event.annotations.items()))
                    log.info("driver %s: task %s: %s %s", self.name, event.task_id, event.message, notes)
                    self._start_progress.publish(event.task_id, f"{event.message} {notes}".strip())
            await self._env.sleep(STREAM_AGAIN_S)

    def progress(self, task_id: str) -> AsyncIterator[str]:
        """The plugin's progress messages for a task that is starting."""
        return self._start_progress.follow(task_id)

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Start the task in the plugin."""
        task_id = request.task_id
        if task_id in self._tasks or task_id in self._starting:
            raise DriverError(f"task {task_id} runs already; destroy it first")
        config = encode_config(self._spec, msgspec.to_builtins(request.config))
        await asyncio.to_thread(open_alloc_dir, request.dirs.alloc_dir)
        connection = await self._plugin.ready()
        logs = None
        if not request.logs.disabled:
            logs = self._logs.plan(
                task_id, logs_dir=request.dirs.logs_dir, task_name=request.task_name, rotation=request.logs
            )
        self._starting.add(task_id)
        try:
            if logs is not None:
                await self._logs.open(logs)
            outputs = logs.fifos if logs else (convert.DEV_NULL, convert.DEV_NULL)
            message = convert.task_config(request, msgpack_config=config, outputs=outputs)
            made = self._networks.read(request.alloc_id) if request.network_namespace else None
            if made is not None:
                message.network_isolation_spec.MergeFrom(made)
            intent = driver_message("TaskHandle", version=convert.HANDLE_VERSION, config=message)
            record = PluginTaskRecord(task_id=task_id, handle=intent.SerializeToString(), logs=logs)
            self._records.write(record)
            answer = await connection.call(call("StartTask", START_LIMIT_S), task=message)
            if answer.result != SUCCESS:
                kind = RecoverableError if answer.result == RETRY else DriverError
                raise kind(f"driver {self.name}: {answer.driver_error_msg or 'it gave no reason'}")
        except (YurtError, asyncio.CancelledError):
            self._records.remove(task_id)
            await settle(self._logs.close_task, logs, driver=self.name)
            raise
        finally:
            self._starting.discard(task_id)
        handle = answer.handle
        if not handle.HasField("config"):
            handle.config.CopyFrom(message)
        self._watch(task_id, PluginTask(handle, logs, asyncio.get_running_loop()))
        record = replace(record, handle=handle.SerializeToString(), is_answered=True)
        self._records.write(record)
        state = {"handle": record.handle, "logs": msgspec.to_builtins(logs) if logs else None}
        address = answer.network_override.addr
        return TaskHandle(driver=self.name, task_id=task_id, started_at=self._env.now(), address=address, state=state)

    async def _ask(self, spec: CallSpec, /, **fields: Any) -> Message:
        """Make a call; repeat it with the plugin's next process when the present one dies meanwhile."""
        connection = await self._plugin.ready()
        for _ in range(ASK_AGAIN_MAX):
            try:
                return await connection.call(spec, **fields)
            except PluginGone:
                connection = await self._plugin.ready(after=connection)
        return await connection.call(spec, **fields)

    def _watch(self, task_id: str, task: PluginTask) -> None:
        self._tasks[task_id] = task
        self._plugin.background.start(f"wait for {task_id}", lambda: self._wait_in_plugin(task_id, task))

    async def _wait_in_plugin(self, task_id: str, task: PluginTask) -> None:
        """Ask the plugin for the end of a task, across restarts of the plugin."""
        connection: Connection | None = None
        while not task.ended.done():
            try:
                connection = await self._plugin.ready(limit_s=None, after=connection)
                answer = await connection.call(call("WaitTask", 0), task_id=task_id)
                await settle(self._logs.drain, task.logs, driver=self.name)
                result = convert.exit_of(answer.result, answer.err, at=self._env.now())
            except PluginGone:
                if self._plugin.closed.is_set():
                    return
                continue
            except YurtError as error:
                result = ExitResult(error=str(error), finished_at=self._env.now())
            if not task.ended.done():
                task.ended.set_result(result)

    async def _take_up_all(self, connection: Connection) -> None:
        """Recover all tasks in a new process of the plugin."""
        for task_id, task in list(self._tasks.items()):
            try:
                await self._take_up(connection, task_id, task.handle)
            except PluginGone:
                raise
            except YurtError as error:
                text = f"the plugin died, and its next process cannot find the task: {error}"
                if not task.ended.done():
                    task.ended.set_result(ExitResult(error=text, finished_at=self._env.now()))

    async def _take_up(self, connection: Connection, task_id: str, handle: Message) -> None:
        """Recover a task in the plugin, unless the plugin has it."""
        try:
            await connection.call(call("InspectTask"), task_id=task_id)
        except (NotFound, DriverError) as error:
            if isinstance(error, PluginGone):
                raise
            await connection.call(call("RecoverTask"), task_id=task_id, handle=handle)

    async def recover_task(self, handle: TaskHandle) -> None:
        """Recover a task of an earlier agent or an earlier process of the plugin."""
        if handle.task_id in self._tasks:
            return
        record = await self._intended(handle.task_id) if handle.is_intent else record_of(handle)
        message = convert.parse_handle(record.handle)
        connection = await self._plugin.ready()
        if record.logs is not None:
            await self._logs.open(record.logs)
        try:
            await self._take_up(connection, handle.task_id, message)
        except RecoverableError:
            raise
        except (DriverError, NotFound) as error:
            await settle(self._logs.close_task, record.logs, driver=self.name)
            raise NotFound(f"task {handle.task_id} cannot be found again: {error}") from None
        self._watch(handle.task_id, PluginTask(message, record.logs, asyncio.get_running_loop()))

    async def _intended(self, task_id: str) -> PluginTaskRecord:
        """The record of a task whose start outlived its agent; waits for a start in progress."""
        record = self._records.read(task_id)
        if record is None:
            raise NotFound(f"task {task_id} had not been started when the agent ended")
        for _ in range(0 if record.is_answered else START_POLLS_MAX):
            try:
                await self._ask(call("InspectTask"), task_id=task_id)
            except (NotFound, DriverError) as error:
                if isinstance(error, RecoverableError):
                    raise
                await self._env.sleep(START_POLL_S)
            else:
                return record
        if record.is_answered:
            return record
        self._records.remove(task_id)
        await settle(self._logs.close_task, record.logs, driver=self.name)
        raise NotFound(f"task {task_id} had not been started when the agent ended")

    def _task(self, task_id: str) -> PluginTask:
        try:
            return self._tasks[task_id]
        except KeyError:
            raise NotFound(f"driver {self.name} has no task {task_id}") from None

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for the end."""
        return await asyncio.shield(self._task(task_id).ended)

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Send a signal."""
        self._task(task_id)
        await self._ask(call("SignalTask"), task_id=task_id, signal=signal)

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """Stop the task by the plugin."""
        if self._task(task_id).ended.done():
            return
        limit = call("StopTask", timeout / NANOSECONDS + STOP_MARGIN_S)
        wait = convert.duration_fields(timeout)
        await self._ask(limit, task_id=task_id, timeout=wait, signal=signal)

    async def destroy_task(self, task_id: str) -> None:
        """Destroy the task in the plugin, and stop reading its output."""
        task = self._task(task_id)
        with contextlib.suppress(NotFound):
            await self._ask(call("DestroyTask", CALL_LIMIT_S + STOP_MARGIN_S), task_id=task_id, force=True)
        self._tasks.pop(task_id, None)
        self._records.remove(task_id)
        if not task.ended.done():
            task.ended.set_result(ExitResult(error="the task was destroyed", finished_at=self._env.now()))
        await settle(self._logs.close_task, task.logs, driver=self.name)

    async def task_stats(self, task_id: str) -> TaskStats:
        """The plugin's next usage statistics of a task."""
        task = self._task(task_id)
        connection = await self._plugin.ready()
        interval = convert.duration_fields(seconds(STATS_INTERVAL_S))
        stream = connection.stream(call("TaskStats"), task_id=task_id, collection_interval=interval)
        try:
            async with contextlib.aclosing(stream), asyncio.timeout(STATS_LIMIT_S):
                async for answer in stream:
                    return task.meter.read(answer.stats, now=self._env.now())
        except TimeoutError:
            raise RecoverableError(f"driver {self.name} gave no figures within {STATS_LIMIT_S:g} s") from None
        raise DriverError(f"driver {self.name} gives no figures for task {task_id}")

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command in the task."""
        self._task(task_id)
        connection = await self._plugin.ready()
        limit = call("ExecTask", timeout / NANOSECONDS + CALL_LIMIT_S)
        wait = convert.duration_fields(timeout)
        answer = await connection.call(limit, task_id=task_id, command=list(command), timeout=wait)
        code = 128 + answer.result.signal if answer.result.signal else answer.result.exit_code
        return ExecResult(exit_code=code, stdout=answer.stdout, stderr=answer.stderr)

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> ExecSession:
        """Start a command in the task, with its streams."""
        self._task(task_id)
        connection = await self._plugin.ready()
        method = methods(DRIVER_SERVICE)["ExecTaskStreaming"]
        session = PluginExecSession(connection.target, method, f"driver {self.name}")
        await session.start(task_id, command, tty=tty)
        return session

    async def create_network(self, alloc_id: str, *, hostname: str = "") -> str:
        """The path of a group's network namespace, which the plugin creates unless it exists."""
        answer = await self._ask(call("CreateNetwork"), alloc_id=alloc_id, hostname=hostname)
        if not answer.isolation_spec.path:
            raise DriverError(f"driver {self.name} made no network namespace for allocation {alloc_id}")
        self._networks.write(alloc_id, answer.isolation_spec)
        path: str = answer.isolation_spec.path
        return path

    async def destroy_network(self, alloc_id: str) -> None:
        """Remove a group's network namespace by the plugin."""
        made = self._networks.read(alloc_id)
        if made is not None:
            with contextlib.suppress(NotFound):
                await self._ask(call("DestroyNetwork"), alloc_id=alloc_id, isolation_spec=made)
            self._networks.remove(alloc_id)

    async def status(self, task_id: str) -> Mapping[str, str]:
        """The status that the plugin reports for a task."""
        self._task(task_id)
        answer = await self._ask(call("InspectTask"), task_id=task_id)
        return dict(answer.driver.attributes)

    async def close(self) -> None:
        """Detach from the plugin: it keeps running for the next agent while it has tasks; in dev mode it ends."""
        has_tasks = any(not task.ended.done() for task in self._tasks.values())
        await self._plugin.close(keeps_process=has_tasks and not self._plugin.spec.is_dev)
        await self._logs.close()
        self._tasks.clear()


def record_of(handle: TaskHandle) -> PluginTaskRecord:
    """The record in a stored handle; raises NotFound for a damaged one."""
    try:
        data = handle.state["handle"]
        convert.parse_handle(data)
        logs = msgspec.convert(handle.state["logs"], TaskLogs) if handle.state.get("logs") else None
    except (KeyError, TypeError, DecodeError, msgspec.ValidationError) as error:
        raise NotFound(f"task {handle.task_id} cannot be found again: its handle is damaged ({error})") from None
    return PluginTaskRecord(task_id=handle.task_id, handle=data, is_answered=True, logs=logs)
