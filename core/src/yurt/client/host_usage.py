"""Measures CPU, memory, disks and devices of the host, in the form of the API."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping
from typing import Any

import psutil

from yurt.client.devices.manager import DeviceManager
from yurt.client.node.local_node import LocalNode
from yurt.runtime.env import Env
from yurt.sdk.value import NANOSECONDS, replace
from yurt.structs.node import Node
from yurt.structs.rpc import HostStats

CPU_SAMPLE_S = 0.1
"""How long CPU usage is measured, while the caller waits."""


class HostUsage:
    """Measures the host of one client."""

    def __init__(self, alloc_dir: str, env: Env, *, node: LocalNode, devices: DeviceManager) -> None:
        self._alloc_dir = alloc_dir
        self._env = env
        self._node = node
        self._devices = devices

    async def stats(self) -> HostStats:
        """Usage of CPU, memory, disks and devices; takes CPU_SAMPLE_S."""
        found = await asyncio.to_thread(_measured, self._alloc_dir, self._env, core_mhz(self._node.value))
        return replace(found, device_stats=await self._devices.stats())


def core_mhz(node: Node) -> float:
    """The speed of one core of the node."""
    cpu = node.node_resources.cpu
    return cpu.cpu_shares / max(cpu.total_cpu_cores, 1)


def _measured(alloc_dir: str, env: Env, mhz: float) -> HostStats:
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
        alloc_dir_stats=_disk("", alloc_dir),
        uptime=int(now / NANOSECONDS - psutil.boot_time()),
        timestamp=now,
        cpu_ticks_consumed=busy / 100.0 * mhz,
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
