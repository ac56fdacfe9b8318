"""The leader's duty for idle allocations: it follows which there are, and looks at them while there are any."""

from __future__ import annotations

import asyncio

from yurt.runtime.env import Env
from yurt.runtime.metrics import Metrics
from yurt.server.log.log_writer import LogWriter
from yurt.server.log.state_waits import wait_for
from yurt.state import Changes, Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.queueing.idle import is_idle


class IdleReclaimer:
    """The idle allocations of a term."""

    def __init__(self, *, env: Env, writer: LogWriter, metrics: Metrics, region: str) -> None:
        self._env = env
        self._writer = writer
        self._metrics = metrics
        self._region = region
        self._idle: set[str] = set()
        self._changed = asyncio.Event()

    def restore(self, state: Snapshot) -> None:
        """Find what is idle in the state."""
        self._idle = {alloc.id for alloc in state.allocs.values() if alloc.idle is not None and is_idle(alloc)}
        self._changed.set()

    def observe(self, changes: Changes) -> None:
        """Follow the reports of clients, and what users do about them."""
        for change in changes:
            if change.table != "allocs":
                continue
            after: Allocation | None = change.after
            if after is not None and after.idle is not None and is_idle(after):
                self._idle.add(after.id)
                self._changed.set()
            elif change.before is not None and change.before.id in self._idle:
                # The next look withdraws what was announced of it, or of its gang.
                self._changed.set()

    async def run(self) -> None:
        """Look until cancelled; what it takes is imported when something is idle."""
        while not self._idle:
            self._changed.clear()
            await wait_for(self._env, self._changed, None)
        from yurt.server.resources.idle_steps import IdleSteps

        steps = IdleSteps(env=self._env, writer=self._writer, metrics=self._metrics, region=self._region)
        while True:
            self._changed.clear()
            gone = steps.gone(self._idle)
            self._idle -= gone
            await wait_for(self._env, self._changed, await steps.look(self._idle) if self._idle else None)
