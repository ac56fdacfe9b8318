"""Checks of requested devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from yurt.rules.problems import near_hint, nested
from yurt.rules.validation.policies import constraint_problems
from yurt.structs.resources import RequestedDevice

STANCES: Final = ("", "prefer", "require", "ignore")
SHARED: Final = ("mps", "slice")
MIG: Final = "mig"
ONE_INSTANCE: Final = "a process sees one MIG instance only"
FAILURE_POLICIES: Final = ("", "notify", "move")
ALTERNATIVES_MAX: Final = 16


def device_problems(device: RequestedDevice, *, is_alternative: bool = False) -> Iterator[str]:
    """The problems of one device request."""
    if not device.name:
        yield "device name must be given as one of: <type>, <vendor>/<type>, <vendor>/<type>/<name>"
    name = device.name[:64]
    if device.count < 1:
        yield f'device "{name}" must have a count of 1 or more'
    yield from constraint_problems(device.constraints, "Device constraint")
    if device.first_available:
        yield from _alternative_problems(device, is_alternative=is_alternative)
    yield from (f'device "{name}" {problem}' for problem in _share_problems(device))
    if device.on_failure and is_alternative:
        yield f'device "{name}" has on_failure within first_available; write it in the device block itself'
    if device.on_failure not in FAILURE_POLICIES:
        hint = near_hint(device.on_failure, FAILURE_POLICIES)
        yield f'device "{name}" has on_failure = "{device.on_failure[:64]}", which is not one of notify, move{hint}'
    topology = device.topology
    for key, value in (("nvlink", topology.nvlink), ("numa", topology.numa)) if topology is not None else ():
        if value not in STANCES:
            hint = near_hint(value, STANCES)
            yield f'device "{name}" has {key} = "{value[:64]}", which is not one of prefer, require, ignore{hint}'


def mig_problems(devices: Sequence[RequestedDevice]) -> Iterator[str]:
    """A task that requests a MIG instance and another device of that kind: it would see only one of them."""
    requests = [(device, each) for device in devices for each in device.first_available or (device,)]
    for device, each in requests:
        if each.share == MIG:
            others = (other for other, one in requests if other is not device and _may_be_alike(one, each))
            other = next(others, None)
            if other is not None:
                both = f'has share = "mig" together with device "{other.name[:64]}" of the same task'
                yield f'device "{device.name[:64]}" {both}: {ONE_INSTANCE}; ask for them in separate tasks'
                return


def _may_be_alike(one: RequestedDevice, other: RequestedDevice) -> bool:
    """Whether one vendor may have both types of devices; a name without a vendor is of any."""
    (vendor, kind), (of_other, other_kind) = _vendor_and_type(one), _vendor_and_type(other)
    return kind == other_kind and (vendor == of_other or not vendor or not of_other)


def _vendor_and_type(device: RequestedDevice) -> tuple[str, str]:
    """Of `<type>`, `<vendor>/<type>` or `<vendor>/<type>/<name>`; the vendor may be empty."""
    parts = device.name.split("/", 2)
    return ("", parts[0]) if len(parts) == 1 else (parts[0], parts[1])


def _alternative_problems(device: RequestedDevice, *, is_alternative: bool) -> Iterator[str]:
    name = device.name[:64]
    if is_alternative:
        yield f'device "{name}" is an alternative and cannot have alternatives of its own'
        return
    if len(device.first_available) > ALTERNATIVES_MAX:
        yield f'device "{name}" has {len(device.first_available)} alternatives, {ALTERNATIVES_MAX} are possible'
    if device.count > 1 or device.all_of_node or device.share or device.constraints or device.affinities:
        yield f'device "{name}" has alternatives: write its request into each first_available block'
    for other in device.first_available:
        yield from nested(f'Alternative "{other.name[:64]}"', device_problems(other, is_alternative=True))


def _share_problems(device: RequestedDevice) -> Iterator[str]:
    if device.share not in ("", *SHARED, MIG):
        hint = near_hint(device.share, (*SHARED, MIG))
        yield f'has share = "{device.share[:64]}", which is not one of mps, slice, mig{hint}'
    if device.memory_mb < 0:
        yield f"must not ask for negative memory, got {device.memory_mb}"
    if not 0 <= device.compute <= 100:
        yield f"must have a compute between 0 and 100 percent, got {device.compute}"
    if device.share in SHARED and not device.memory_mb:
        yield f'is shared by {device.share}: say how much memory of the device it may use, memory = "8GiB"'
    if device.share == MIG and device.compute:
        yield "asks for a MIG instance, whose compute is fixed by its profile: leave compute out"
    if device.share == MIG and device.count > 1:
        yield (
            f'has share = "mig" and a count of {device.count}: {ONE_INSTANCE}; ask for count = 1, and for more '
            "instances with more tasks or a larger count of the group"
        )
    if not device.share and (device.memory_mb or device.compute):
        yield "limits memory or compute, which only a share has: set share, or constrain ${device.attr.memory}"
    if device.share and device.all_of_node:
        yield 'cannot be shared and count = "all" at once'
