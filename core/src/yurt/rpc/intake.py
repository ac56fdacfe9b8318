"""Limits what the dialled end accepts: calls per second, and no reading while answers are unread.

Frames of the far end's own accord beyond its rate are refused, and nothing is read from it for a moment. What has come
before such a rest begins to work is refused too, up to a bound; then the connection is given up.
"""

from __future__ import annotations

import asyncio
from typing import Final

from yurt.rpc.rate import Bucket, Rate
from yurt.rpc.wire import Wire

UNREAD_BYTES_MAX: Final = 4 * 1024 * 1024
"""The end that was dialled takes no further calls while more than this waits for the other end to read it."""
REST_S: Final = 1.0
"""How long reading pauses for an end that calls too often, in seconds."""
REFUSED_MAX: Final = 20_000
"""Refused bytes before a pause takes effect, beyond which the connection is closed."""


class Abuse(Exception):
    """The far end violates the protocol; the connection is closed."""


class Intake:
    """Whether one end keeps reading, and whether it accepts one more frame."""

    def __init__(self, wire: Wire, *, is_dialler: bool, rate: Rate | None) -> None:
        self._wire = wire
        self._is_dialler = is_dialler
        self._bucket = Bucket(rate, asyncio.get_running_loop().time()) if rate is not None else None
        self._is_full = False
        self._rests = False
        self._refused = 0

    def takes(self) -> bool:
        """Whether another frame initiated by the far end is accepted; if not, reading pauses for a moment.

        Raises Abuse when the far end goes on nevertheless.
        """
        loop = asyncio.get_running_loop()
        if self._bucket is None or self._bucket.take(loop.time()):
            return True
        if not self._rests:
            self._rests = True
            self._set_reading()
            loop.call_later(REST_S, self._stop_resting)
        self._refused += 1
        if self._refused > REFUSED_MAX:
            raise Abuse("it does not stop to call although it is refused")
        return False

    def set_unread(self, count: int) -> None:
        """Record how many bytes wait to be read by the far end."""
        is_full = not self._is_dialler and count > UNREAD_BYTES_MAX
        if is_full != self._is_full:
            self._is_full = is_full
            self._set_reading()

    @property
    def refusal(self) -> str:
        """The error for a caller above its rate."""
        per_s = self._bucket.rate.per_s if self._bucket is not None else 0
        return f"more than {per_s:g} calls a second on one connection; try again in {REST_S:g} s"

    def _stop_resting(self) -> None:
        self._rests, self._refused = False, 0
        self._set_reading()

    def _set_reading(self) -> None:
        self._wire.read_on(not (self._rests or self._is_full))
