"""MIG instances that do not exist yet: their profile and their place on a card that its node may split. Pure.

A booking of one is a share of the card: mode `mig`, the profile's memory and compute, and as its number the place at
which the instance begins. So bookings alone decide whether another instance fits, whatever has been created so far.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from yurt.scheduler.devices.attributes import text_of
from yurt.scheduler.devices.bookings import Booked, Share, modes_of
from yurt.sdk.device import MIG
from yurt.sdk.mig import MIG_PROFILES, MigProfile, parse_profiles
from yurt.sdk.value import replace
from yurt.structs.node import NodeDevice, NodeDeviceResource

PLACES_MAX: Final = 4096


def profiles_of(kind: NodeDeviceResource, instance: NodeDevice) -> tuple[MigProfile, ...]:
    """The profiles that may be created on a device, smallest first; none where its node does not split it."""
    text = text_of(kind, instance, MIG_PROFILES)
    return parse_profiles(text) if text and MIG in modes_of(kind, instance) else ()


def booked_slices(profiles: Iterable[MigProfile], booked: Booked) -> int | None:
    """The slices in use as a bit mask; None where a booking is none of these profiles or overlaps another."""
    slices = 0
    for share in booked.shares:
        profile = _profile_of(profiles, share)
        if profile is None or slices & profile.slices(int(share.number)):
            return None
        slices |= profile.slices(int(share.number))
    return slices


def _profile_of(profiles: Iterable[MigProfile], share: Share) -> MigProfile | None:
    if share.mode != MIG or not share.number.isdigit():
        return None
    amounts = (share.memory_mb, share.compute)
    start = int(share.number)
    return next((p for p in profiles if (p.memory_mb, p.compute) == amounts and start in p.starts), None)


def best_start(profiles: Sequence[MigProfile], profile: MigProfile, booked: Booked) -> int | None:
    """The place that leaves the most places for other instances, large ones counted more; None without one."""
    if booked.is_whole:
        return None
    booked_mask = booked_slices(profiles, booked)
    if booked_mask is None or booked.compute + profile.compute > 100:
        return None
    free = [start for start in profile.starts if not booked_mask & profile.slices(start)]
    return max(
        free, key=lambda start: (_remaining(profiles, booked_mask | profile.slices(start)), -start), default=None
    )


@lru_cache(maxsize=PLACES_MAX)
def number_of_places(profiles: tuple[MigProfile, ...], memory_mb: int, booked: Booked) -> int:
    """The number of instances with at least this memory that fit on a card, placed as allocations come: the smallest
    profile first, each at its best place."""
    number = 0
    for profile in profiles:
        while profile.memory_mb >= memory_mb and (start := best_start(profiles, profile, booked)) is not None:
            booked = replace(booked, shares=(*booked.shares, share_at(profile, start)))
            number += 1
    return number


def _remaining(profiles: Iterable[MigProfile], booked_mask: int) -> int:
    return sum(p.size * sum(not booked_mask & p.slices(start) for start in p.starts) for p in profiles)


def share_at(profile: MigProfile, start: int) -> Share:
    """The booking of an instance at a place."""
    return Share(str(start), MIG, profile.memory_mb, profile.compute)
