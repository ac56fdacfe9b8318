"""Python's garbage collector under control: no collection on its own, the young generations by hand on a timer.

State objects make no cycles, so a full collection would only stop the server for seconds to find nothing. What
libraries and tracebacks leave is young, and is collected each few seconds.
"""

from __future__ import annotations

import gc
from typing import Final

from yurt.runtime.env import Env
from yurt.server.metrics import Metrics

YOUNG_INTERVAL_S: Final = 5.0
MIDDLE_EACH: Final = 12
"""Every so many rounds the middle generation is collected too."""


class HeapKeeper:
    """Freezes the heap after a restore and collects by hand."""

    def __init__(self, *, env: Env, metrics: Metrics) -> None:
        self._env = env
        self._metrics = metrics
        self._was_enabled = gc.isenabled()

    def freeze(self) -> None:
        """Take what was restored out of the collector's sight, and stop automatic collections."""
        gc.collect()
        gc.freeze()
        gc.disable()

    async def run(self) -> None:
        """Collect young generations until cancelled."""
        rounds = 0
        while True:
            await self._env.sleep(YOUNG_INTERVAL_S)
            rounds += 1
            generation = 1 if rounds % MIDDLE_EACH == 0 else 0
            started = self._env.monotonic()
            gc.collect(generation)
            self._metrics.time("runtime.gc_pause", self._env.monotonic() - started)

    def restore_defaults(self) -> None:
        """Leave the collector as it was found."""
        gc.unfreeze()
        if self._was_enabled:
            gc.enable()
