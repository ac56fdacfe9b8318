"""The C library's heap, told how an agent lives: for long, and with few large blocks that come and go.

By itself glibc puts large blocks apart only until the first of them is freed; later ones of that size come from the
heap and leave holes there, so that each rebuilding of a large table (that of interned names, for one) may make the
process larger for good. With a fixed limit large blocks are always apart, and go back when they are freed.
"""

from __future__ import annotations

import ctypes
from typing import Final

TRIM_THRESHOLD: Final = -1
MMAP_THRESHOLD: Final = -3
LARGE_BYTES: Final = 1024 * 1024
KEPT_BYTES: Final = 2 * LARGE_BYTES
"""So much that is free at the heap's end is kept."""


def keep_large_blocks_apart() -> None:
    """Fix the limit; call it before large blocks are made. Another C library than glibc is left as it is."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)


def give_back() -> None:
    """Return the pages that the start has left free: some 4 MB, in a millisecond."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
