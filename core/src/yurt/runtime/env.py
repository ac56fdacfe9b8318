"""Everything that makes two runs differ, in one value: clock, randomness, ids.

Shells take an `Env` and never import `time`, `random` or `uuid` themselves, so that a cluster can later run under a
virtual clock.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Protocol

from yurt.sdk.value import UnixNano


class Env(Protocol):
    """Clock, randomness and ids of one process."""

    def now(self) -> UnixNano:
        """Wall-clock nanoseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back."""
        ...

    def random(self) -> float:
        """Uniform in [0, 1)."""
        ...

    def uuid(self) -> str:
        """A fresh random UUID."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on this clock."""
        ...


VARIANTS = "89ab"
"""First digits of a random UUID's fourth part (RFC 4122)."""


class RealEnv:
    """The operating system's clock and randomness."""

    def now(self) -> UnixNano:
        """Wall-clock nanoseconds since 1970."""
        return UnixNano(time.time_ns())

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic()

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return int.from_bytes(os.urandom(7), "big") / (1 << 56)

    def uuid(self) -> str:
        """A fresh random UUID."""
        text = os.urandom(16).hex()
        variant = VARIANTS[int(text[16], 16) & 3]
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{variant}{text[17:20]}-{text[20:]}"

    async def sleep(self, seconds: float) -> None:
        """Wait on this clock."""
        await asyncio.sleep(seconds)
