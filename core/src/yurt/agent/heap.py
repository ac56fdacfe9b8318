"""Tunes the C library's heap for a long-lived process with few large allocations, and returns free memory.

By itself glibc puts large blocks apart only until the first of them is freed; later ones of that size come from the
heap and leave holes there, so that each rebuilding of a large table (that of interned names, for one) may make the
process larger for good. With a fixed limit large blocks are always apart, and go back when they are freed.

What is small leaves holes as well: those of allocations that lived side by side are whole pages when they have ended,
which glibc keeps unless they lie at the heap's end. They go back twice a minute. All threads share one heap: Python's
lock leaves them little to wait for, and each heap more would have holes of its own.
"""

from __future__ import annotations

import asyncio
import ctypes
from pathlib import Path
from typing import Final

TRIM_THRESHOLD: Final = -1
MMAP_THRESHOLD: Final = -3
ARENA_MAX: Final = -8
LARGE_BYTES: Final = 1024 * 1024
KEPT_BYTES: Final = 2 * LARGE_BYTES
"""Free bytes at the heap's end that are kept."""


GIVE_BACK_S: Final = 30.0
HEAP_BYTES_MAX: Final = 256 * 1024 * 1024
"""Of a larger heap the pages stay. Looking for holes takes 0.12 ms/MB where nine tenths are free, and allocations
wait meanwhile: 30 ms at this size. Python's own pools are not part of the heap.
"""
MAPS_PATH: Final = Path("/proc/self/maps")
HEAP_NAME: Final = "[heap]"


def keep_large_blocks_apart() -> None:
    """Fix the size of large blocks and the number of heaps; call it before the first large block or thread.

    Another C library than glibc is left as it is.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(ARENA_MAX, 1)


def give_back() -> None:
    """Return free pages to the system: about 4 MB after the start, in 1 ms."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


async def keep_giving_back(*, pause_s: float = GIVE_BACK_S) -> None:
    """Return free pages again and again while the heap is small, until cancelled."""
    while True:
        await asyncio.sleep(pause_s)
        if heap_bytes() <= HEAP_BYTES_MAX:
            await asyncio.to_thread(give_back)


def heap_bytes() -> int:
    """The size of the C library's heap in bytes, free blocks included; 0 where the system does not report it."""
    try:
        lines = MAPS_PATH.read_text().splitlines()
    except OSError:
        return 0
    ranges = (line.partition(" ")[0].split("-") for line in lines if line.endswith(HEAP_NAME))
    return sum(int(end, 16) - int(start, 16) for start, end in ranges)
