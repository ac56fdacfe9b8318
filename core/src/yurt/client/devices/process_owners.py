"""Finds the task that a process of this machine belongs to.

Four criteria, the most certain first: a cgroup named by the task's id; the cgroup of the task's main process (a
container has one of its own); the main process' session; its descendants. A process that meets none of them has no
owner. Nothing is guessed, because the answer may end a task.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from yurt.executor.spec import file_name
from yurt.sdk.value import Value

ANCESTORS_MAX = 64
PROC = Path("/proc")


class LiveTask(Value):
    """A running task: its allocation, its name, the id of the run and the pid of its main process (0: unknown)."""

    alloc_id: str
    task_name: str
    task_id: str
    pid: int = 0


class ProcessInfo(Value):
    """The relations of a process, read from /proc."""

    pid: int
    parent: int = 0
    session: int = 0
    cgroups: frozenset[str] = frozenset()


def read_process(pid: int, proc: Path = PROC) -> ProcessInfo | None:
    """A process, or None when it has ended."""
    try:
        fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
        lines = (proc / str(pid) / "cgroup").read_text(errors="replace").splitlines()
        parent, session = int(fields[1]), int(fields[3])
    except (OSError, ValueError, IndexError):
        return None
    return ProcessInfo(pid=pid, parent=parent, session=session, cgroups=frozenset(lines))


class ProcessOwners:
    """Looks up owners at one moment: each process is read at most once, so use one object only for a moment."""

    def __init__(self, tasks: Iterable[LiveTask], *, proc: Path = PROC) -> None:
        self._tasks = tuple(tasks)
        self._proc = proc
        self._read: dict[int, ProcessInfo | None] = {}
        self._common = self._cgroups(os.getpid())

    def _process(self, pid: int) -> ProcessInfo | None:
        if pid not in self._read:
            self._read[pid] = read_process(pid, self._proc)
        return self._read[pid]

    def _cgroups(self, pid: int) -> frozenset[str]:
        """The cgroups of a process, root cgroups excluded."""
        found = self._process(pid)
        return frozenset(line for line in found.cgroups if not line.endswith(":/")) if found else frozenset()

    def task_of(self, pid: int) -> LiveTask | None:
        """The task that owns a process; None when it belongs to none of the tasks or has ended."""
        process = self._process(pid)
        if process is None:
            return None
        for belongs in (self._is_named, self._shares_cgroup, self._is_in_session, self._descends):
            found = next((task for task in self._tasks if belongs(process, task)), None)
            if found is not None:
                return found
        return None

    def _is_named(self, process: ProcessInfo, task: LiveTask) -> bool:
        folder = f"/{file_name(task.task_id)}.scope"
        return any(line.endswith(folder) or f"{folder}/" in line for line in process.cgroups)

    def _shares_cgroup(self, process: ProcessInfo, task: LiveTask) -> bool:
        """Whether it is in a cgroup of the main process, or below; the agent's own cgroups do not count."""
        own = self._cgroups(task.pid) - self._common if task.pid else frozenset()
        return any(line == each or line.startswith(f"{each}/") for each in own for line in process.cgroups)

    def _is_in_session(self, process: ProcessInfo, task: LiveTask) -> bool:
        main = self._process(task.pid) if task.pid else None
        return process.pid == task.pid or (main is not None and main.session == process.session == task.pid)

    def _descends(self, process: ProcessInfo, task: LiveTask) -> bool:
        return bool(task.pid) and task.pid in self._ancestors(process)

    def _ancestors(self, process: ProcessInfo) -> Iterator[int]:
        current: ProcessInfo | None = process
        for _ in range(ANCESTORS_MAX):
            if current is None or current.parent <= 1:
                return
            yield current.parent
            current = self._process(current.parent)
