"""Bookings of devices: whole ones and shares.

A device is held whole by one, or shared in one mode by several. Shares add up to no more than the device has: memory
without what its driver keeps, and 100 percent of its compute. Each share is an instance of its own, with the id
`<device>::<number>`, and no two of a device have the same number. A share of mode `mig` is an instance that takes
certain slices of the device, from the one with its number on (`partitions`).
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from yurt.scheduler.devices.attributes import number_of, text_of
from yurt.sdk.device import SHARE_MARK
from yurt.sdk.value import replace
from yurt.state.namespace_usage import MILLI
from yurt.state.usage import share_of
from yurt.structs.node import NodeDevice, NodeDeviceResource

COMPUTE_MAX = 100
MIB = 1 << 20
SHARES_MAX = 48
"""The maximum number of shares of one device; a device's driver serves no more programs at once."""


class Share(msgspec.Struct, frozen=True):
    """The amounts booked by one share."""

    number: str
    mode: str
    memory_mb: int
    compute: int


class Booked(msgspec.Struct, frozen=True):
    """The bookings of one device."""

    is_whole: bool = False
    shares: tuple[Share, ...] = ()

    @property
    def is_free(self) -> bool:
        """Whether the device has no bookings."""
        return not self.is_whole and not self.shares

    @property
    def memory_mb(self) -> int:
        """MiB booked by shares."""
        return sum(share.memory_mb for share in self.shares)

    @property
    def compute(self) -> int:
        """Percent booked by shares."""
        return sum(share.compute for share in self.shares)

    @property
    def modes(self) -> set[str]:
        """The sharing modes in use: one or none."""
        return {share.mode for share in self.shares}

    def next_number(self) -> str:
        """An unused share number of the device."""
        used_numbers = {share.number for share in self.shares}
        # Of n + 1 numbers at most n are in use: one is always free.
        return next(text for number in range(len(used_numbers) + 1) if (text := str(number)) not in used_numbers)


NOTHING = Booked()


def instance_key(kind: NodeDeviceResource, instance: str) -> str:
    """The key of a whole instance in the exclusive resources."""
    return f"{kind.vendor}/{kind.type}/{kind.name}/{instance}"


def bookings(in_use: Iterable[str]) -> dict[str, Booked]:
    """The bookings by device key."""
    by_device: dict[str, Booked] = {}
    for key in in_use:
        device, share = parted(key)
        booked = by_device.get(device, NOTHING)
        by_device[device] = (
            replace(booked, is_whole=True) if share is None else replace(booked, shares=(*booked.shares, share))
        )
    return by_device


def parted(key: str) -> tuple[str, Share | None]:
    """The device of a key, and its share if it is one."""
    share = share_of(key)
    device, mark, number = share.instance.rpartition(SHARE_MARK) if share is not None else ("", "", "")
    if share is None or not mark:
        return key, None
    return device, Share(number, share.mode, share.memory_mb, share.compute)


def capacity_mb(kind: NodeDeviceResource, instance: NodeDevice) -> int:
    """Bookable MiB of a device; 0 when unknown."""
    total, reserved = (number_of(kind, instance, name) for name in ("memory", "memory_reserved"))
    return max(0, int(((total or 0.0) - (reserved or 0.0)) // MIB))


def part_milli(kind: NodeDeviceResource, instance: NodeDevice, memory_mb: int, compute: int) -> int:
    """The part of a device that a share counts as, in thousandths: its dominant share, rounded up; 0 when unknown.

    The whole memory counts, also what the driver keeps: so shares that fit together add up to one device at most.
    """
    total_mb = int((number_of(kind, instance, "memory") or 0.0) // MIB)
    of_memory = -(-memory_mb * MILLI // total_mb) if total_mb else 0
    return min(MILLI, max(of_memory, compute * MILLI // COMPUTE_MAX))


def modes_of(kind: NodeDeviceResource, instance: NodeDevice) -> frozenset[str]:
    """The sharing modes of a device."""
    return frozenset(part.strip() for part in (text_of(kind, instance, "sharing") or "").split(",") if part.strip())
