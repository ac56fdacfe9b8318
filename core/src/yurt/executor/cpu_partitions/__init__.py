"""Keeps tasks without reserved cores off the cores that other tasks reserve, through their cpusets.

The cores are divided by `sdk.core_partitions`, which all drivers of an agent share; here are the cpusets of processes
below one parent cgroup. Cpusets outlive the agent. Each executor counts the living tasks of its records before any of
them opens; the lists are written once all drivers have recovered their tasks, because tasks may have ended while no
agent ran.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial

from yurt.executor.cgroups import Hierarchies, parse_cores, read_text, write_setting
from yurt.executor.spec import CgroupSpec, ProcessHandle
from yurt.sdk.core_partitions import CorePartitions, CoreSharer
from yurt.sdk.value import replace

log = logging.getLogger(__name__)


class CpuPartitions:
    """The cpusets of the tasks below one folder of the cpuset hierarchy; "" without one."""

    def __init__(
        self,
        folder: str,
        cores: frozenset[int],
        partitions: CorePartitions,
        *,
        needs_list: bool,
        write: Callable[[str, str], bool] = write_setting,
    ) -> None:
        """`needs_list`: tasks are in a cpuset of their own only with a list of cores, as with cgroups v1."""
        self._write_setting = write
        self._folder = folder
        self._cores = cores
        self._partitions = partitions
        self._needs_list = needs_list
        self._logged: set[str] = set()
        """The cpusets that could not be written; each is logged once."""

    @classmethod
    def below(cls, found: Hierarchies, parent: str, partitions: CorePartitions) -> CpuPartitions:
        """The cpusets below a parent cgroup, of the cores that both it and the agent may use."""
        is_v1 = "cpuset" in found.v1
        mount = found.v1["cpuset"] if is_v1 else found.unified if "cpuset" in found.controllers else ""
        folder = f"{mount}/{parent}" if mount else ""
        own = own_cores()
        files = ("cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus") if folder else ()
        texts = (read_text(f"{folder}/{name}") for name in files)
        cores = own & parse_cores(next(filter(str.strip, texts), ""))
        return cls(folder, cores or own, partitions, needs_list=is_v1)

    @property
    def share(self) -> tuple[int, ...]:
        """The cores of tasks that reserve none."""
        return self._partitions.share(self._cores)

    def plan(self, spec: CgroupSpec) -> CgroupSpec:
        """The limits of a task with the cores on which it may run."""
        needs = self._needs_list or self._partitions.reserved
        if spec.cores or spec.is_overridden or not self._folder or not needs:
            return spec
        return replace(spec, cores=self.share)

    def reserve(self, handle: ProcessHandle) -> None:
        """Take the cores of a task from the others before it starts."""
        if handle.cores:
            for folder in self._cpusets(handle):
                self._partitions.reserve(folder, handle.cores)
            self.write()

    def started(self, handle: ProcessHandle, planned: tuple[int, ...]) -> None:
        """Count a task that has started on the planned cores; the share may have changed since its plan."""
        if not handle.cores:
            for folder in self._cpusets(handle):
                self._partitions.join(folder, self._member(folder), planned or tuple(sorted(self._cores)))
        self.write()

    def recovered(self, handle: ProcessHandle) -> None:
        """Count a living task of an earlier agent; that of an older version is left alone while its cores are unknown.

        Its cpuset does not tell them: a later agent may have taken it off the cores of others.
        """
        for folder in self._cpusets(handle):
            if handle.cores:
                self._partitions.reserve(folder, handle.cores)
            elif handle.cores is not None and not self._partitions.is_member(folder):
                self._partitions.join(folder, self._member(folder), None)

    def release(self, handle: ProcessHandle) -> None:
        """Give the cores of a task back to the others."""
        for folder in self._cpusets(handle):
            self._partitions.leave(folder)
            self._logged.discard(folder)
        self.write()

    def write(self) -> None:
        """Write the lists of all tasks that have another one than their share."""
        self._partitions.write()

    def _member(self, folder: str) -> CoreSharer:
        return CoreSharer(cores=self._cores, write=partial(self._put, folder))

    def _put(self, folder: str, cores: tuple[int, ...]) -> bool:
        text = ",".join(map(str, cores))
        is_written = self._write_setting(f"{folder}/cpuset.cpus", text)
        if is_written:
            self._logged.discard(folder)
        elif folder not in self._logged and os.path.isdir(folder):
            self._logged.add(folder)
            log.warning("cores of a cpuset cannot be written; trying again later: cgroup=%s cores=%s", folder, text)
        return is_written

    def _cpusets(self, handle: ProcessHandle) -> tuple[str, ...]:
        return tuple(each for each in handle.cgroups if self._folder and os.path.dirname(each) == self._folder)


def own_cores() -> frozenset[int]:
    """The cores that the agent may use; all of the machine where the system does not tell (macOS)."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))
