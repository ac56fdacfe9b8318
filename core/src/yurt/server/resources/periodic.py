"""Launches the children of periodic jobs on schedule.

The next launch is not computed where a job becomes known, in the apply of a command or at the beginning of a term, but
by the loop, some cron expressions in a turn: no number of jobs or expressions holds up anything else.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from yurt.rules.periodic import expressions, is_scheduled, next_launch
from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Invalid, NotFound
from yurt.sdk.value import UnixNano, replace
from yurt.server.log.log_writer import LogWriter
from yurt.server.log.state_waits import wait_for
from yurt.state import Changes, has_change_of
from yurt.state.store import Snapshot
from yurt.state.tables import JobKey
from yurt.structs.job import Job, PeriodicConfig

log = logging.getLogger(__name__)

LINES_A_SLICE: Final = 64
"""Cron expressions that are searched in one turn, in some milliseconds."""

Launch = Callable[[Job, UnixNano], Awaitable[object]]


class PeriodicDispatcher:
    """The next launch of every periodic job."""

    def __init__(self, *, env: Env, writer: LogWriter, launch: Launch) -> None:
        self._env = env
        self._writer = writer
        self._launch = launch
        self._due: dict[JobKey, UnixNano] = {}
        self._heap: list[tuple[UnixNano, JobKey]] = []
        self._unplanned: dict[JobKey, UnixNano | None] = {}
        """Jobs whose next launch is not known yet, and the time that it comes after: None is the last launch."""
        self._changed = asyncio.Event()

    def restore(self, state: Snapshot) -> None:
        """Load every periodic job; if launches were missed since the last recorded one, one is due at once."""
        for job in state.jobs.where("periodic", "periodic"):
            self._unplanned[job.key] = None
        self._changed.set()

    def observe(self, changes: Changes) -> None:
        """Follow added, changed and removed jobs."""
        if not has_change_of(changes, "jobs"):
            return
        for change in changes:
            if change.table != "jobs":
                continue
            job: Job | None = change.after
            if job is not None and job.periodic is not None:
                before: Job | None = change.before
                if before is None or before.job_modify_index != job.job_modify_index:
                    self._replan(job.key)
            elif change.before is not None and change.before.periodic is not None:
                self._due.pop(change.before.key, None)
                self._unplanned.pop(change.before.key, None)

    async def run(self) -> None:
        """Launch until cancelled."""
        while True:
            self._changed.clear()
            await self._plan_some()
            while (due := self._take_due()) is not None:
                await self._fire(*due)
            if self._unplanned:
                await self._writer.turns.next()
                continue
            delay = max(0.0, (self._heap[0][0] - self._env.now()) / 1e9) if self._heap else None
            await wait_for(self._env, self._changed, delay)

    async def _fire(self, at: UnixNano, key: JobKey) -> None:
        job = self._writer.state.jobs.get(key)
        if job is None or not is_scheduled(job):
            return
        try:
            await self._launch(job, at)
        except (Conflict, NotFound):
            return  # the job changed before its launch; its change planned the next one
        except Invalid as error:
            # The rules of the namespace forbid the child. They may change, so later times are tried.
            log.warning("launch refused: namespace=%s job=%s reason=%s", job.namespace, job.id, error)
        except Exception:
            if key not in self._unplanned:
                self._set(key, at)
            raise
        self._replan(key)

    def _take_due(self) -> tuple[UnixNano, JobKey] | None:
        now = self._env.now()
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._due.get(key) == at:
                del self._due[key]
                return at, key
        return None

    def _replan(self, key: JobKey) -> None:
        self._due.pop(key, None)
        self._unplanned[key] = self._env.now()
        self._changed.set()

    async def _plan_some(self) -> None:
        """Schedule jobs until a slice of expressions has been searched."""
        lines = 0
        while self._unplanned and lines < LINES_A_SLICE:
            key = next(iter(self._unplanned))
            after = self._unplanned.pop(key)
            job = self._writer.state.jobs.get(key)
            if job is None or job.periodic is None or not is_scheduled(job):
                continue
            lines += len(expressions(job.periodic))
            at = await self._next(job, job.periodic, self._last_launch(job) if after is None else after)
            if at is not None and key not in self._unplanned:
                self._set(key, at)

    def _last_launch(self, job: Job) -> UnixNano:
        last = self._writer.state.periodic_launches.get(job.key)
        return min(last.launch if last is not None else job.submit_time, self._env.now())

    async def _next(self, job: Job, periodic: PeriodicConfig, after: UnixNano) -> UnixNano | None:
        times: list[UnixNano] = []
        async for part in self._writer.turns.slices(expressions(periodic), LINES_A_SLICE):
            try:
                at = next_launch(replace(periodic, spec="", specs=tuple(part)), after)
            except Invalid as error:
                log.error("periodic job %s in namespace %s cannot be launched: %s", job.id, job.namespace, error)
                return None
            times += [] if at is None else [at]
        return min(times, default=None)

    def _set(self, key: JobKey, at: UnixNano) -> None:
        self._due[key] = at
        heapq.heappush(self._heap, (at, key))
        self._changed.set()
