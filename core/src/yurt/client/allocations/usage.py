"""Measures the CPU, memory and devices that allocations use, in the form of the API.

Drivers are asked at the same time, each about one task after the other. One that does not answer within `STATS_LIMIT_S`
is not asked about further tasks in that round; the next round asks about the silent tasks last. So silent drivers, of
whatever number and tasks, delay a round by that limit. A task about which its driver fails is left out, and no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary, WeakSet

from yurt.client.allocations.alloc_runner import AllocRunner
from yurt.client.allocations.alloc_table import EndedAlloc
from yurt.client.allocations.memory_pressure import MemoryPressure
from yurt.client.devices.manager import DeviceManager
from yurt.client.devices.task_stats import task_device_stats
from yurt.client.host_usage import core_mhz
from yurt.client.node.local_node import LocalNode
from yurt.client.tasks.task_runner import TaskRunner
from yurt.client.timed_waits import value_within
from yurt.lifecycle.task import RUNNING
from yurt.runtime.env import Env
from yurt.runtime.supervise import attempted
from yurt.sdk.driver import TaskStats
from yurt.sdk.errors import NotFound, YurtError
from yurt.sdk.value import UnixNano, replace
from yurt.structs.rpc import AllocResourceUsage, CpuStats, MemoryStats, ResourceUsage, TaskResourceUsage

MEASURED_MEMORY = ("RSS", "Swap")
STATS_LIMIT_S: Final = 5.0
"""The longest wait for a driver's answer."""
MEASURED_CPU = ("System Mode", "User Mode", "Percent")

log = logging.getLogger(__name__)


class UsageMeter:
    """Measures tasks; keeps each task's last sample, because a CPU percentage is the difference of two samples."""

    def __init__(
        self, env: Env, *, node: LocalNode, devices: DeviceManager, pressure: MemoryPressure | None = None
    ) -> None:
        """`pressure` sees each sample with the one before."""
        self._pressure = pressure
        self._env = env
        self._node = node
        self._devices = devices
        self._silent: WeakSet[TaskRunner] = WeakSet()
        self._failing: WeakSet[TaskRunner] = WeakSet()
        """Tasks about which their drivers failed in an unforeseen way when they were asked last: logged once."""
        self._last: WeakKeyDictionary[TaskRunner, tuple[int, TaskStats]] = WeakKeyDictionary()

    async def alloc_usage(
        self, alloc: AllocRunner | EndedAlloc, task: str, *, has_devices: bool = True
    ) -> AllocResourceUsage:
        """Usage of an allocation's running tasks, or of one when `task` is not empty, and of their devices."""
        if task and task not in [user.name for user in alloc.users]:
            raise NotFound(f'task "{task}" is not in allocation {alloc.id}')
        tasks = alloc.tasks if isinstance(alloc, AllocRunner) else {}
        chosen = [each for name, each in tasks.items() if task in ("", name)]
        return self._of_alloc(chosen, await self._measure(chosen, has_devices=has_devices))

    async def alloc_usages(
        self, allocs: Iterable[AllocRunner], *, has_devices: bool = True
    ) -> dict[str, AllocResourceUsage]:
        """Usage of all running tasks of allocations, by allocation id."""
        tasks = {alloc.alloc.id: tuple(alloc.tasks.values()) for alloc in allocs}
        measured = await self._measure((each for of_one in tasks.values() for each in of_one), has_devices=has_devices)
        return {alloc_id: self._of_alloc(of_one, measured) for alloc_id, of_one in tasks.items()}

    def _of_alloc(
        self, tasks: Iterable[TaskRunner], measured: Mapping[TaskRunner, TaskResourceUsage]
    ) -> AllocResourceUsage:
        used = {each.name: measured[each] for each in tasks if each in measured}
        return AllocResourceUsage(
            resource_usage=_sum([usage.resource_usage for usage in used.values()]),
            tasks=used,
            timestamp=self._env.now(),
        )

    async def _measure(
        self, runners: Iterable[TaskRunner], *, has_devices: bool
    ) -> dict[TaskRunner, TaskResourceUsage]:
        """The usage of tasks that run and whose drivers answer."""
        by_driver: dict[str, list[TaskRunner]] = {}
        for runner in sorted(runners, key=self._silent.__contains__):
            by_driver.setdefault(runner.calls.name, []).append(runner)
        found: dict[TaskRunner, TaskResourceUsage] = {}

        async def measure(runner: TaskRunner) -> None:
            usage = await self._task_usage(runner, has_devices=has_devices)
            if usage is not None:
                found[runner] = usage

        async def measure_in_turn(of_one: Iterable[TaskRunner]) -> None:
            for runner in of_one:
                name, is_first = f"usage of task {runner.name} of {runner.alloc.id[:8]}", runner not in self._failing
                if await attempted(name, measure(runner), is_logged=partial(bool, is_first)):
                    self._failing.discard(runner)
                else:
                    self._failing.add(runner)
                    self._silent.discard(runner)
                if runner in self._silent:
                    return

        if len(by_driver) == 1:
            await measure_in_turn(*by_driver.values())
        else:
            async with asyncio.TaskGroup() as group:
                for name, of_one in by_driver.items():
                    group.create_task(measure_in_turn(of_one), name=f"usage by driver {name}")
        return found

    async def _task_usage(self, runner: TaskRunner, *, has_devices: bool) -> TaskResourceUsage | None:
        """The usage of a running task; None where its driver has none, or is silent, which is noted."""
        driver = runner.driver
        if runner.machine.phase != RUNNING or driver is None:
            self._silent.discard(runner)
            return None
        run = runner.machine.run
        try:
            sample = await value_within(self._env, driver.task_stats(runner.task_id(run)), STATS_LIMIT_S)
        except YurtError:
            self._silent.discard(runner)
            return None
        if sample is None:
            self._note_silence(runner)
            return None
        self._silent.discard(runner)
        of_run, before = self._last.get(runner, (run, TaskStats(at=UnixNano(runner.machine.state.started_at))))
        if of_run != run:
            before = TaskStats(at=UnixNano(runner.machine.state.started_at))
        self._last[runner] = (run, sample)
        if self._pressure is not None:
            self._pressure.take(runner, run, before, sample)
        usage = _usage(before, sample, core_mhz(self._node.value))
        devices = await task_device_stats(self._devices, runner) if has_devices else ()
        used = replace(usage, device_stats=devices)
        return TaskResourceUsage(resource_usage=used, timestamp=sample.at)

    def _note_silence(self, runner: TaskRunner) -> None:
        """Log once that a task's driver gives no usage, until it gives some again."""
        if runner not in self._silent:
            self._silent.add(runner)
            log.warning(
                "a driver does not answer about usage: limit_s=%g driver=%s alloc=%s task=%s",
                STATS_LIMIT_S, runner.calls.name, runner.alloc.id, runner.name,
            )  # fmt: skip


def _usage(before: TaskStats, now: TaskStats, mhz: float) -> ResourceUsage:
    elapsed = max(now.at - before.at, 1)
    user = 100.0 * max(now.cpu_user_ns - before.cpu_user_ns, 0) / elapsed
    system = 100.0 * max(now.cpu_system_ns - before.cpu_system_ns, 0) / elapsed
    return ResourceUsage(
        memory_stats=MemoryStats(rss=now.rss_bytes, swap=now.swap_bytes, usage=now.rss_bytes, measured=MEASURED_MEMORY),
        cpu_stats=CpuStats(
            user_mode=user,
            system_mode=system,
            percent=user + system,
            total_ticks=(user + system) / 100.0 * mhz,
            measured=MEASURED_CPU,
        ),
    )


def _sum(parts: list[ResourceUsage]) -> ResourceUsage:
    if not parts:
        return ResourceUsage()
    memory = [part.memory_stats for part in parts]
    cpu = [part.cpu_stats for part in parts]
    return ResourceUsage(
        memory_stats=MemoryStats(
            rss=sum(each.rss for each in memory),
            swap=sum(each.swap for each in memory),
            usage=sum(each.usage for each in memory),
            measured=MEASURED_MEMORY,
        ),
        cpu_stats=CpuStats(
            user_mode=sum(each.user_mode for each in cpu),
            system_mode=sum(each.system_mode for each in cpu),
            percent=sum(each.percent for each in cpu),
            total_ticks=sum(each.total_ticks for each in cpu),
            measured=MEASURED_CPU,
        ),
        device_stats=tuple(stats for part in parts for stats in part.device_stats),
    )
