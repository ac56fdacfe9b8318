"""How often something may happen: a bucket of tokens that fills at a steady rate."""

from __future__ import annotations

from typing import NamedTuple


class Rate(NamedTuple):
    """So many a second over time, and so many at once after a quiet time."""

    per_s: float
    burst: float


class Bucket:
    """The tokens of one caller. `now` is any clock of seconds that does not go back."""

    __slots__ = ("_at", "_tokens", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._tokens = rate.burst
        self._at = now

    def take(self, now: float) -> bool:
        """Whether it may happen once more now."""
        self._tokens = min(self.rate.burst, self._tokens + (now - self._at) * self.rate.per_s)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
