"""The environment: every source of nondeterminism in one value (clock, time-outs, threads, randomness, ids).

Shells take an `Env` and never import `time`, `random` or `uuid` themselves, nor ask asyncio for time-outs and threads,
so that a cluster can run under a virtual clock. `tests/test_env_edges.py` bounds what still uses asyncio's own.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import ParamSpec, Protocol, TypeVar

from yurt.sdk.value import UnixNano

P = ParamSpec("P")
T = TypeVar("T")


class Timer(Protocol):
    """A scheduled call of a function."""

    def cancel(self) -> object:
        """Prevent the call; does nothing after the call."""
        ...


class Env(Protocol):
    """Clock, randomness and ids of one process."""

    def now(self) -> UnixNano:
        """The wall-clock time in nanoseconds since 1970."""
        ...

    def monotonic(self) -> float:
        """The monotonic time in seconds."""
        ...

    def random(self) -> float:
        """A random number, uniform in [0, 1)."""
        ...

    def uuid(self) -> str:
        """A new random UUID."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait on this clock."""
        ...

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Like `asyncio.timeout` on this clock: the block raises TimeoutError after `seconds`; never with None."""
        ...

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Call a function after `seconds` on this clock, unless the timer is cancelled before."""
        ...

    async def in_thread(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a blocking function in a thread, so that it does not block the event loop."""
        ...


VARIANTS = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The first digit of a random UUID's fourth part, which holds the variant (RFC 4122), by the random digit drawn."""
ID_DIGITS = 32
RANDOM_DIGITS = 13
"""52 bits: a float holds each such fraction exactly, so that the greatest is below 1."""
DRAWN_IDS = 128
"""The number of ids drawn at once: the system call for random bytes takes longer than all other work for an id, and
gives the interpreter's lock to another thread."""

_drawn: list[str] = []
os.register_at_fork(after_in_child=_drawn.clear)


def _digits() -> str:
    """Random hexadecimal digits for one id, never given twice: safe in threads, and a forked process draws its own."""
    while True:
        try:
            return _drawn.pop()
        except IndexError:
            text = os.urandom(DRAWN_IDS * ID_DIGITS // 2).hex()
            _drawn.extend(text[at : at + ID_DIGITS] for at in range(0, len(text), ID_DIGITS))


class RealEnv:
    """The operating system's clock and randomness."""

    def now(self) -> UnixNano:
        """The wall-clock time in nanoseconds since 1970."""
        return UnixNano(time.time_ns())

    monotonic = staticmethod(time.monotonic)
    """The monotonic time in seconds. Not wrapped in a method: each request reads it three times or more."""

    def random(self) -> float:
        """A random number, uniform in [0, 1)."""
        return int(_digits()[:RANDOM_DIGITS], 16) / (1 << 4 * RANDOM_DIGITS)

    def uuid(self) -> str:
        """A new random UUID."""
        text = _digits()
        return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-{VARIANTS[text[16]]}{text[17:20]}-{text[20:]}"

    async def sleep(self, seconds: float) -> None:
        """Wait on this clock."""
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """Same as `asyncio.timeout`."""
        return asyncio.timeout(seconds)

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Same as `call_later` of the running loop."""
        return asyncio.get_running_loop().call_later(seconds, function)

    async def in_thread(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a function in a thread."""
        return await asyncio.to_thread(function, *args, **kwargs)
