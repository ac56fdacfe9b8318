"""A driver's table of tasks in containers, and the detection of their ends.

States of a task here: starting -> running -> settling -> ended -> (forgotten). A recovered task enters at running. A
task settles when the engine reports the end of its container: its output is read to the end, and only then its waiters
return. While the engine is unreachable a task keeps its state; the watch reports changes afterwards.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from signal import SIGKILL
from typing import Any, Protocol

import msgspec

from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.cgroups import ContainerCgroup, cgroup_of, parse_cores
from yurt.sdk.containers.cgroups.cores import ContainerCores
from yurt.sdk.containers.cgroups.oom import OomWatch
from yurt.sdk.containers.common import signal_name
from yurt.sdk.containers.engine import EngineDown
from yurt.sdk.containers.watch import Watch
from yurt.sdk.driver import ExitResult, LogRotation
from yurt.sdk.errors import Conflict, DriverError, NotFound, RecoverableError
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano, replace

KILL_LIMIT_S = 30.0
ENGINE_WAIT_S = 20.0
ALIVE = ("running", "paused", "restarting", "stopping", "removing")


class Container(msgspec.Struct, frozen=True, kw_only=True):
    """The data of a container in a task's handle, by which a later agent finds it.

    `cores` are those that its task reserves, None in the handle of an older version; `cpuset_cpus` those that its job
    chose without reserving them, which an older version did not record either.
    """

    container_id: str
    image_id: str
    logs_dir: str
    task_name: str
    logs: LogRotation
    is_terminal: bool = False
    address: str = ""
    cores: tuple[int, ...] | None = None
    cpuset_cpus: str = ""

    @property
    def is_of_older_version(self) -> bool:
        """Whether its cores were not recorded."""
        return self.cores is None


class ContainerCalls(Protocol):
    """Calls on single containers; raise NotFound, Conflict or EngineDown accordingly."""

    async def probe(self) -> None:
        """Check soon whether the engine answers."""
        ...

    async def inspect(self, container_id: str) -> Mapping[str, Any]:
        """The engine's description of a container."""
        ...

    async def kill(self, container_id: str, name: str) -> None:
        """Send a signal."""
        ...

    async def remove(self, container_id: str) -> None:
        """Kill and remove a container with its anonymous volumes; does nothing for an absent one."""
        ...

    def result_of(self, inspected: Mapping[str, Any]) -> ExitResult | None:
        """The exit result of a container; None while it runs."""
        ...


class OutputCollector(Protocol):
    """Collects a container's output."""

    async def drained(self) -> None:
        """Wait, within bounds, until all output of an ended container is read."""
        ...


class ContainerTask:
    """A task of the driver."""

    def __init__(self, task_id: str, container: Container, allocated_cores: tuple[int, ...] | None = None) -> None:
        """`allocated_cores` are those that the allocation reserves, for a container of an older version."""
        self.task_id = task_id
        self.container = container
        self.reserved_cores = container.cores if container.cores is not None else allocated_cores or ()
        self.ended: asyncio.Future[ExitResult] = asyncio.get_running_loop().create_future()
        self.output: OutputCollector | None = None
        self.memory: OomWatch | None = None
        self.cgroup = ContainerCgroup()
        self.is_seen = False
        """Its process on this machine has been found."""
        self.hints = 0
        self.is_settling = False


class ContainerTasks:
    """The table of tasks and the operations on them."""

    def __init__(
        self,
        calls: ContainerCalls,
        background: DriverTasks,
        clock: Callable[[], UnixNano],
        cores: ContainerCores | None = None,
    ) -> None:
        """`cores` is None for an engine of another machine."""
        self._calls = calls
        self._cores = cores
        self._background = background
        self._clock = clock
        self._tasks: dict[str, ContainerTask | None] = {}
        self._by_container: dict[str, ContainerTask] = {}
        self._sought: Counter[str] = Counter()

    def reserve(self, task_id: str) -> None:
        """Reserve the id of a task that is about to start."""
        if task_id in self._tasks:
            raise DriverError(f"task {task_id} runs already; destroy it first")
        self._tasks[task_id] = None

    def reserve_cores(self, task_id: str, cores: tuple[int, ...]) -> None:
        """Take the cores of a task from the others before its container runs."""
        if self._cores:
            self._cores.reserve(task_id, cores)

    def give_up(self, task_id: str) -> None:
        """Free the id of a failed start."""
        task = self._tasks.pop(task_id)
        if task is not None:
            self._by_container.pop(task.container.container_id, None)
            self._forget_memory(task)
        self._release_cores(task_id)

    def add(self, task: ContainerTask, *, pid: int) -> None:
        """Add a task; `pid` is its first process on this machine, 0 when unknown."""
        self._tasks[task.task_id] = task
        self._by_container[task.container.container_id] = task
        self._see(task, pid)
        self.reserve_cores(task.task_id, task.reserved_cores)

    def _see(self, task: ContainerTask, pid: int) -> None:
        """Find the container's cgroup by its first process, and count it among those that share cores."""
        if pid <= 0:
            return
        container = task.container
        task.is_seen = True
        task.memory = OomWatch(pid)
        task.cgroup = cgroup = cgroup_of(pid, container.container_id)
        if self._cores and not task.reserved_cores:
            chosen = parse_cores(container.cpuset_cpus)
            if container.is_of_older_version:
                chosen = self._cores.first_list(container.container_id, cgroup)
            self._cores.add(task.task_id, container.container_id, cgroup, chosen)

    async def _see_others(self) -> None:
        """Find the cgroups of unseen containers, one after another."""
        for task in unseen(self._by_container.values()):
            try:
                inspected = await self._calls.inspect(task.container.container_id)
            except EngineDown:
                return
            except (DriverError, NotFound):
                continue
            if task in unseen(self._by_container.values()):
                self._see(task, int((inspected.get("State") or {}).get("Pid") or 0))

    def _release_cores(self, task_id: str) -> None:
        """Give the cores of a task back to the others."""
        if self._cores:
            self._cores.release(task_id)

    def has(self, task_id: str) -> bool:
        """Whether the id is in use."""
        return task_id in self._tasks

    def get(self, task_id: str) -> ContainerTask:
        """The task; raises NotFound."""
        task = self._tasks.get(task_id)
        if task is None:
            raise NotFound(f"the {self._background.owner} driver knows no task {task_id}")
        return task

    @contextmanager
    def seeking(self, task_id: str) -> Iterator[None]:
        """Mark a task as being recovered while its container is searched."""
        self._sought[task_id] += 1
        try:
            yield
        finally:
            self._sought[task_id] -= 1

    def has_task(self, container_id: str, task_id: str) -> bool:
        """Whether a container belongs to a task; one made for `task_id` counts while that task starts."""
        is_starting = task_id in self._tasks and self._tasks[task_id] is None
        return container_id in self._by_container or is_starting or self._sought[task_id] > 0

    def is_running(self, container_id: str) -> bool:
        """Whether a container belongs to a running task."""
        task = self._by_container.get(container_id)
        return task is not None and not task.ended.done()

    def on_end(self, container_id: str) -> None:
        """Check a container that may have ended."""
        task = self._by_container.get(container_id)
        if not task or task.ended.done():
            return
        task.hints += 1
        if not task.is_settling:
            task.is_settling = True
            self._background.start("end of a container", lambda: self._settle(task))

    def on_list(self, states: Mapping[str, str]) -> None:
        """Check the tasks whose containers have ended or are gone, by a list of all containers of this client."""
        if self._cores:
            self._cores.send_again()
            if unseen(self._by_container.values()):
                self._background.start("cgroups of containers", self._see_others)
        alive = {container_id for container_id, state in states.items() if state in ALIVE}
        for container_id in [each for each in self._by_container if each not in alive]:
            self.on_end(container_id)

    async def _settle(self, task: ContainerTask) -> None:
        """Inspect a container and report its end once all its output is read."""
        try:
            result, seen = None, 0
            while result is None and seen != task.hints:
                seen = task.hints
                result = await self._result_of(task)
            if result is None:
                return
            if task.output:
                await task.output.drained()
            self._forget_memory(task)
            self._release_cores(task.task_id)
            if not task.ended.done():
                task.ended.set_result(result)
        finally:
            task.is_settling = False

    def _forget_memory(self, task: ContainerTask) -> None:
        """Stop watching memory: the task has ended or is released."""
        if task.memory:
            task.memory.close()
            task.memory = None

    def close(self) -> None:
        """Stop watching cgroups; containers continue."""
        if self._cores:
            self._cores.close()
        for task in self._by_container.values():
            self._forget_memory(task)

    async def _result_of(self, task: ContainerTask) -> ExitResult | None:
        """The exit result of a container; None while it runs or the engine is unreachable."""
        try:
            result = self._calls.result_of(await self._calls.inspect(task.container.container_id))
        except EngineDown:
            return None
        except NotFound:
            return ExitResult(error="the container was removed by somebody else", finished_at=self._clock())
        if result and result.signal == SIGKILL and task.memory and task.memory.has_run_out:
            return replace(result, oom_killed=True)
        return result

    async def wait(self, task_id: str) -> ExitResult:
        """Wait for the end, through outages of the engine."""
        return await asyncio.shield(self.get(task_id).ended)

    async def signal(self, task_id: str, signal: str) -> None:
        """Send a signal to the container's first process."""
        task, name = self.get(task_id), signal_name(signal)
        try:
            await self._calls.kill(task.container.container_id, name)
        except (Conflict, NotFound) as error:
            raise DriverError(f"{name} was not sent to task {task_id}: {error}") from None

    async def stop(self, task_id: str, watch: Watch, *, signal: str, timeout: Duration) -> None:
        """Ask the container to end, and kill it after `timeout`."""
        task, name = self.get(task_id), signal_name(signal or "SIGTERM")
        await self._kill(task, watch, name)
        if not await has_ended_within(task, timeout / NANOSECONDS):
            await self._kill(task, watch, "SIGKILL")
            if not await has_ended_within(task, KILL_LIMIT_S):
                raise RecoverableError(f"task {task_id} does not end although it was killed; look at the engine's log")

    async def _kill(self, task: ContainerTask, watch: Watch, signal: str) -> None:
        """Send a signal, unless the container has ended; waits a while for an unreachable engine."""
        if task.ended.done():
            return
        with suppress(Conflict, NotFound):
            try:
                await self._require_engine(watch)
                await self._calls.kill(task.container.container_id, signal)
            except EngineDown:
                if not await watch.wait_up(ENGINE_WAIT_S):
                    raise
                await self._calls.kill(task.container.container_id, signal)
            return
        self.on_end(task.container.container_id)

    async def _require_engine(self, watch: Watch) -> None:
        """Check soon whether an unreachable engine is still down, before a thread waits for it."""
        if not watch.up.is_set():
            await self._calls.probe()

    async def destroy(self, task_id: str, watch: Watch, *, removes: bool) -> ContainerTask:
        """Kill the container, remove it if `removes`, and forget it."""
        task = self.get(task_id)
        container_id = task.container.container_id
        await self._require_engine(watch)
        if removes:
            await self._calls.remove(container_id)
        elif not task.ended.done():
            await self._kill(task, watch, "SIGKILL")
        self._tasks.pop(task_id, None)
        self._by_container.pop(container_id, None)
        if not task.ended.done():
            task.ended.set_result(ExitResult(exit_code=137, signal=9, finished_at=self._clock()))
        if task.output:
            await task.output.drained()
        self._forget_memory(task)
        self._release_cores(task_id)
        if self._cores and task.container.is_of_older_version:
            self._cores.forget_first_list(container_id)
        return task


def unseen(tasks: Iterable[ContainerTask]) -> list[ContainerTask]:
    """The running tasks whose engine could not be asked for their process when they were recovered."""
    return [each for each in tasks if not each.is_seen and not each.ended.done()]


async def has_ended_within(task: ContainerTask, limit_s: float) -> bool:
    """Whether the task ends within a time limit."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s):
            await asyncio.shield(task.ended)
    return task.ended.done()
