"""Explains tasks that hang at their memory limit without being killed.

A task whose program barely exceeds its limit is not killed while the kernel can still drop pages of files, such as the
program's own code: they are read again at once, and the task runs at a small part of its speed or not at all. The
kernel counts the time in which all threads of a cgroup wait for memory (`memory.pressure`). A share of `STALL_SHARE`
in `SAMPLES` samples in a row becomes an event, once for each run. The first sample of a run, or after a restart of the
agent, is only a beginning. A task far below its limit waits for the memory of its node.
"""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from yurt.client.tasks.task_runner import TaskRunner
from yurt.lifecycle import events
from yurt.sdk.driver import TaskStats
from yurt.sdk.value import NANOSECONDS
from yurt.structs.alloc import AllocatedMemoryResources, AllocatedTaskResources, TaskState

OPTION: Final = "memory_pressure"
STALL_SHARE = 0.1
SAMPLES = 2
NEAR_LIMIT = 0.9
"""The part of its limit from which a task counts as near it."""
MIB = 1024 * 1024


class MemoryPressure:
    """Compares the samples of tasks; `take` is called for each in turn."""

    def __init__(self) -> None:
        self._tasks: WeakKeyDictionary[TaskRunner, StalledRun] = WeakKeyDictionary()

    def take(self, runner: TaskRunner, run: int, before: TaskStats, now: TaskStats) -> None:
        """Note an event when the task has stalled since `before`, and in the samples before that."""
        known = self._tasks.get(runner)
        if known is None or known.run != run:
            self._tasks[runner] = StalledRun(run)
        elif known.is_stalled(before, now) and not was_told(runner.machine.state):
            resources = runner.alloc.allocated_resources.tasks.get(runner.name, AllocatedTaskResources())
            text = pressure_text(known.share, known.elapsed_s, resources.memory, used=used_bytes(now))
            runner.note(events.memory_pressure(text))


class StalledRun:
    """The stalled samples in a row of one run."""

    def __init__(self, run: int) -> None:
        self.run = run
        self.elapsed_s = 0.0
        self._count = 0
        self._stall_s = 0.0
        self._is_told = False

    @property
    def share(self) -> float:
        """The part of the time of these samples in which the task waited for memory."""
        return min(self._stall_s / self.elapsed_s, 1.0) if self.elapsed_s else 0.0

    def is_stalled(self, before: TaskStats, now: TaskStats) -> bool:
        """Add a sample; True once, at the last sample of the first stall."""
        elapsed_s = (now.at - before.at) / NANOSECONDS
        stall_s = (now.memory_stall_ns - before.memory_stall_ns) / NANOSECONDS
        if elapsed_s <= 0 or stall_s < STALL_SHARE * elapsed_s:
            self._count, self._stall_s, self.elapsed_s = 0, 0.0, 0.0
            return False
        self._count += 1
        self._stall_s += stall_s
        self.elapsed_s += elapsed_s
        if self._count < SAMPLES or self._is_told:
            return False
        self._is_told = True
        return True


def was_told(state: TaskState) -> bool:
    """Whether the run has the event already, possibly from an earlier agent."""
    return any(event.type == events.MEMORY_PRESSURE and event.time >= state.started_at for event in state.events)


def used_bytes(stats: TaskStats) -> int:
    """The memory that counts against a task's limit."""
    return stats.memory_charged_bytes or stats.rss_bytes


def pressure_text(share: float, elapsed_s: float, memory: AllocatedMemoryResources, *, used: int) -> str:
    """What the task waits for, and what helps; `used` in bytes."""
    key = "memory_max" if memory.memory_max_mb else "memory"
    limit_mb = memory.memory_max_mb or memory.memory_mb
    waited = f"The task waited for memory for {share:.0%} of the last {elapsed_s:.0f} s"
    if limit_mb <= 0 or used < NEAR_LIMIT * limit_mb * MIB:
        limit = f"its limit is {limit_mb} MiB" if limit_mb > 0 else "it has no limit"
        return f"{waited}: its node is short of memory; the task uses {used / MIB:.0f} MiB, {limit}"
    return (
        f"{waited}: it needs more memory than its limit of {limit_mb} MiB ({key}), and the kernel drops and reads its "
        f"pages again instead of ending it; raise {key}"
    )
