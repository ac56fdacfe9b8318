"""Delivers lines to the sinks, in their order.

A caller of an enforced sink waits until its line is written. A best-effort sink takes the line and keeps nobody
waiting: what it cannot write is counted, and logged once by the agent until it works again.

    writing at once --a write took SLOW_WRITE_S, or failed--> in a thread, for THREAD_S --> writing at once

An enforced line is written at once, on the loop: it goes to the page cache, which takes some microseconds. A way
through a thread took longer than all else of the audit log, and it parted requests that came together: they no longer
shared an entry of the command log and a run of the scheduler. A disk that holds up writes holds up the loop once in
THREAD_S; meanwhile lines that come together are written together in a thread. So are the lines of a best-effort sink,
and whatever comes while others wait or while the file is to be rotated or is gone.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Sequence
from typing import Final, Protocol

from yurt.audit.files import AuditFile
from yurt.audit.filters import Filters
from yurt.audit.settings import AuditSettings, AuditSinkSettings
from yurt.runtime.env import Env
from yurt.sdk.errors import Invalid, Unavailable

log = logging.getLogger(__name__)

WAITING_MAX: Final = 10_000
"""Lines that wait for one sink."""
SLOW_WRITE_S: Final = 0.005
THREAD_S: Final = 30.0
NOT_WRITTEN: Final = "the audit log cannot be written, and its delivery is enforced"


class AuditCounters(Protocol):
    """Counters of the agent."""

    def count(self, name: str, by: int = 1) -> None:
        """Increase a counter."""
        ...


class NoAuditCounters:
    """For an agent without counters."""

    def count(self, name: str, by: int = 1) -> None:
        """Ignore it."""


class _AuditLine:
    __slots__ = ("data", "written")

    def __init__(self, data: bytes, written: asyncio.Future[bool] | None) -> None:
        self.data = data
        self.written = written
        """Set to whether the line is in the file; None where nobody waits."""


class AuditSink:
    """One file and its queued lines."""

    def __init__(self, settings: AuditSinkSettings, env: Env, metrics: AuditCounters) -> None:
        self.settings = settings
        self._env = env
        self._metrics = metrics
        self._file = AuditFile(settings)
        self._waiting: list[_AuditLine] = []
        self._news = asyncio.Event()
        self._reopens = False
        self._stops = False
        self._is_failing = False
        self._is_flushing = False
        self._thread_until_s = -math.inf
        """Until when lines are written in a thread, because a write was slow or failed; monotonic."""

    def open(self) -> None:
        """Open the file; raises Invalid."""
        try:
            self._file.open(self._env.now())
        except OSError as error:
            why = error.strerror or str(error)
            raise Invalid(
                f'audit sink "{self.settings.name}": cannot open {self.settings.path}: {why}; '
                "choose another path, or make it writable for the agent"
            ) from None

    def reopen(self) -> None:
        """Open the file again before the next line, because its name may refer to another file now."""
        self._reopens = True
        self._news.set()

    async def write(self, data: bytes) -> None:
        """Write a line; raises Unavailable when that fails and delivery is enforced."""
        if not self.settings.is_enforced:
            self.post(data)
            return
        if self._may_write_at_once(len(data)):
            self._write_at_once(data)
            return
        if len(self._waiting) >= WAITING_MAX:
            self._report_failure("too many lines wait", 1)
            raise Unavailable(NOT_WRITTEN)
        written = asyncio.get_running_loop().create_future()
        self._waiting.append(_AuditLine(data, written))
        self._news.set()
        if not await written:
            raise Unavailable(NOT_WRITTEN)

    def _may_write_at_once(self, size: int) -> bool:
        """Whether a line would be written now, after all earlier ones and without more than one system call."""
        is_idle = not (self._waiting or self._is_flushing or self._reopens)
        now_s = self._env.monotonic()
        return is_idle and now_s >= self._thread_until_s and self._file.is_ready(size, self._env.now())

    def _write_at_once(self, data: bytes) -> None:
        error, took_s = self._timed_write(data, False)
        self._choose_thread(took_s, error)
        self._report_failure(error, 1)
        if error:
            raise Unavailable(NOT_WRITTEN)

    def _choose_thread(self, took_s: float, error: str) -> None:
        """Write in a thread for a while after a write that was slow or has failed."""
        if error or took_s >= SLOW_WRITE_S:
            self._thread_until_s = self._env.monotonic() + THREAD_S

    def post(self, data: bytes) -> None:
        """Queue a line without waiting for it."""
        if len(self._waiting) >= WAITING_MAX:
            self._report_failure("too many lines wait", 1)
            return
        self._waiting.append(_AuditLine(data, None))
        self._news.set()

    def stop(self) -> None:
        """Let `run` end after it has written the queued lines."""
        self._stops = True
        self._news.set()

    async def run(self) -> None:
        """Write queued lines until it is stopped."""
        while not self._stops or self._waiting:
            await self._news.wait()
            self._news.clear()
            await self._flush()
        self._file.close()

    async def _flush(self) -> None:
        """Write queued lines; a failure is reported to their waiters."""
        lines, self._waiting = self._waiting, []
        reopens, self._reopens = self._reopens, False
        if not lines and not reopens:
            return
        error, took_s = "the agent is stopping", 0.0
        self._is_flushing = True
        try:
            error, took_s = await self._env.in_thread(self._timed_write, b"".join(line.data for line in lines), reopens)
        finally:
            self._is_flushing = False
            self._choose_thread(took_s, error)
            for line in lines:
                if line.written is not None and not line.written.done():
                    line.written.set_result(not error)
            self._report_failure(error, len(lines))

    def _timed_write(self, data: bytes, reopens: bool) -> tuple[str, float]:
        """As `_write`, with its duration in seconds, without the wait for a thread."""
        began_s = self._env.monotonic()
        error = self._write(data, reopens)
        return error, self._env.monotonic() - began_s

    def _write(self, data: bytes, reopens: bool) -> str:
        """Write in the calling thread; returns the error, or ""."""
        now_ns = self._env.now()
        if reopens:
            try:
                self._file.open(now_ns)
            except OSError as error:
                log.error("audit log cannot be opened again: path=%s error=%s", self.settings.path, error)
        try:
            if data:
                self._file.write(data, now_ns)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    def _report_failure(self, error: str, lines: int) -> None:
        if error:
            self._metrics.count("audit.failed", lines)
            if not self._is_failing:
                log.error("audit log cannot be written: sink=%s error=%s", self.settings.name, error)
        else:
            self._metrics.count("audit.lines", lines)
            if self._is_failing:
                log.info("audit log is written again: sink=%s", self.settings.name)
        self._is_failing = bool(error)


class AuditTrail:
    """All sinks of an agent behind one filter."""

    def __init__(self, settings: AuditSettings, env: Env, metrics: AuditCounters) -> None:
        self.env = env
        self.omits = Filters(settings.filters).omits
        self.sinks: Sequence[AuditSink] = tuple(AuditSink(each, env, metrics) for each in settings.sinks)

    def open(self) -> None:
        """Open every file; raises Invalid with each one that cannot be opened."""
        problems = []
        for sink in self.sinks:
            try:
                sink.open()
            except Invalid as error:
                problems.append(str(error))
        if problems:
            raise Invalid("\n".join(problems))

    async def write(self, data: bytes) -> None:
        """Write a line to every sink; raises Unavailable when a sink with enforced delivery fails."""
        failed = False
        for sink in self.sinks:
            try:
                await sink.write(data)
            except Unavailable:
                failed = True
        if failed:
            raise Unavailable(NOT_WRITTEN)

    def post(self, data: bytes) -> None:
        """Queue a line of a request that has ended."""
        for sink in self.sinks:
            sink.post(data)

    def reopen(self) -> None:
        """Open the files again, after an external rotation."""
        for sink in self.sinks:
            sink.reopen()

    async def run(self) -> None:
        """Write lines until it is stopped."""
        async with asyncio.TaskGroup() as group:
            for sink in self.sinks:
                group.create_task(sink.run(), name=f"audit sink {sink.settings.name}")

    def stop(self) -> None:
        """Let `run` end after it has written the queued lines."""
        for sink in self.sinks:
            sink.stop()
