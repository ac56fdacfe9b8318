"""Use of allocations and of the host, in the shape of the API."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import psutil

from yurt.client.allocations.alloc_runner import AllocRunner
from yurt.client.allocations.alloc_table import EndedAlloc
from yurt.client.config import ClientConfig
from yurt.client.devices.manager import DeviceManager
from yurt.client.devices.usage import task_device_stats
from yurt.client.tasks.task_runner import TaskRunner
from yurt.lifecycle.task import RUNNING
from yurt.runtime.env import Env
from yurt.sdk.driver import TaskStats
from yurt.sdk.errors import NotFound, YurtError
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.structs.node import Node
from yurt.structs.rpc import (
    AllocResourceUsage,
    CpuStats,
    HostStats,
    MemoryStats,
    ResourceUsage,
    TaskResourceUsage,
)

CPU_SAMPLE_S = 0.1
"""Over how long the host's use of CPU is measured, while the caller waits."""
MEASURED_MEMORY = ("RSS", "Swap")
MEASURED_CPU = ("System Mode", "User Mode", "Percent")


class UsageMeter:
    """Remembers each task's last sample, because percent of CPU is a difference of two."""

    def __init__(self, env: Env, devices: DeviceManager) -> None:
        self._env = env
        self._devices = devices
        self._last: WeakKeyDictionary[TaskRunner, tuple[int, TaskStats]] = WeakKeyDictionary()

    async def alloc_usage(self, alloc: AllocRunner | EndedAlloc, task: str, node: Node) -> AllocResourceUsage:
        """Use of an allocation's running tasks; of one when `task` is not empty."""
        if task and task not in [user.name for user in alloc.users]:
            raise NotFound(f'task "{task}" is not in allocation {alloc.id}')
        tasks = alloc.tasks if isinstance(alloc, AllocRunner) else {}
        chosen = [each for name, each in tasks.items() if task in ("", name)]
        used: dict[str, TaskResourceUsage] = {}
        for each in chosen:
            usage = await self._task_usage(each, node)
            if usage is not None:
                used[each.name] = usage
        return AllocResourceUsage(
            resource_usage=_sum([usage.resource_usage for usage in used.values()]),
            tasks=used,
            timestamp=self._env.now(),
        )

    async def _task_usage(self, runner: TaskRunner, node: Node) -> TaskResourceUsage | None:
        driver = runner.driver
        if runner.machine.phase != RUNNING or driver is None:
            return None
        run = runner.machine.run
        try:
            sample = await driver.task_stats(runner.task_id(run))
        except YurtError:
            return None
        of_run, before = self._last.get(runner, (run, TaskStats(at=UnixNano(runner.machine.state.started_at))))
        if of_run != run:
            before = TaskStats(at=UnixNano(runner.machine.state.started_at))
        self._last[runner] = (run, sample)
        usage = _usage(before, sample, _core_mhz(node))
        used = replace(usage, device_stats=await task_device_stats(self._devices, runner))
        return TaskResourceUsage(resource_usage=used, timestamp=sample.at)


def _core_mhz(node: Node) -> float:
    cpu = node.node_resources.cpu
    return cpu.cpu_shares / max(cpu.total_cpu_cores, 1)


def _usage(before: TaskStats, now: TaskStats, core_mhz: float) -> ResourceUsage:
    elapsed = max(now.at - before.at, 1)
    user = 100.0 * max(now.cpu_user_ns - before.cpu_user_ns, 0) / elapsed
    system = 100.0 * max(now.cpu_system_ns - before.cpu_system_ns, 0) / elapsed
    return ResourceUsage(
        memory_stats=MemoryStats(rss=now.rss_bytes, swap=now.swap_bytes, usage=now.rss_bytes, measured=MEASURED_MEMORY),
        cpu_stats=CpuStats(
            user_mode=user,
            system_mode=system,
            percent=user + system,
            total_ticks=(user + system) / 100.0 * core_mhz,
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


async def host_usage(config: ClientConfig, env: Env, node: Node, devices: DeviceManager) -> HostStats:
    """Use of the host."""
    found = await asyncio.to_thread(_host_usage, config, env, _core_mhz(node))
    return replace(found, device_stats=await devices.stats())


def _host_usage(config: ClientConfig, env: Env, core_mhz: float) -> HostStats:
    memory = psutil.virtual_memory()
    cores = psutil.cpu_times_percent(interval=CPU_SAMPLE_S, percpu=True)
    busy = sum(100.0 - core.idle for core in cores)
    now = env.now()
    return HostStats(
        memory={
            "Total": memory.total,
            "Available": memory.available,
            "Used": memory.used,
            "Free": memory.free,
        },
        cpu=tuple(
            {
                "CPU": f"cpu{index}",
                "User": core.user + getattr(core, "nice", 0.0),
                "System": core.system,
                "Idle": core.idle,
            }
            for index, core in enumerate(cores)
        ),
        disk_stats=tuple(_disk(part.device, part.mountpoint) for part in _partitions()),
        alloc_dir_stats=_disk("", config.alloc_dir),
        uptime=int(now / NANOSECONDS - psutil.boot_time()),
        timestamp=now,
        cpu_ticks_consumed=busy / 100.0 * core_mhz,
    )


def _partitions() -> list[Any]:
    return list(psutil.disk_partitions(all=False))


def _disk(device: str, mount_point: str) -> Mapping[str, Any]:
    """Space and inodes of one file system; zeros when it cannot be read."""
    try:
        space, inodes = shutil.disk_usage(mount_point), os.statvfs(mount_point)
    except OSError:
        return {"Device": device, "Mountpoint": mount_point, "Size": 0, "Used": 0, "Available": 0}
    used_inodes = 100.0 * (inodes.f_files - inodes.f_ffree) / inodes.f_files if inodes.f_files else 0.0
    return {
        "Device": device,
        "Mountpoint": mount_point,
        "Size": space.total,
        "Used": space.used,
        "Available": space.free,
        "UsedPercent": 100.0 * space.used / space.total if space.total else 0.0,
        "InodesUsedPercent": used_inodes,
    }


def disk_used_percent(path: str) -> tuple[float, float]:
    """Percent of space and of inodes in use; blocking."""
    found = _disk("", path)
    return float(found.get("UsedPercent", 0.0)), float(found.get("InodesUsedPercent", 0.0))
