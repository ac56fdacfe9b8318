"""Python's garbage collector under control: no collection on its own, the young generation by hand; and the lock.

State objects make no cycles, so a full collection of a large heap would only stop the server for seconds to find
nothing. What libraries and tracebacks leave is young: it is collected each few seconds, or sooner under load so that a
pause stays short. Survivors of a busy time are state: they are frozen out of the collector's sight instead of being
looked at again. While there are few old objects they are collected too: an allocation's runner is one of them.

Large jobs are scheduled in a thread, which shares the interpreter's lock with the event loop. The loop gets it back
after `SWITCH_S`, not after Python's 5 ms: an answer takes several turns of the loop.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

from yurt.runtime.env import Env
from yurt.server.metrics import Metrics

SWITCH_S: Final = 0.001
LOOK_S: Final = 0.5
BUSY_LOOK_S: Final = 0.01
BUSY_COUNT: Final = 10_000
"""So many new objects are collected at the next look, which then comes soon: a pause grows with what gathered."""
IDLE_S: Final = 5.0
"""A quiet server collects its young objects as often as this."""
MIDDLE_S: Final = 60.0
"""As often the survivors are collected once more, or frozen when there are more than `FREEZE_COUNT` (some 60 ms)."""
FREEZE_COUNT: Final = 200_000

OLD_COUNT: Final = 100_000
"""Up to so many old objects are looked at as well (some 10 ms): what ran for long and has ended, an allocation's
runner above all, is a cycle among them."""


class HeapKeeper:
    """Freezes the heap after a restore and collects by hand."""

    def __init__(self, *, env: Env, metrics: Metrics) -> None:
        self._env = env
        self._metrics = metrics
        self._was_enabled = gc.isenabled()
        self._switched_s = sys.getswitchinterval()
        self._survivors = 0

    def start(self) -> None:
        """Collect a last time, before the state is restored: many objects, of which none is garbage."""
        gc.collect()
        gc.disable()

    def pause(self) -> None:
        """No collection until `restore_defaults`."""
        gc.disable()

    def freeze(self) -> None:
        """Take what was restored out of the collector's sight; nothing is collected but by hand from now on."""
        gc.disable()
        gc.freeze()
        sys.setswitchinterval(SWITCH_S)

    async def run(self) -> None:
        """Collect until cancelled."""
        env = self._env
        collected_at = looked_at = env.monotonic()
        delay = LOOK_S
        while True:
            await env.sleep(delay)
            now, young = env.monotonic(), gc.get_count()[0]
            if young >= BUSY_COUNT or now - collected_at >= IDLE_S:
                self._collect(0)
                self._survivors += young
                collected_at = now
            delay = BUSY_LOOK_S if young >= BUSY_COUNT // 4 else LOOK_S
            if now - looked_at >= MIDDLE_S:
                self._look_at_survivors()
                looked_at = now

    def restore_defaults(self) -> None:
        """Leave the collector and the lock as they were found."""
        sys.setswitchinterval(self._switched_s)
        gc.unfreeze()
        if self._was_enabled:
            gc.enable()

    def _look_at_survivors(self) -> None:
        if self._survivors > FREEZE_COUNT and len(gc.get_objects(generation=1)) > FREEZE_COUNT:
            gc.freeze()
        else:
            self._collect(2 if len(gc.get_objects(generation=2)) <= OLD_COUNT else 1)
        self._survivors = 0

    def _collect(self, generation: int) -> None:
        started = self._env.monotonic()
        gc.collect(generation)
        self._metrics.time("runtime.gc_pause", self._env.monotonic() - started)
