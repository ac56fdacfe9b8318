"""Controls CPython's cyclic collector: small young generations, no scan of a growing state; and the GIL interval.

State objects make no cycles: a collection of them only stops the server, and finds nothing. What libraries and
tracebacks leave is young. Python collects it by itself, in lots of `YOUNG_COUNT` objects, since a pause grows with what
has gathered. While the state grows one lot is a sample: when it is clean, the rest of what gathers until the next look
is frozen out of the collector's sight unseen. So a freeze keeps hardly any garbage, and costs nothing. Without growth
survivors are collected too, as long as there are few: an allocation's runner is one of them. What ends is written: a
state that nobody writes needs no look, and old objects no collection, which would examine all of them.

Large jobs are scheduled in a thread, which shares the interpreter's lock with the event loop. The loop gets it back
after `SWITCH_S`, not after Python's 5 ms: an answer takes several turns of the loop.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable
from typing import Final

import msgspec

from yurt.runtime.env import Env
from yurt.runtime.metrics import Metrics

SWITCH_S: Final = 0.001
LOOK_S: Final = 0.5
YOUNG_COUNT: Final = 10_000
"""The number of new objects collected together: a pause of 1 to 5 ms.

Each collection also examines what requests in progress hold. With lots of 2,000 a server that registers 1,000 jobs a
second spent 2.9 % of its processor time on them, now 1.4 %.
"""
CLEAN_COUNT: Final = YOUNG_COUNT // 100
"""The number of garbage objects below which a collection counts as clean."""
GROWTH_ROWS: Final = 2_000
"""The growth in rows since the last freeze from which the state counts as growing."""
LARGE_ROWS: Final = 100_000
"""The number of rows from which rewriting or deleting rows also counts as growth: each change creates new nodes of the
state's maps, of which a collection would examine hundreds of thousands."""
NEVER: Final = 1 << 30
"""A threshold that is never reached, so that older objects are not collected by their count."""
IDLE_S: Final = 5.0
"""The interval, in seconds, of collections of young objects without growth."""
MIDDLE_S: Final = 15.0
"""The interval, in seconds, of collections of the middle generation: survivors that accumulate would enlarge Python's
heap permanently."""
OLD_S: Final = 300.0
"""The interval, in seconds, of collections of old objects while nothing is written: connections end, too."""
OLD_COUNT: Final = 100_000
"""Up to this number of old objects, these are collected as well: ended long-running objects, such as an allocation's
runner, are cycles among them."""


class HeapKeeper:
    """Freezes the heap after a restore and schedules collections."""

    def __init__(self, *, env: Env, metrics: Metrics, rows: Callable[[], int]) -> None:
        """`rows` returns the number of rows of the state."""
        self._env = env
        self._metrics = metrics
        self._rows = rows
        self._written = 0
        """The number of rows written or deleted."""
        self._seen_written = 0
        self._has_writes = asyncio.Event()
        """Set by writes since the last look, or when a collection is due."""
        self._frozen_rows = 0
        self._is_growing = False
        self._began = 0.0

    def start(self) -> None:
        """Collect what is new before the state is restored, which creates many objects without garbage.

        Examining all that an agent has imported would take 50 ms.
        """
        _interpreter.lend(self)
        gc.collect(0)
        gc.disable()

    def pause(self) -> None:
        """Disable collection until `restore_defaults`."""
        _interpreter.lend(self)
        gc.disable()

    def freeze(self) -> None:
        """Exclude the restored objects from collection; young objects are collected from now on."""
        self._frozen_rows = self._rows()
        gc.freeze()
        gc.set_threshold(YOUNG_COUNT, NEVER, NEVER)
        gc.callbacks.append(self._observe)
        gc.enable()
        sys.setswitchinterval(SWITCH_S)

    def note_writes(self, count: int) -> None:
        """Note that rows were written or deleted."""
        self._written += count
        self._has_writes.set()

    async def run(self) -> None:
        """Maintain the heap until cancelled."""
        env = self._env
        young_at = middle_at = old_at = env.monotonic()
        collected = 0
        while True:
            if not self._is_growing:
                alarm = env.call_later(MIDDLE_S, self._has_writes.set)
                await self._has_writes.wait()
                alarm.cancel()
            await env.sleep(LOOK_S)
            self._has_writes.clear()
            self.look()
            now = env.monotonic()
            if self._is_growing:
                continue
            if now - middle_at >= MIDDLE_S:
                has_ended = self._written != collected or now - old_at >= OLD_S
                if has_ended:
                    # Also where there are too many: listing them takes as long as a collection.
                    collected, old_at = self._written, now
                gc.collect(2 if has_ended and len(gc.get_objects(generation=2)) <= OLD_COUNT else 1)
                middle_at = young_at = now
            elif now - young_at >= IDLE_S:
                gc.collect(0)
                young_at = now

    def look(self) -> None:
        """Freeze the growth of the state, and force the next collection of young objects."""
        rows = self._rows()
        self._frozen_rows = min(self._frozen_rows, rows)
        is_busy = rows >= LARGE_ROWS and self._written - self._seen_written >= GROWTH_ROWS
        self._seen_written = self._written
        self._is_growing = is_busy or rows - self._frozen_rows >= GROWTH_ROWS
        if self._is_growing or not gc.isenabled():
            gc.freeze()
            self._frozen_rows = rows
        gc.enable()

    def restore_defaults(self) -> None:
        """Restore the collector and the GIL interval."""
        if self._observe in gc.callbacks:
            gc.callbacks.remove(self._observe)
        _interpreter.give_back(self)

    def _observe(self, phase: str, info: dict[str, int]) -> None:
        """Time each collection; after one without garbage while the state grows, disable it until the next check."""
        if phase == "start":
            self._began = self._env.monotonic()
            return
        self._metrics.time("runtime.gc_pause_ns", self._env.monotonic() - self._began)
        if self._is_growing and info["collected"] < CLEAN_COUNT:
            gc.disable()


class _InterpreterSettings(msgspec.Struct, frozen=True):
    is_enabled: bool
    thresholds: tuple[int, int, int]
    switch_s: float


class _Interpreter:
    """The process-wide settings before the first server started, restored after the last one stopped."""

    def __init__(self) -> None:
        self._borrowers: set[HeapKeeper] = set()
        self._original: _InterpreterSettings | None = None

    def lend(self, keeper: HeapKeeper) -> None:
        """Allow the keeper to change settings."""
        if self._original is None:
            self._original = _InterpreterSettings(gc.isenabled(), gc.get_threshold(), sys.getswitchinterval())
        self._borrowers.add(keeper)

    def give_back(self, keeper: HeapKeeper) -> None:
        """Restore the settings after the last keeper."""
        self._borrowers.discard(keeper)
        if self._borrowers or self._original is None:
            return
        original, self._original = self._original, None
        sys.setswitchinterval(original.switch_s)
        gc.set_threshold(*original.thresholds)
        gc.unfreeze()
        if original.is_enabled:
            gc.enable()
        else:
            gc.disable()


_interpreter: Final = _Interpreter()
