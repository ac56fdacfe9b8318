"""Keeps tasks without reserved cores off the cores that other tasks reserve.

All executors of an agent share one `CpuPartitions` for a parent cgroup. A task with `cores` runs on these alone; the
others share the rest, which is written into their cpuset whenever cores are reserved or released. Where the reserved
cores are all that there are, the others keep all of them: a task without a core could not run.

Cpusets outlive the agent. Each executor counts the living tasks of its records before any of them opens; the first to
open writes the share once, because tasks may have ended while no agent ran.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from yurt.executor.cgroups import Hierarchies, parse_cores, read_text, write_setting
from yurt.executor.spec import CgroupSpec, ProcessHandle
from yurt.sdk.value import replace

SHARED: dict[str, CpuPartitions] = {}

log = logging.getLogger(__name__)


class CpuPartitions:
    """The reserved and shared cores of the tasks below one folder of the cpuset hierarchy; "" without one."""

    def __init__(
        self, folder: str, cores: frozenset[int], *, needs_list: bool, write: Callable[[str, str], bool] = write_setting
    ) -> None:
        """`needs_list`: tasks are in a cpuset of their own only with a list of cores, as with cgroups v1."""
        self._write_setting = write
        self._folder = folder
        self._cores = cores
        self._needs_list = needs_list
        self._reserved: dict[str, tuple[int, ...]] = {}
        self._sharing: set[str] = set()
        self._stale: set[str] = set()
        """The sharing cpusets with another list than the share, or an unknown one."""
        self._written = self.share
        self._is_open = False
        """The share was written once: the tasks of an earlier agent that were known at its start are counted."""

    @property
    def share(self) -> tuple[int, ...]:
        """The cores of tasks that reserve none."""
        free = self._cores.difference(*self._reserved.values())
        return tuple(sorted(free or self._cores))

    def plan(self, asked: CgroupSpec) -> CgroupSpec:
        """The limits of a task with the cores on which it may run."""
        if asked.cores or asked.is_overridden or not self._folder or not (self._reserved or self._needs_list):
            return asked
        return replace(asked, cores=self.share)

    def reserve(self, handle: ProcessHandle) -> None:
        """Take the cores of a task from the others before it starts."""
        if handle.cores:
            self._reserved |= dict.fromkeys(self._cpusets(handle), handle.cores)
            self.write()

    def started(self, handle: ProcessHandle, planned: tuple[int, ...]) -> None:
        """Count a task that has started on the planned cores; the share may have changed since its plan."""
        if not handle.cores:
            self._sharing.update(self._cpusets(handle))
            if (planned or tuple(sorted(self._cores))) != self.share:
                self._stale.update(self._cpusets(handle))
        self.write()

    def recovered(self, handle: ProcessHandle) -> None:
        """Count a living task of an earlier agent; nothing is written before the share was written once.

        A driver that was imported late finds its tasks after the others.
        """
        for folder in self._cpusets(handle):
            cores = self._listed_cores(folder) if handle.cores is None else handle.cores
            if cores:
                self._reserved[folder] = cores
            elif folder not in self._sharing:
                self._sharing.add(folder)
                self._stale.add(folder)
        if self._is_open:
            self.write()

    def release(self, handle: ProcessHandle) -> None:
        """Give the cores of a task back to the others."""
        for folder in self._cpusets(handle):
            self._reserved.pop(folder, None)
            self._sharing.discard(folder)
            self._stale.discard(folder)
        self.write()

    def write(self) -> None:
        """Write the share into the cpusets that have another list; those that fail are tried at the next change."""
        self._is_open = True
        share = self.share
        if share != self._written:
            self._written, self._stale = share, set(self._sharing)
        if self._stale:
            self._stale = {folder for folder in self._stale if not self._put(folder, ",".join(map(str, share)))}

    def _put(self, folder: str, cores: str) -> bool:
        is_written = self._write_setting(f"{folder}/cpuset.cpus", cores)
        if not is_written and os.path.isdir(folder):
            log.warning("cores of a cpuset cannot be written; trying again later: cgroup=%s cores=%s", folder, cores)
        return is_written

    def _listed_cores(self, folder: str) -> tuple[int, ...]:
        """The cores that a task of an older version reserves: its record has none, but only such a task had a list."""
        listed = parse_cores(read_text(f"{folder}/cpuset.cpus"))
        return tuple(sorted(listed)) if listed < self._cores else ()

    def _cpusets(self, handle: ProcessHandle) -> tuple[str, ...]:
        return tuple(each for each in handle.cgroups if self._folder and os.path.dirname(each) == self._folder)


def partitions_of(found: Hierarchies, parent: str) -> CpuPartitions:
    """The partitions below a parent cgroup, of the cores that both it and the agent may use."""
    is_v1 = "cpuset" in found.v1
    mount = found.v1["cpuset"] if is_v1 else found.unified if "cpuset" in found.controllers else ""
    folder = f"{mount}/{parent}" if mount else ""
    if folder not in SHARED:
        own = frozenset(os.sched_getaffinity(0))
        files = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus") if folder else ()
        texts = (read_text(f"{folder}/{name}") for name in files)
        cores = own & parse_cores(next(filter(str.strip, texts), ""))
        SHARED[folder] = CpuPartitions(folder, cores or own, needs_list=is_v1)
    return SHARED[folder]
