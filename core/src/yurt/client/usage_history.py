"""Records the usage of tasks, devices and the host over the last 15 minutes, so that charts show a past at once.

Every `INTERVAL_S` one round takes a sample of each running task, then of the host. With many tasks
rounds are rarer, so that no more than `TASKS_PER_S` drivers are asked in a second. A series is a ring of `SAMPLES_MAX`
samples in arrays: about 3 KB for a task, 2 KB more for each of its devices. What devices do over hours is kept by
`devices.activity`, which samples them in a loop of its own: no hanging driver of tasks delays it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import psutil

from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.allocations.usage import UsageMeter
from yurt.client.devices.manager import DeviceManager
from yurt.client.host_usage import core_mhz
from yurt.client.node.local_node import LocalNode
from yurt.client.sample_ring import SampleRing
from yurt.runtime.env import Env
from yurt.runtime.supervise import attempted
from yurt.sdk.device import GPU_UTILIZATION
from yurt.sdk.errors import NotFound
from yurt.sdk.value import NANOSECONDS
from yurt.structs.rpc import (
    AllocResourceUsage,
    AllocUsageHistory,
    DeviceGroupStats,
    DeviceStats,
    DeviceUsageSeries,
    HostUsageHistory,
    StatValue,
    UsageSeries,
)

OPTION: Final = "usage_history"
ON, OFF = "on", "off"
INTERVAL_S: Final = 10.0
TASKS_PER_S: Final = 10


class UsageSamples:
    """The usage of one task or the host: CPU in MHz, memory in bytes, and its devices by id."""

    def __init__(self) -> None:
        self.ring = SampleRing(2)
        self.devices: dict[str, tuple[str, SampleRing]] = {}
        """The devices by id: the name, and a ring of memory in MiB and busy percent."""

    def add(self, at: int, *, cpu_mhz: float, memory_bytes: int, devices: Iterable[DeviceGroupStats]) -> None:
        """Add one sample."""
        self.ring.add(at, cpu_mhz, float(memory_bytes))
        for group in devices:
            for device, stats in group.instance_stats.items():
                _, ring = self.devices.setdefault(device, (group.name, SampleRing(2)))
                ring.add(at, *device_figures(stats))

    def value(self) -> UsageSeries:
        """The series as it is sent."""
        return UsageSeries(
            at=tuple(self.ring.at),
            cpu=self.ring.column(0),
            memory_bytes=self.ring.column(1),
            devices={
                device: DeviceUsageSeries(
                    name=name, at=tuple(ring.at), memory_mb=ring.column(0), busy_percent=ring.column(1)
                )
                for device, (name, ring) in self.devices.items()
            },
        )


def device_figures(stats: DeviceStats) -> tuple[float | None, float | None]:
    """Memory in use in MiB, and the percent of time in which the device worked; None where its plugin does not say."""
    summary = stats.summary
    memory = number_of(summary) if summary.unit == "MiB" else None
    busy = stats.stats.attributes.get(GPU_UTILIZATION)
    return memory, None if busy is None else number_of(busy)


def number_of(value: StatValue) -> float | None:
    """The value of a figure as a number; None when it is not one."""
    if value.int_numerator_val is not None:
        return float(value.int_numerator_val)
    return value.float_numerator_val


class UsageHistory:
    """Samples the running tasks of a client and its host."""

    def __init__(
        self, allocs: AllocTable, env: Env, *, meter: UsageMeter, node: LocalNode, devices: DeviceManager
    ) -> None:
        self._allocs = allocs
        self._env = env
        self._meter = meter
        self._node = node
        self._devices = devices
        self._tasks: dict[str, dict[str, UsageSamples]] = {}
        """The samples of each task, by allocation id."""
        self._host = UsageSamples()
        self._cpu_before = psutil.cpu_times()
        self._interval_s = INTERVAL_S

    async def run(self, *, keeps: bool = True) -> None:
        """Take samples until cancelled; without `keeps` only for the meter, which looks for memory pressure.

        A sample that fails in an unforeseen way is left out, and not those that follow.
        """
        while True:
            await attempted("usage of tasks", self._take(keeps=keeps))
            await self._env.sleep(self._interval_s)

    async def _take(self, *, keeps: bool) -> None:
        tasks = await self.sample(keeps=keeps)
        self._interval_s = max(INTERVAL_S, tasks / TASKS_PER_S)

    async def of_alloc(self, alloc_id: str, task: str) -> AllocUsageHistory:
        """The usage of an allocation's tasks, or of one when `task` is not empty; raises NotFound."""
        alloc = await self._allocs.find(alloc_id)
        if task and task not in [user.name for user in alloc.users]:
            raise NotFound(f'task "{task}" is not in allocation {alloc.id}')
        kept = self._tasks.get(alloc.id, {})
        tasks = {name: series.value() for name, series in kept.items() if task in ("", name)}
        return AllocUsageHistory(interval=self._interval, tasks=tasks)

    def of_host(self) -> HostUsageHistory:
        """The usage of the host."""
        return HostUsageHistory(interval=self._interval, host=self._host.value())

    @property
    def _interval(self) -> int:
        return round(self._interval_s * NANOSECONDS)

    async def sample(self, *, keeps: bool = True) -> int:
        """Take one sample of all tasks and, with `keeps`, of the host; returns the number of sampled tasks."""
        runners = [runner for runner in self._allocs.live.values() if not runner.is_over]
        for alloc_id in self._tasks.keys() - {runner.alloc.id for runner in runners}:
            del self._tasks[alloc_id]
        used = await self._meter.alloc_usages(runners, has_devices=keeps)
        if keeps:
            for alloc_id, usage in used.items():
                self._keep(alloc_id, usage)
            await self._sample_host()
        return sum(len(runner.tasks) for runner in runners)

    def _keep(self, alloc_id: str, usage: AllocResourceUsage) -> None:
        kept = self._tasks.setdefault(alloc_id, {}) if usage.tasks else {}
        for name, task in usage.tasks.items():
            used = task.resource_usage
            kept.setdefault(name, UsageSamples()).add(
                usage.timestamp,
                cpu_mhz=used.cpu_stats.total_ticks,
                memory_bytes=used.memory_stats.rss,
                devices=used.device_stats,
            )

    async def _sample_host(self) -> None:
        before, self._cpu_before = self._cpu_before, psutil.cpu_times()
        node = self._node.value
        mhz = core_mhz(node) * max(node.node_resources.cpu.total_cpu_cores, 1)
        self._host.add(
            self._env.now(),
            cpu_mhz=busy_share(before._asdict(), self._cpu_before._asdict()) * mhz,
            memory_bytes=psutil.virtual_memory().used,
            devices=await self._devices.stats(),
        )


def busy_share(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """The part of the time between two counts in which the processors worked, 0 to 1; guests are counted in `user`."""
    spent = {name: max(0.0, after[name] - before[name]) for name in after if not name.startswith("guest")}
    total = sum(spent.values())
    return 1.0 - (spent["idle"] + spent.get("iowait", 0.0)) / total if total else 0.0
