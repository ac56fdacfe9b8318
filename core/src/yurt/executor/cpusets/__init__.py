"""Keeps tasks without reserved cores off the cores that other tasks reserve.

All executors of an agent share one `CpuPartitions` for a parent cgroup. A task with `cores` runs on these alone; the
others share the rest, which is written into their cpuset whenever cores are reserved or released. Where the reserved
cores are all that there are, the others keep all of them: a task without a core could not run.

Cpusets outlive the agent. A recovered task is only counted, as its cpuset is already right; the next change writes all.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from yurt.executor.cgroups import Hierarchies, write_setting
from yurt.executor.spec import CgroupSpec, ProcessHandle
from yurt.sdk.value import replace

SHARED: dict[str, CpuPartitions] = {}


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
        self._written: tuple[int, ...] | None = None

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
            self.count(handle)
            self._write()

    def count(self, handle: ProcessHandle) -> None:
        """Count a task, whose cpuset is right."""
        for folder in self._cpusets(handle):
            if handle.cores:
                self._reserved[folder] = handle.cores
            else:
                self._sharing.add(folder)

    def started(self, handle: ProcessHandle) -> None:
        """Count a task that has started; cores may have been reserved since its plan."""
        self.count(handle)
        if not handle.cores and self._reserved:
            for folder in self._cpusets(handle):
                self._write_setting(f"{folder}/cpuset.cpus", _listed(self.share))
        self._write()

    def release(self, handle: ProcessHandle) -> None:
        """Give the cores of a task back to the others."""
        for folder in self._cpusets(handle):
            self._reserved.pop(folder, None)
            self._sharing.discard(folder)
        self._write()

    def _write(self) -> None:
        """Write the share into the cpusets of all tasks that use it, if it has changed."""
        share = self.share
        if share == self._written:
            return
        self._written = share
        for folder in self._sharing:
            self._write_setting(f"{folder}/cpuset.cpus", _listed(share))

    def _cpusets(self, handle: ProcessHandle) -> tuple[str, ...]:
        return tuple(each for each in handle.cgroups if self._folder and os.path.dirname(each) == self._folder)


def partitions_of(found: Hierarchies, parent: str) -> CpuPartitions:
    """The partitions below a parent cgroup."""
    is_v1 = "cpuset" in found.v1
    mount = found.v1["cpuset"] if is_v1 else found.unified if "cpuset" in found.controllers else ""
    folder = f"{mount}/{parent}" if mount else ""
    if folder not in SHARED:
        SHARED[folder] = CpuPartitions(folder, frozenset(os.sched_getaffinity(0)), needs_list=is_v1)
    return SHARED[folder]


def _listed(cores: tuple[int, ...]) -> str:
    return ",".join(map(str, cores))
