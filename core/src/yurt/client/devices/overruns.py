"""Finds tasks that use more of a shared device than they booked. Pure.

Only shares of the mode `slice` are checked: no hardware enforces them, so that a task that uses more takes it from its
neighbours. Memory is counted by process as the device's driver reports it; processes that belong to no task are left
out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from yurt.client.devices.wire import group_name, key_of
from yurt.sdk.device import SLICE, ClaimedDevices, DeviceClaim, DeviceUse
from yurt.sdk.value import Value

MIB = 1024 * 1024
GIB = 1024 * MIB
OwnerOf = Callable[[int], tuple[str, str] | None]
"""Returns the allocation id and the task name that own a process, or None."""


class Overrun(Value):
    """A task that uses more memory of a device than it booked, both in bytes."""

    alloc_id: str
    task_name: str
    device: str
    used_bytes: int
    booked_bytes: int

    @property
    def text(self) -> str:
        """The text of the task event: `used 23.1 of 20 GiB`."""
        used, booked = amount(self.used_bytes), amount(self.booked_bytes)
        short = used.removesuffix(" GiB") if booked.endswith(" GiB") and used.endswith(" GiB") else used
        return f"Memory of device {self.device}: used {short} of {booked}; the task is stopped to spare its neighbours"


def amount(size: int) -> str:
    """Bytes with at most one decimal: 23.1 GiB, 20 GiB, 512 MiB."""
    unit, name = (GIB, "GiB") if size >= GIB else (MIB, "MiB")
    tenths = (size * 10 + unit - 1) // unit
    return f"{tenths // 10} {name}" if tenths % 10 == 0 else f"{tenths / 10:.1f} {name}"


def has_slices(claims: Iterable[DeviceClaim]) -> bool:
    """Whether one of the claims has a share that only this check enforces."""
    return any(devices.share == SLICE and devices.memory_mb for claim in claims for devices in claim.devices)


def find_overruns(claims: Iterable[DeviceClaim], uses: Mapping[str, DeviceUse], owner_of: OwnerOf) -> Iterator[Overrun]:
    """Every task over its booking, device by device."""
    used: Counter[tuple[str, str, str]] = Counter()
    for device, use in uses.items():
        for process in use.processes:
            owner = owner_of(process.pid)
            if owner is not None:
                used[(*owner, device)] += process.memory_bytes
    for claim in claims:
        for device, (booked, name) in booked_bytes(claim.devices).items():
            taken = used[claim.alloc_id, claim.task_name, device]
            if taken > booked:
                yield Overrun(
                    alloc_id=claim.alloc_id,
                    task_name=claim.task_name,
                    device=f"{name}/{device}",
                    used_bytes=taken,
                    booked_bytes=booked,
                )


def booked_bytes(claimed: Iterable[ClaimedDevices]) -> dict[str, tuple[int, str]]:
    """Memory in bytes that a task booked of each shared device, with the name of the device's group."""
    found: dict[str, tuple[int, str]] = {}
    for devices in claimed:
        if devices.share == SLICE and devices.memory_mb:
            for device in devices.ids:
                before = found.get(device, (0, ""))[0]
                found[device] = (before + devices.memory_mb * MIB, group_name(key_of(devices)))
    return found
