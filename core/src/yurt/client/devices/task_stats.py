"""Measures the use of one task's devices, in the form of the API.

All figures of a whole device are the task's. Of a shared device, memory and processes are the task's own, relative to
the memory that it booked, and so is utilization where the plugin reports it by process; else the figure says that it is
the whole card's. Other figures (power, temperature) are the whole card's, because they cannot be divided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping

from yurt.client.devices.claims import claim_of
from yurt.client.devices.holders import HoldingTask
from yurt.client.devices.manager import DeviceManager
from yurt.client.devices.process_owners import LiveTask, ProcessOwners
from yurt.client.devices.readings import reading_of
from yurt.client.devices.wire import group_stats
from yurt.sdk.device import (
    GPU_UTILIZATION,
    MEMORY_UTILIZATION,
    SM_UTILIZATION,
    WHOLE,
    DeviceClaim,
    DeviceProcess,
    DeviceUse,
    Stat,
)
from yurt.sdk.value import replace
from yurt.structs.rpc import DeviceGroupStats

MIB = 1024 * 1024
OWN = "the task's processes"
WHOLE_CARD = "of the whole card, which others may share"
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
        for device in devices.ids if devices.share != WHOLE else ():
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
            stats = {**use.stats, **dict(_utilization(use, own)), "Task memory": memory}
            found[device] = replace(use, summary=memory, stats=stats, processes=own)
    return found


def is_attributed(use: DeviceUse) -> bool:
    """Whether a plugin reports the utilization of a card by process; a card that does nothing is nobody's load."""
    if not use.processes:
        return reading_of(use).active_percent == 0
    return all(each.busy_percent is not None for each in use.processes)


def _utilization(use: DeviceUse, own: Iterable[DeviceProcess]) -> Iterator[tuple[str, Stat]]:
    """The utilization of a shared card by these processes, or the card's with a note that it is."""
    if not is_attributed(use):
        for name in (GPU_UTILIZATION, SM_UTILIZATION, MEMORY_UTILIZATION):
            if (stat := use.stats.get(name)) is not None:
                yield name, replace(stat, description=f"{stat.description}; {WHOLE_CARD}")
        return
    mine = tuple(own)
    busy = sum(each.busy_percent or 0.0 for each in mine)
    moved = sum(each.memory_percent or 0.0 for each in mine)
    yield (
        GPU_UTILIZATION,
        Stat(value=min(100.0, busy), unit="%", description=f"Percent of time in which {OWN} computed"),
    )
    for name, part, whole in (
        (SM_UTILIZATION, busy, sum(each.busy_percent or 0.0 for each in use.processes)),
        (MEMORY_UTILIZATION, moved, sum(each.memory_percent or 0.0 for each in use.processes)),
    ):
        stat = use.stats.get(name)
        if stat is not None and not isinstance(stat.value, bool | str):
            # The card's figure is divided by the times of its processes.
            value = stat.value * part / whole if whole else 0.0
            yield name, replace(stat, value=value, description=f"{stat.description}; the part of {OWN}")
