"""The MIG profiles that a device plugin can create on a card, as the attribute `mig_profiles` states them.

A card is divided into memory slices. An instance of a profile takes `size` of them from one of the places in `starts`,
and no two instances overlap. The servers choose profile and place, so that no booking fails on the node; the plugin
creates the instance when a task is about to use it, and destroys it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from yurt.sdk.value import Value

MIG_PROFILES = "mig_profiles"
"""The attribute of a device, and of its group where all are equal, with the text of `profiles_text`."""
SLICES_MAX = 64
PROFILES_MAX = 32


class MigProfile(Value):
    """A kind of instance: `compute` in percent of the card, memory in MiB, the rest in memory slices."""

    name: str
    memory_mb: int
    compute: int
    size: int
    starts: tuple[int, ...]

    def slices(self, start: int) -> int:
        """The slices of an instance as a bit mask."""
        return ((1 << self.size) - 1) << start


def profiles_text(profiles: Iterable[MigProfile]) -> str:
    """Profiles as text: `1g.10gb:9856:14:1:0,1,2;3g.40gb:40448:42:4:0,4`."""
    return ";".join(
        f"{each.name}:{each.memory_mb}:{each.compute}:{each.size}:{','.join(map(str, each.starts))}"
        for each in profiles
    )


@lru_cache(maxsize=256)
def parse_profiles(text: str) -> tuple[MigProfile, ...]:
    """Profiles from their text, smallest first; entries of another form are left out."""
    found = (_profile(entry) for entry in text.split(";")[:PROFILES_MAX])
    profiles = [each for each in found if each is not None]
    return tuple(sorted(profiles, key=lambda each: (each.memory_mb, each.compute, each.size)))


def _profile(entry: str) -> MigProfile | None:
    parts = entry.strip().split(":")
    if len(parts) != 5 or not parts[0]:
        return None
    starts = parts[4].split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in (*parts[1:4], *starts)):
        return None
    memory_mb, compute, size = map(int, parts[1:4])
    places = tuple(sorted(set(map(int, starts))))
    if not 0 < size <= SLICES_MAX or places[-1] > SLICES_MAX or not memory_mb or not 0 < compute <= 100:
        return None
    return MigProfile(name=parts[0], memory_mb=memory_mb, compute=compute, size=size, starts=places)
