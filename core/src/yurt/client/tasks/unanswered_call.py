"""Reports a driver call that takes too long, while the client still waits for it.

A driver may hang: its engine does not answer, its process is stopped, its code has a defect. The task then stays
"pending" or "running" without a visible reason, so the call is reported after 10 s, and again at growing intervals.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Self

from yurt.runtime.env import Env, Timer

FIRST_S: Final = 10.0
"""The time before a call is reported for the first time."""
FACTOR: Final = 6
INTERVAL_MAX_S: Final = 3600.0

log = logging.getLogger(__name__)


class UnansweredCall:
    """Watches the driver's call `action` (start, stop, ...) for a task within a `with` block.

    `expected_s` is the time that the call takes normally; `FIRST_S` is added to it.
    """

    def __init__(
        self, env: Env, driver: str, action: str, task: str, *, report: Callable[[str], None], expected_s: float = 0.0
    ) -> None:
        self._env = env
        self._subject = f'driver "{driver}" has not answered the {action} of task "{task}"'
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
        """Note progress of the call: the driver does not hang."""
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
