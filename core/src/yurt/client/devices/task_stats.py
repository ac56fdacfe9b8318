"""Measures the use of one task's devices, in the form of the API.

All figures of a whole device are the task's. Of a shared device, memory and processes are the task's own, relative to
the memory that it booked; other figures (power, utilization) are the whole card's, because they cannot be divided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from yurt.client.devices.claims import claim_of
from yurt.client.devices.holders import HoldingTask
from yurt.client.devices.manager import DeviceManager
from yurt.client.devices.process_owners import LiveTask, ProcessOwners
from yurt.client.devices.wire import group_stats
from yurt.sdk.device import MIG, WHOLE, DeviceClaim, DeviceUse, Stat
from yurt.sdk.value import replace
from yurt.structs.rpc import DeviceGroupStats

MIB = 1024 * 1024
OWN_MEMORY = "Memory of the task's processes / memory that it booked"


async def task_device_stats(manager: DeviceManager, runner: HoldingTask) -> tuple[DeviceGroupStats, ...]:
    """Usage of the devices assigned to a task."""
    claim = claim_of(runner.alloc, runner.name)
    if not claim.devices:
        return ()
    uses = dict(await manager.uses())
    booked = booked_mb(claim)
    if booked and runner.handle is not None:
        task = LiveTask(
            alloc_id=runner.alloc.id, task_name=runner.name, task_id=runner.handle.task_id, pid=runner.handle.pid
        )
        uses |= await asyncio.to_thread(own_uses, task, booked, uses)
    found = (group_stats(group, uses, claim.ids) for group in manager.groups)
    return tuple(each for each in found if each is not None)


def booked_mb(claim: DeviceClaim) -> dict[str, int]:
    """Memory in MiB that a task booked of each card that it shares."""
    found: dict[str, int] = {}
    for devices in claim.devices:
        for device in devices.ids if devices.share not in (WHOLE, MIG) else ():
            found[device] = found.get(device, 0) + devices.memory_mb
    return found


def own_uses(task: LiveTask, booked: Mapping[str, int], uses: Mapping[str, DeviceUse]) -> dict[str, DeviceUse]:
    """Usage of the `booked` shared devices by one task; reads /proc."""
    owners = ProcessOwners((task,))
    found = {}
    for device, booked_of in booked.items():
        use = uses.get(device)
        if use is not None:
            own = tuple(each for each in use.processes if owners.task_of(each.pid) is not None)
            taken = sum(each.memory_bytes for each in own) // MIB
            memory = Stat(value=taken, of=booked_of, unit="MiB", description=OWN_MEMORY)
            found[device] = replace(use, summary=memory, stats={**use.stats, "Task memory": memory}, processes=own)
    return found
