"""Seeded damage to files as disks and people cause it, at every region of a file."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from yurt.sdk.value import Value

FLIP, ZERO, TRUNCATE, REMOVE = "flip", "zero", "truncate", "remove"
KINDS: Final = (FLIP, ZERO, TRUNCATE, REMOVE)
REGIONS: Final = 16
PAGE_BYTES: Final = 4096
ZERO_SIZES: Final = (1, 16, 512, PAGE_BYTES, 16 * PAGE_BYTES)


class Damage(Value):
    """What is done to one file; `region` counts from its beginning, the last one is the end of what was written."""

    kind: str
    name: str
    region: int = 0
    chance: float = 0.0

    def __str__(self) -> str:
        return f"{self.kind} {self.name} region {self.region}/{REGIONS} at {self.chance:.3f}"

    def do(self, folder: Path) -> bool:
        """Damage the file; returns whether its content changed."""
        path = folder / self.name
        if not path.is_file():
            return False
        if self.kind == REMOVE:
            path.unlink()
            return True
        with path.open("rb") as file:
            data = bytearray(file.read(written_bytes(path)))
        if not data:
            return False
        place = min(int((self.region + self.chance) * len(data) / REGIONS), len(data) - 1)
        changed = self._changed(data, place)
        if changed == bytes(data):
            return False
        with path.open("r+b") as file:
            file.write(changed)
            if len(changed) < len(data):
                file.truncate()
        return True

    def _changed(self, data: bytearray, place: int) -> bytes:
        chance = random.Random(f"{self.chance}")
        if self.kind == FLIP:
            return bytes(data[:place]) + bytes([data[place] ^ 1 << chance.randrange(8)]) + bytes(data[place + 1 :])
        if self.kind == TRUNCATE:
            return bytes(data[:place])
        size = chance.choice(ZERO_SIZES)
        begin = place - place % size
        return bytes(data[:begin]) + bytes(len(data[begin : begin + size])) + bytes(data[begin + size :])


def written_bytes(path: Path) -> int:
    """The size of a file; of a preallocated file (it ends in a hole) the size of the written part."""
    size = path.stat().st_size
    with path.open("rb") as file:
        end = 0
        while end < size:
            try:
                end = os.lseek(file.fileno(), os.lseek(file.fileno(), end, os.SEEK_DATA), os.SEEK_HOLE)
            except OSError:  # no data behind the last hole
                break
        if end == size:
            return size
        file.seek(0)
        return len(file.read(end).rstrip(b"\0"))


def damages(names: Sequence[str], count: int, *, seed: int) -> list[Damage]:
    """Random damages that cover every file, kind and region; a name listed twice is damaged twice as often."""
    chance = random.Random(seed)
    all_places = [
        Damage(kind=kind, name=name, region=region)
        for name in names
        for kind in KINDS
        for region in (range(REGIONS) if kind != REMOVE else (0, 0, 0, 0))
    ]
    chance.shuffle(all_places)
    return [
        Damage(kind=each.kind, name=each.name, region=each.region, chance=chance.random())
        for each in (all_places[number % len(all_places)] for number in range(count))
    ]
