"""Tells of a driver call that takes longer than a driver should take, while it is still waited for.

A driver may hang: its engine does not answer, its process stands still, its code has a defect. The task then stays
"pending" or "running" without a reason, so the reason is told after ten seconds, and again at growing intervals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Self

from yurt.runtime.env import Env, Timer

FIRST_S: Final = 10.0
"""How long a call may take before it is told of."""
FACTOR: Final = 6
INTERVAL_MAX_S: Final = 3600.0

log = logging.getLogger(__name__)


class UnansweredCall:
    """Watches one call, of `what` (start, stop, ...) of a task, within a `with` block.

    `expected_s` is the time that the call may take by itself, beside `FIRST_S`.
    """

    def __init__(
        self, env: Env, driver: str, what: str, task: str, *, report: Callable[[str], None], expected_s: float = 0.0
    ) -> None:
        self._env = env
        self._subject = f'driver "{driver}" has not answered the {what} of task "{task}"'
        self._report = report
        self._interval_s = FIRST_S + expected_s
        self._begun_s = self._heard_s = env.monotonic()
        self._timer: Timer | None = None
        self._is_reported = False

    def __enter__(self) -> Self:
        self._timer = self._env.call_later(self._interval_s, self._due)
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._is_reported:
            waited_s = self._env.monotonic() - self._begun_s
            log.warning("no longer waiting for a driver: after_s=%.0f call=%s", waited_s, self._subject)

    def hear(self) -> None:
        """Record progress from the driver: the call does not hang."""
        self._heard_s = self._env.monotonic()

    def _due(self) -> None:
        silent_s = self._env.monotonic() - self._heard_s
        if silent_s < self._interval_s:
            self._timer = self._env.call_later(self._interval_s - silent_s, self._due)
            return
        self._is_reported = True
        text = f"{self._subject} for {silent_s:.0f} s"
        log.warning("waiting for a driver: %s", text)
        self._report(text)
        longer_s = min(self._interval_s * (FACTOR - 1), INTERVAL_MAX_S)
        self._interval_s += longer_s
        self._timer = self._env.call_later(longer_s, self._due)
