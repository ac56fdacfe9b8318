"""Retries a worker's calls to the leader after transient failures (`yurt.server.failures`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable

T = TypeVar("T")

RETRY_FIRST_S, RETRY_MAX_S = 0.5, 10.0
"""Pauses between tries of a worker's call."""
RETRY_LIMIT_S: Final = 60.0
"""How long a worker retries: after that its delivery has expired."""


async def repeated(call: Callable[[], Awaitable[T]], env: Env, *, while_: Callable[[Exception], bool]) -> T:
    """Retry a call after transient failures, with increasing pauses and for a bounded time."""
    pause_s, end_s = RETRY_FIRST_S, env.monotonic() + RETRY_LIMIT_S
    while True:
        try:
            return await call()
        except Unavailable as error:
            if not while_(error) or env.monotonic() + pause_s > end_s:
                raise
        await env.sleep(pause_s)
        pause_s = min(pause_s * 2, RETRY_MAX_S)
