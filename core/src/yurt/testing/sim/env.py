"""The `Env` of a simulated process: the loop's clock with the process's own skew, and seeded randomness."""

from __future__ import annotations

import asyncio
import random
import uuid
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from yurt.runtime.env import Timer
from yurt.sdk.value import NANOSECONDS, UnixNano
from yurt.testing.sim.loop import Process, SimLoop

P = ParamSpec("P")
T = TypeVar("T")

START_NS = 1_700_000_000 * NANOSECONDS


def _set_result_unless_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class SimEnv:
    """Time, randomness, ids and threads of one process."""

    def __init__(self, loop: SimLoop, process: Process, seed: int) -> None:
        self._loop = loop
        self._process = process
        self._random = random.Random(f"env {seed} {process.name}")

    def now(self) -> UnixNano:
        """The process's wall clock, with its skew."""
        return UnixNano(START_NS + round((self._loop._now_s + self._process.clock_skew_s) * NANOSECONDS))

    def monotonic(self) -> float:
        """Virtual seconds since the run began."""
        return self._loop._now_s

    def random(self) -> float:
        """Uniform in [0, 1)."""
        return self._random.random()

    def uuid(self) -> str:
        """An id from the seed."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    async def sleep(self, seconds: float) -> None:
        """Wait in virtual time."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        loop = self._loop
        future = loop.create_future()
        timer = loop.call_at(loop._now_s + seconds, _set_result_unless_done, future)
        try:
            await future
        except BaseException:
            timer.cancel()  # with the wait: a timer that was due needs no end
            raise

    def timeout(self, seconds: float | None) -> asyncio.Timeout:
        """As `asyncio.timeout`, in virtual time."""
        return asyncio.timeout(seconds)

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Call a function later in virtual time."""
        return self._loop.call_later(seconds, function)

    async def in_thread(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function as work in a simulated thread."""
        return await asyncio.to_thread(function, *args, **kwargs)
