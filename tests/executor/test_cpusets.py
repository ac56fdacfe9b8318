"""Cores that a task reserves are its own: the others leave them, and get them back."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from yurt.executor.cpusets import CpuPartitions
from yurt.executor.spec import CgroupSpec, ProcessHandle
from yurt.sdk.value import UnixNano

from tests.executor.conftest import Workshop, existing

CORES = sorted(os.sched_getaffinity(0))


class Cpusets:
    """A folder of cpusets, and the partitions below it."""

    def __init__(self, folder: Path, *, needs_list: bool = True) -> None:
        self.folder = folder
        self.partitions = CpuPartitions(str(folder), frozenset(range(4)), needs_list=needs_list, write=written)

    def handle(self, name: str, *cores: int) -> ProcessHandle:
        """A task with a cpuset."""
        (self.folder / name).mkdir(exist_ok=True)
        (self.folder / name / "cpuset.cpus").touch()
        return ProcessHandle(
            task_id=name,
            pid=1,
            start_time=1,
            shim_pid=2,
            shim_start_time=2,
            boot_id="b",
            exit_file="",
            started_at=UnixNano(0),
            cgroups=(f"/elsewhere/{name}", str(self.folder / name)),
            cores=cores,
        )

    def cpus(self, name: str) -> str:
        """The cores of a task's cpuset."""
        return (self.folder / name / "cpuset.cpus").read_text()


def test_others_leave_reserved_cores_and_come_back(tmp_path: Path) -> None:
    made = Cpusets(tmp_path)
    shared, first, second = made.handle("shared"), made.handle("first", 1), made.handle("second", 2, 3)
    made.partitions.started(shared)
    for handle in (first, second):
        made.partitions.reserve(handle)
        made.partitions.started(handle)
    assert made.cpus("shared") == "0"
    assert made.cpus("first") == ""
    made.partitions.release(first)
    assert made.cpus("shared") == "0,1"
    made.partitions.release(second)
    assert made.cpus("shared") == "0,1,2,3"


def test_a_task_starts_on_what_is_left(tmp_path: Path) -> None:
    made = Cpusets(tmp_path, needs_list=False)
    asked = CgroupSpec(memory_bytes=1)
    assert made.partitions.plan(asked) == asked
    made.partitions.reserve(made.handle("first", 0, 1))
    assert made.partitions.plan(asked).cores == (2, 3)
    assert made.partitions.plan(CgroupSpec(cores=(3,))).cores == (3,)
    assert made.partitions.plan(CgroupSpec(override_v2="own")).cores == ()


def test_cores_that_are_reserved_during_a_start_are_left_at_its_end(tmp_path: Path) -> None:
    made = Cpusets(tmp_path)
    made.partitions.reserve(made.handle("first", 0))
    made.partitions.started(made.handle("late"))
    assert made.cpus("late") == "1,2,3"


def test_tasks_without_cores_keep_all_where_none_is_left(tmp_path: Path) -> None:
    made = Cpusets(tmp_path)
    made.partitions.reserve(made.handle("greedy", 0, 1, 2, 3))
    assert made.partitions.share == (0, 1, 2, 3)


def test_a_recovered_task_is_counted_and_its_cpuset_stays_until_a_change(tmp_path: Path) -> None:
    made = Cpusets(tmp_path)
    shared, first = made.handle("shared"), made.handle("first", 1)
    (tmp_path / "shared" / "cpuset.cpus").write_text("0,2,3")
    made.partitions.count(shared)
    made.partitions.count(first)
    assert (made.cpus("shared"), made.partitions.share) == ("0,2,3", (0, 2, 3))
    made.partitions.release(first)
    assert made.cpus("shared") == "0,1,2,3"


def written(path: str, text: str) -> bool:
    """Writes as the kernel takes it: the whole value."""
    return Path(path).write_text(text) > 0


def allowed(pid: int) -> list[int]:
    """The cores on which a process may run."""
    return sorted(os.sched_getaffinity(pid))


@pytest.mark.skipif(os.geteuid() != 0, reason="cpusets need root")
@pytest.mark.skipif(len(CORES) < 2, reason="this machine has one core")
async def test_real_tasks_move_off_reserved_cores(workshop: Workshop) -> None:
    shared = await workshop.executor.start(workshop.spec("sleep", "60"))
    if not existing(f"{folder}/cpuset.cpus" for folder in shared.cgroups):
        await workshop.executor.destroy(shared.task_id)
        pytest.skip("this machine has no cpuset controller for tasks")
    own = await workshop.executor.start(workshop.spec("sleep", "60", cgroup=CgroupSpec(cores=(CORES[1],))))
    late = await workshop.executor.start(workshop.spec("sleep", "60"))
    rest = [core for core in CORES if core != CORES[1]]
    assert (allowed(own.pid), allowed(shared.pid), allowed(late.pid)) == ([CORES[1]], rest, rest)
    await workshop.executor.destroy(own.task_id)
    assert (allowed(shared.pid), allowed(late.pid)) == (CORES, CORES)
    for handle in (shared, late):
        await workshop.executor.destroy(handle.task_id)
