"""The gauges of a client: its allocations, its host and its tasks, under Nomad's names.

Measurements are reused for `KEPT_S`, so that several readers cost no more than one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec
import psutil

from yurt.client.allocations.alloc_runner import AllocRunner
from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.allocations.usage import UsageMeter
from yurt.client.context import ClientContext
from yurt.client.host_usage import HostUsage, core_mhz, core_usage, measured
from yurt.client.node.local_node import LocalNode
from yurt.runtime.metrics import CLIENT_PREFIX, Gauge
from yurt.structs.accounting.devices import DeviceAccounting
from yurt.structs.job import Job
from yurt.structs.rpc import AllocResourceUsage, HostStats, ResourceUsage
from yurt.structs.status import CLIENT_TERMINAL

KEPT_S: Final = 0.5
"""The time for which measurements are reused."""
MIB: Final = 1024 * 1024
DEVICE_ALLOCS_MAX: Final = 256
"""The largest number of allocations with gauges of their cards."""


class GaugeSettings(msgspec.Struct, frozen=True):
    """The metrics that the operator has configured."""

    node: bool = False
    allocations: bool = False
    meta_labels: Callable[[Mapping[str, str]], dict[str, str]] = lambda _: {}
    """The labels of a job's metadata."""


class ClientGauges:
    """Gauges and counters of one client."""

    def __init__(
        self,
        allocs: AllocTable,
        context: ClientContext,
        *,
        node: LocalNode,
        usage: HostUsage,
        meter: UsageMeter,
        status: Callable[[], str],
    ) -> None:
        """`status` gives the node's status at the servers; the node describes itself as it is before it registers."""
        self.metrics = context.metrics
        self._allocs = allocs
        self._env = context.env
        self._activity = context.activity
        self._node = node
        self._status = status
        self._usage = usage
        self._meter = meter
        self._cpu_before = psutil.cpu_times(percpu=True)
        self._measured_at = float("-inf")
        self._kept: tuple[GaugeSettings, list[Gauge]] = (GaugeSettings(), [])

    def labels(self) -> dict[str, str]:
        """Labels of the node's gauges."""
        node = self._node.value
        return {
            "node_id": node.id,
            "datacenter": node.datacenter,
            "node_class": node.node_class or "none",
            "node_pool": node.node_pool,
            "node_scheduling_eligibility": node.scheduling_eligibility,
            "node_status": self._status(),
        }

    async def gauges(self, requested: GaugeSettings) -> list[Gauge]:
        """The current gauges; the same ones within `KEPT_S`."""
        now = self._env.monotonic()
        if now - self._measured_at < KEPT_S and self._kept[0] == requested:
            return self._kept[1]
        self._measured_at = now
        found = list(self._counted())
        if requested.node:
            before, self._cpu_before = self._cpu_before, psutil.cpu_times(percpu=True)
            mhz = core_mhz(self._node.value)
            cores = core_usage(before, mhz)
            host = await self._env.in_thread(measured, self._usage.alloc_dir, self._env, cores)
            found += [*self._resources(), *self._host(host)]
        if requested.allocations:
            runners = tuple(self._allocs.live.values())
            used = await self._meter.alloc_usages(runners)
            found += [each for runner in runners for each in self._tasks_of(runner, used[runner.alloc.id], requested)]
            found += self._activity_gauges(requested)
        self._kept = (requested, found)
        return found

    def _counted(self) -> Iterator[Gauge]:
        """Allocations and tasks by state."""
        labels, live = self.labels(), tuple(self._allocs.live.values())
        states = Counter(runner.alloc.client_status for runner in live if not runner.is_over)
        waiting = sum(bool(runner.alloc.previous_allocation) and not runner.states for runner in live)
        counts = {
            "allocations.blocked": waiting,
            "allocations.pending": states["pending"],
            "allocations.running": states["running"],
            "allocations.terminal": sum(1 for _ in self._allocs.over()),
        }
        tasks = Counter(state.state for runner in live for state in runner.states.values())
        counts |= {f"tasks.{state}": tasks[state] for state in ("pending", "running", "dead")}
        return (_gauge(name, count, labels) for name, count in counts.items())

    def _resources(self) -> Iterator[Gauge]:
        """The allocated and free resources of the node."""
        labels, node = self.labels(), self._node.value
        cpu = memory = disk = 0
        for runner in self._allocs.live.values():
            if runner.is_over or runner.alloc.client_status in CLIENT_TERMINAL:
                continue
            resources = runner.alloc.allocated_resources
            cpu += sum(task.cpu.cpu_shares for task in resources.tasks.values())
            memory += sum(task.memory.memory_mb for task in resources.tasks.values())
            disk += resources.shared.disk_mb
        all_, kept = node.node_resources, node.reserved_resources
        for name, used, whole in (
            ("cpu", cpu, all_.cpu.cpu_shares - kept.cpu.cpu_shares),
            ("memory", memory, all_.memory.memory_mb - kept.memory.memory_mb),
            ("disk", disk, all_.disk.disk_mb - kept.disk.disk_mb),
        ):
            yield _gauge(f"allocated.{name}", used, labels)
            yield _gauge(f"unallocated.{name}", whole - used, labels)

    def _host(self, host: HostStats) -> Iterator[Gauge]:
        labels = self.labels()
        for key in ("Available", "Free", "Total", "Used"):
            yield _gauge(f"host.memory.{key.lower()}", host.memory[key], labels)
        for core in host.cpu:
            own = {**labels, "cpu": core["CPU"]}
            for key, name in _CORE.items():
                yield _gauge(f"host.cpu.{name}", core[key], own)
        for disk in host.disk_stats:
            own = {**labels, "disk": disk["Device"]}
            for key, name in _DISK.items():
                yield _gauge(f"host.disk.{name}", disk.get(key, 0.0), own)
        yield _gauge("uptime", host.uptime, labels)

    def _activity_gauges(self, requested: GaugeSettings) -> Iterator[Gauge]:
        """The use of running allocations' cards, for the oldest `DEVICE_ALLOCS_MAX` allocations."""
        measured = ((runner, self._activity.totals(runner.id)) for runner in tuple(self._allocs.live.values()))
        running = ((runner.alloc, totals) for runner, totals in measured if totals is not None and not runner.is_over)
        for alloc, totals in islice(running, DEVICE_ALLOCS_MAX):
            own = {
                "alloc_id": alloc.id,
                "job": alloc.job_id,
                "namespace": alloc.namespace,
                "task_group": alloc.task_group,
                **dispatch_labels(alloc.job),
            }
            labels = {**own, **requested.meta_labels(alloc.job.meta if alloc.job is not None else {}), **own}
            for name, value in activity_figures(totals):
                yield _gauge(f"allocs.gpu.{name}", value, labels)

    def _tasks_of(self, runner: AllocRunner, usage: AllocResourceUsage, requested: GaugeSettings) -> list[Gauge]:
        """The usage of an allocation's running tasks."""
        alloc = runner.alloc
        found: list[Gauge] = []
        for name, task in usage.tasks.items():
            own = {
                "alloc_id": alloc.id,
                "job": alloc.job_id,
                "namespace": alloc.namespace,
                "task": name,
                "task_group": alloc.task_group,
                **dispatch_labels(alloc.job),
            }
            # A job's metadata takes no label away from its allocation: two tasks would have the same ones.
            labels = {**own, **requested.meta_labels(alloc.job.meta if alloc.job is not None else {}), **own}
            given = alloc.allocated_resources.tasks.get(name)
            if given is not None:
                found.append(_gauge("allocs.cpu.allocated", given.cpu.cpu_shares, labels))
                found.append(_gauge("allocs.memory.allocated", given.memory.memory_mb * MIB, labels))
                found.append(_gauge("allocs.memory.max_allocated", given.memory.memory_max_mb * MIB, labels))
            found += _used(task.resource_usage, labels)
        return found


_CORE: Final = {
    "Idle": "idle",
    "System": "system",
    "User": "user",
    "TotalPercent": "total_percent",
    "TotalTicks": "total_ticks",
}
_DISK: Final = {
    "Available": "available",
    "Size": "size",
    "Used": "used",
    "UsedPercent": "used_percent",
    "InodesUsedPercent": "inodes_percent",
}


def activity_figures(totals: DeviceAccounting) -> Iterator[tuple[str, float]]:
    """Sums since the allocation's start, in card-seconds unless the name says otherwise."""
    yield "seconds", totals.card_ms / 1000
    yield "measured_seconds", totals.measured_ms / 1000
    yield "busy_seconds", totals.busy_ms / 1000
    yield "idle_seconds", totals.idle_ms / 1000
    yield "throttled_seconds", totals.throttled_ms / 1000
    yield "energy_joules", totals.energy_mj / 1000
    yield "memory_booked_bytes", totals.memory_booked_mb * MIB
    yield "memory_peak_bytes", totals.memory_peak_mb * MIB
    yield "memory_mean_bytes", totals.memory_mean_mb * MIB
    yield "pcie_bytes", totals.pcie_bytes
    yield "nvlink_bytes", totals.nvlink_bytes


def dispatch_labels(job: Job | None) -> dict[str, str]:
    """The labels of a dispatched or periodic job: its parent, and the id of its dispatch or launch."""
    if job is None or not job.parent_id:
        return {}
    name, _, number = job.id.rpartition("/")[2].partition("-")
    own = {f"{name}_id": number} if name in ("dispatch", "periodic") else {}
    return {"parent_id": job.parent_id, **own}


def _used(usage: ResourceUsage, labels: Mapping[str, str]) -> Iterator[Gauge]:
    memory, cpu = usage.memory_stats, usage.cpu_stats
    yield _gauge("allocs.memory.rss", memory.rss, labels)
    yield _gauge("allocs.memory.swap", memory.swap, labels)
    yield _gauge("allocs.memory.usage", memory.usage, labels)
    yield _gauge("allocs.cpu.system", cpu.system_mode, labels)
    yield _gauge("allocs.cpu.user", cpu.user_mode, labels)
    yield _gauge("allocs.cpu.total_percent", cpu.percent, labels)
    yield _gauge("allocs.cpu.total_ticks", cpu.total_ticks, labels)


def _gauge(name: str, value: float, labels: Mapping[str, str]) -> Gauge:
    return Gauge(CLIENT_PREFIX + name, float(value), labels)
