"""Rate limiting by a token bucket."""

from __future__ import annotations

import msgspec


class Rate(msgspec.Struct, frozen=True):
    """A sustained rate per second and a burst size."""

    per_s: float
    burst: float


class Bucket:
    """The tokens of one caller. `now` is any monotonic clock in seconds."""

    __slots__ = ("_at", "_tokens", "rate")

    def __init__(self, rate: Rate, now: float) -> None:
        self.rate = rate
        self._tokens = rate.burst
        self._at = now

    def take(self, now: float) -> bool:
        """Whether one more event is permitted now."""
        self._tokens = min(self.rate.burst, self._tokens + (now - self._at) * self.rate.per_s)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True
