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


VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""First digits of a random UUID's fourth part (RFC 4122), by what was drawn there."""
ID_DIGITS = 32
DRAWN_IDS = 128
"""Ids for which randomness is drawn at once: asking the system takes longer than all else that an id takes."""

_drawn: list[str] = []
os.register_at_fork(after_in_child=_drawn.clear)


def _digits() -> str:
    """Random hexadecimal digits for one id, given once, in whatever thread; a forked process draws its own."""
    while True:
        try:
            return _drawn.pop()
        except IndexError:
            text = os.urandom(DRAWN_IDS * ID_DIGITS // 2).hex()
            _drawn.extend(text[at : at + ID_DIGITS] for at in range(0, len(text), ID_DIGITS))


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
        text = _digits()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{VARIANTS[text[16]]}{text[17:20]}-{text[20:]}"

    async def sleep(self, seconds: float) -> None:
        """Wait on this clock."""
        await asyncio.sleep(seconds)
