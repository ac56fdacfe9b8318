"""What tasks claim of cards that are split: places of new instances, instances made by hand, and cards. Pure.

A report has all claims of its time, so a reservation counts until the next report: a task that may still run is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from yurt.sdk.device import MIG, ClaimedDevices, DeviceClaim
from yurt.sdk.value import Value, no_entries

INSTANCE_PREFIX = "MIG-"
TaskKey = tuple[str, str]
"""A task by its allocation and name."""


class MigPlace(NamedTuple):
    """An instance that a claim asks for: its card, its first slice, and the MiB and percent of its profile."""

    card: str
    start: int
    memory_mb: int
    compute: int


class ClaimsNow(Value):
    """The last report and the reservations since; `is_reported` is False before the first report."""

    by_task: Mapping[TaskKey, DeviceClaim] = no_entries()
    is_reported: bool = False

    def reported(self, claims: Iterable[DeviceClaim]) -> ClaimsNow:
        """A new report, which replaces what was known."""
        return ClaimsNow(by_task={key_of(claim): claim for claim in claims}, is_reported=True)

    def reserved(self, claim: DeviceClaim) -> ClaimsNow:
        """With a reservation that is newer than the report."""
        return ClaimsNow(by_task={**self.by_task, key_of(claim): claim}, is_reported=self.is_reported)

    def places(self, *, but: TaskKey | None = None) -> frozenset[MigPlace]:
        """The places of instances that tasks have; `but` leaves out a task."""
        return frozenset(place for each in self._devices(but) for place in places_of(each))

    def split_cards(self) -> frozenset[str]:
        """The cards of which tasks have instances that the plugin creates."""
        return frozenset(place.card for place in self.places())

    def whole_cards(self, *, but: TaskKey | None = None) -> frozenset[str]:
        """Cards that tasks have in another way than by instances; `but` leaves out a task."""
        others = (each for each in self._devices(but) if each.share != MIG)
        return frozenset(device for each in others for device in each.ids if not device.startswith(INSTANCE_PREFIX))

    def instances(self) -> frozenset[str]:
        """The UUIDs of instances that tasks have as devices: instances that were made by hand."""
        ids = (device for each in self._devices(None) for device in each.ids)
        return frozenset(device for device in ids if device.startswith(INSTANCE_PREFIX))

    def _devices(self, but: TaskKey | None) -> Iterator[ClaimedDevices]:
        yield from (each for key, claim in self.by_task.items() if key != but for each in claim.devices)


def key_of(claim: DeviceClaim) -> TaskKey:
    """The task of a claim."""
    return claim.alloc_id, claim.task_name


def places_of(devices: ClaimedDevices) -> list[MigPlace]:
    """The instances that claimed devices ask the plugin for; none for instances made by hand."""
    if devices.share != MIG:
        return []
    pairs = zip(devices.ids, devices.numbers, strict=False)
    return [
        MigPlace(card, int(number), devices.memory_mb, devices.compute)
        for card, number in pairs
        if number.isdigit() and not card.startswith(INSTANCE_PREFIX)
    ]
