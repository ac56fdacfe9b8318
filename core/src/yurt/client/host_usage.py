"""Measures CPU, memory, disks and devices of the host, in the form of the API."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from typing import Any, Final

import psutil

from yurt.client.devices.manager import DeviceManager
from yurt.client.node.local_node import LocalNode
from yurt.runtime.env import Env
from yurt.sdk.value import NANOSECONDS, replace
from yurt.structs.node import Node
from yurt.structs.rpc import HostStats

CPU_SAMPLE_S = 0.1
"""The time over which CPU usage is measured while the caller waits."""


class HostUsage:
    """Measures the host of one client."""

    def __init__(self, alloc_dir: str, env: Env, *, node: LocalNode, devices: DeviceManager) -> None:
        self.alloc_dir = alloc_dir
        self._env = env
        self._node = node
        self._devices = devices

    async def stats(self) -> HostStats:
        """Usage of CPU, memory, disks and devices; takes CPU_SAMPLE_S."""
        before = psutil.cpu_times(percpu=True)
        await self._env.sleep(CPU_SAMPLE_S)
        cores = core_usage(before, core_mhz(self._node.value))
        found = await asyncio.to_thread(measured, self.alloc_dir, self._env, cores)
        return replace(found, device_stats=await self._devices.stats())


def core_mhz(node: Node) -> float:
    """The speed of one core of the node."""
    cpu = node.node_resources.cpu
    return cpu.cpu_shares / max(cpu.total_cpu_cores, 1)


def measured(alloc_dir: str, env: Env, cores: tuple[Mapping[str, Any], ...]) -> HostStats:
    """Memory, disks and the given usage of the cores; blocking."""
    memory = psutil.virtual_memory()
    now = env.now()
    return HostStats(
        memory={
            "Total": memory.total,
            "Available": memory.available,
            "Used": memory.used,
            "Free": memory.free,
        },
        cpu=cores,
        disk_stats=tuple(_disk(part.device, part.mountpoint) for part in _partitions()),
        alloc_dir_stats=_disk("", alloc_dir),
        uptime=int(now / NANOSECONDS - psutil.boot_time()),
        timestamp=now,
        cpu_ticks_consumed=sum(core["TotalTicks"] for core in cores),
    )


def core_usage(before: list[Any], mhz: float) -> tuple[Mapping[str, Any], ...]:
    """For each core, the percentages of time in each CPU mode since `before`, and the MHz used.

    Not by `psutil.cpu_times_percent`, which counts a sample of less than a second as a whole one.
    """
    after = psutil.cpu_times(percpu=True)
    return tuple(_usage(index, *pair, mhz) for index, pair in enumerate(zip(before, after, strict=False)))


def _usage(index: int, before: Any, after: Any, mhz: float) -> Mapping[str, Any]:
    spent = {name: max(0.0, getattr(after, name) - getattr(before, name)) for name in after._fields}
    for name, part in (("user", "guest"), ("nice", "guest_nice")):  # the kernel counts guests in both
        spent[name] = max(0.0, spent.get(name, 0.0) - spent.pop(part, 0.0))
    total = sum(spent.values())
    percent = {name: 100.0 * value / total for name, value in spent.items()} if total else {"idle": 100.0}
    busy = 100.0 - percent["idle"] - percent.get("iowait", 0.0)
    return {
        "CPU": f"cpu{index}",
        "User": percent.get("user", 0.0) + percent.get("nice", 0.0),
        "System": percent.get("system", 0.0),
        "Idle": percent["idle"],
        "TotalPercent": busy,
        "TotalTicks": busy / 100.0 * mhz,
    }


def _partitions() -> list[Any]:
    return list(psutil.disk_partitions(all=False))


_DISK_FIGURES: Final = ("Size", "Used", "Available", "UsedPercent", "InodesUsedPercent")


def _disk(device: str, mount_point: str) -> Mapping[str, Any]:
    """Space and inodes of one file system; zeros when it cannot be read."""
    try:
        space, inodes = shutil.disk_usage(mount_point), os.statvfs(mount_point)
    except OSError:
        return {"Device": device, "Mountpoint": mount_point} | dict.fromkeys(_DISK_FIGURES, 0)
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
