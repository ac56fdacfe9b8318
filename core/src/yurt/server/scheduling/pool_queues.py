"""Runs the gate of node pools with a queue: it exists only while a pool has one, and costs nothing otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from yurt.runtime.env import Env
from yurt.runtime.turns import Turns
from yurt.sdk.value import NANOSECONDS
from yurt.server.log.state_waits import wait_for
from yurt.state import Change, Changes, Snapshot, has_change_of
from yurt.structs import status
from yurt.structs.evaluation import Evaluation

if TYPE_CHECKING:
    from yurt.server.queueing.forecasts import Forecasts
    from yurt.server.queueing.gate import QueueGate

FORECAST_S = 30.0
"""The interval of forecasts, with or without readers: the first forecast of each new job is measured later."""
FOLLOWED = frozenset({"allocs", "nodes", "namespaces", "quotas", "queue_usages"})
"""Tables other than jobs, evaluations and pools on which the decision depends."""


class PoolQueues:
    """The gate while it is needed, and the loop that lets evaluations through."""

    def __init__(
        self,
        *,
        env: Env,
        current: Callable[[], Snapshot],
        turns: Turns,
        has_changes: Callable[[], bool],
        release: Callable[[Iterable[Evaluation]], None],
        region: str = "",
    ) -> None:
        """`release` passes evaluations to the broker; it pauses while `has_changes` of blocked evaluations."""
        self.gate: QueueGate | None = None
        self.forecasts: Forecasts | None = None
        self._env = env
        self._current = current
        self._turns = turns
        self._has_changes = has_changes
        self._release = release
        self._region = region
        self._changed = asyncio.Event()
        self._delayed: dict[str, Evaluation] = {}
        """Evaluations of queued jobs whose back-off is not over."""

    def start(self, state: Snapshot) -> None:
        """Make the gate if a pool has a queue."""
        if self.gate is None and _has_queues(state):
            from yurt.server.queueing.forecasts import Forecasts
            from yurt.server.queueing.gate import QueueGate

            self.gate, self.forecasts = QueueGate(self._region), Forecasts()

    def takes(self, evaluation: Evaluation) -> bool:
        """Whether an evaluation waits here from now on; False: it is for the broker."""
        if self.gate is None:
            return False
        is_early = evaluation.wait_until > self._env.now()
        if is_early and self.gate.is_queued(self._current(), evaluation):
            self._delayed[evaluation.id] = evaluation
        elif is_early or not self.gate.takes(self._current(), evaluation):
            return False
        self._changed.set()
        return True

    def note_blocked(self, evaluation: Evaluation) -> None:
        """An evaluation is blocked."""
        if self.gate is not None:
            self.gate.note_blocked(self._current(), evaluation)
            self._changed.set()

    def forget(self, evaluation: Evaluation) -> None:
        """An evaluation ended or was deleted."""
        self._delayed.pop(evaluation.id, None)
        if self.gate is not None:
            self.gate.forget(evaluation)
            self._changed.set()

    def done(self, eval_id: str) -> None:
        """The broker has completed or dropped an evaluation."""
        if self.gate is not None:
            self.gate.done(eval_id)
            self._changed.set()

    def observe(self, changes: Changes) -> None:
        """Follow a command's changes other than evaluations."""
        if has_change_of(changes, "node_pools"):
            self._follow_pools(self._current())
        if self.gate is None:
            return
        self.gate.follow(changes)
        if self.forecasts is not None:
            self.forecasts.follow(changes)
        jobs = [_job_key(change) for change in changes if change.table == "jobs"]
        if jobs:
            self._release(self.gate.reset(self._current(), jobs))
        if jobs or any(change.table in FOLLOWED for change in changes):
            self.gate.is_dirty = True
        if self.gate.is_dirty:
            self._changed.set()

    def _follow_pools(self, state: Snapshot) -> None:
        """A pool changed: release the jobs of a removed queue, and queue the blocked jobs of a new one."""
        self.start(state)
        if self.gate is None:
            return
        self._release(self.gate.reset(state))
        if not _has_queues(state):
            self.gate = self.forecasts = None
            delayed, self._delayed = tuple(self._delayed.values()), {}
            self._release(delayed)
            return
        for evaluation in state.evals.where("status", status.EVAL_BLOCKED):
            self.note_blocked(evaluation)

    async def run(self) -> None:
        """Let evaluations through whenever something changed."""
        while True:
            await wait_for(self._env, self._changed, self._next_due_s())
            self._take_due()
            await self._turns.next()
            if self._has_changes():
                # Who waits for what came is not known yet: another might be let through in its place.
                continue
            self._changed.clear()
            if self.gate is not None and self.gate.is_dirty:
                self._release(self.gate.look(self._current(), self._env.now()))

    def _next_due_s(self) -> float | None:
        """How long until the first back-off is over; None: there is none."""
        if not self._delayed:
            return None
        first = min(evaluation.wait_until for evaluation in self._delayed.values())
        return max(0.0, (first - self._env.now()) / NANOSECONDS)

    def _take_due(self) -> None:
        """Queue the jobs whose back-off is over; what wants nothing any more is for the broker."""
        now = self._env.now()
        due = [evaluation for evaluation in self._delayed.values() if evaluation.wait_until <= now]
        for evaluation in due:
            del self._delayed[evaluation.id]
            if not self.takes(evaluation):
                self._release((evaluation,))

    async def run_forecasts(self) -> None:
        """Forecast the starts of waiting jobs, to measure the accuracy of forecasts."""
        while True:
            await self._env.sleep(FORECAST_S)
            if self.gate is None or not len(self.gate):
                continue
            from yurt.server.queueing.report import forecasts

            state, now = self._current(), self._env.now()
            make = state.columns_maker()
            await self._env.in_thread(make)
            for pool in self.gate.pools():
                found = await self._env.in_thread(partial(forecasts, state, pool, now, region=self._region))
                if self.gate is None or self.forecasts is None:
                    break
                # What started meanwhile waits no more: nobody would take its forecast back.
                self.forecasts.note(pool, {key: each for key, each in found.items() if key in self.gate})


def _has_queues(state: Snapshot) -> bool:
    return any(row.batch_queue is not None for row in state.node_pools.values())


def _job_key(change: Change) -> tuple[str, str]:
    row = change.before if change.after is None else change.after
    return (row.namespace, row.id)
