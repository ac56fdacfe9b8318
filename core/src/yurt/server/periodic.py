"""Launches the children of periodic jobs at their times."""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable

from yurt.duties.periodic import is_scheduled, next_launch
from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Invalid, NotFound
from yurt.sdk.value import UnixNano
from yurt.server.log_writer import LogWriter
from yurt.server.waiting import wait_for
from yurt.state import Changes
from yurt.state.store import JobKey, Snapshot
from yurt.structs.job import Job

log = logging.getLogger(__name__)

Launch = Callable[[Job, UnixNano], Awaitable[object]]


class PeriodicDispatcher:
    """The next launch of every periodic job."""

    def __init__(self, *, env: Env, writer: LogWriter, launch: Launch) -> None:
        self._env = env
        self._writer = writer
        self._launch = launch
        self._due: dict[JobKey, UnixNano] = {}
        self._heap: list[tuple[UnixNano, JobKey]] = []
        self._changed = asyncio.Event()

    def restore(self, state: Snapshot) -> None:
        """Take in every periodic job; of the launches missed since the last recorded one, one is due at once."""
        now = self._env.now()
        for job in state.jobs.where("periodic", "periodic"):
            last = state.table("periodic_launches").get(job.key)
            since = last.launch if last is not None else job.submit_time
            missed = self._next(job, since) if is_scheduled(job) else None
            if missed is not None and missed <= now:
                self._set(job.key, missed)
            else:
                self._plan(job, now)

    def observe(self, changes: Changes) -> None:
        """Follow jobs that come, change and go."""
        for change in changes:
            if change.table != "jobs":
                continue
            job: Job | None = change.after
            if job is not None and job.periodic is not None:
                before: Job | None = change.before
                if before is None or before.job_modify_index != job.job_modify_index:
                    self._plan(job, self._env.now())
            elif change.before is not None and change.before.periodic is not None:
                self._due.pop(change.before.key, None)

    async def run(self) -> None:
        """Launch until cancelled."""
        while True:
            self._changed.clear()
            for at, key in self._take_due():
                await self._fire(key, at)
            delay = max(0.0, (self._heap[0][0] - self._env.now()) / 1e9) if self._heap else None
            await wait_for(self._env, self._changed, delay)

    async def _fire(self, key: JobKey, at: UnixNano) -> None:
        job = self._writer.state.jobs.get(key)
        if job is None or not is_scheduled(job):
            return
        try:
            await self._launch(job, at)
        except (Conflict, NotFound):
            return  # the job changed before its launch; its change planned the next one
        except Exception:
            self._set(key, at)
            raise
        self._plan(job, self._env.now())

    def _take_due(self) -> list[tuple[UnixNano, JobKey]]:
        now = self._env.now()
        due = []
        while self._heap and self._heap[0][0] <= now:
            at, key = heapq.heappop(self._heap)
            if self._due.get(key) == at:
                del self._due[key]
                due.append((at, key))
        return due

    def _plan(self, job: Job, after: UnixNano) -> None:
        at = self._next(job, after) if is_scheduled(job) else None
        if at is None:
            self._due.pop(job.key, None)
        else:
            self._set(job.key, at)

    def _next(self, job: Job, after: UnixNano) -> UnixNano | None:
        assert job.periodic is not None
        try:
            return next_launch(job.periodic, after)
        except Invalid as error:
            log.error("periodic job %s in namespace %s cannot be launched: %s", job.id, job.namespace, error)
            return None

    def _set(self, key: JobKey, at: UnixNano) -> None:
        self._due[key] = at
        heapq.heappush(self._heap, (at, key))
        self._changed.set()
