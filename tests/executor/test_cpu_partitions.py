"""Cores that a task reserves are its own: the others leave them, and get them back."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from yurt.executor import ProcessExecutor
from yurt.executor.cgroups import Hierarchies
from yurt.executor.cpu_partitions import CpuPartitions
from yurt.executor.process_driver import ProcessDriver
from yurt.executor.process_identity import start_time
from yurt.executor.spec import CgroupSpec, ProcessHandle
from yurt.sdk import core_partitions
from yurt.sdk.core_partitions import CorePartitions
from yurt.sdk.driver import TaskHandle
from yurt.sdk.value import UnixNano, replace

from tests.executor.conftest import Eventually, Workshop, existing

CORES = sorted(os.sched_getaffinity(0))


class Cpusets:
    """A folder of cpusets, and the partitions below it."""

    def __init__(self, folder: Path, *, needs_list: bool = True) -> None:
        self.folder = folder
        self.partitions = CpuPartitions(
            str(folder), frozenset(range(4)), CorePartitions(), needs_list=needs_list, write=written
        )

    def handle(self, name: str, *cores: int, has_cores: bool = True) -> ProcessHandle:
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
            cores=cores if has_cores else None,
        )

    def cpus(self, name: str) -> str:
        """The cores of a task's cpuset."""
        return (self.folder / name / "cpuset.cpus").read_text()


def test_others_leave_reserved_cores_and_come_back(tmp_path: Path) -> None:
    made = Cpusets(tmp_path)
    shared, first, second = made.handle("shared"), made.handle("first", 1), made.handle("second", 2, 3)
    made.partitions.started(shared, (0, 1, 2, 3))
    for handle in (first, second):
        made.partitions.reserve(handle)
        made.partitions.started(handle, handle.cores or ())
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
    made.partitions.started(made.handle("late"), (0, 1, 2, 3))
    assert made.cpus("late") == "1,2,3"


def test_tasks_without_cores_keep_all_where_none_is_left(tmp_path: Path) -> None:
    made = Cpusets(tmp_path)
    made.partitions.reserve(made.handle("greedy", 0, 1, 2, 3))
    assert made.partitions.share == (0, 1, 2, 3)


def test_cores_that_are_released_during_a_start_are_given_at_its_end(tmp_path: Path) -> None:
    made = Cpusets(tmp_path)
    own = made.handle("own", 1)
    made.partitions.reserve(own)
    planned = made.partitions.plan(CgroupSpec()).cores
    made.partitions.release(own)
    made.partitions.started(made.handle("late"), planned)
    assert (planned, made.cpus("late")) == ((0, 2, 3), "0,1,2,3")


def test_recovered_tasks_are_written_once_when_all_are_counted(tmp_path: Path) -> None:
    made = Cpusets(tmp_path)
    shared, first = made.handle("shared"), made.handle("first", 1)
    with core_partitions.held():
        made.partitions.recovered(shared)
        made.partitions.write()
        assert made.cpus("shared") == ""
        made.partitions.recovered(first)
    made.partitions.write()
    assert made.cpus("shared") == "0,2,3"
    (tmp_path / "shared" / "cpuset.cpus").write_text("unchanged")
    made.partitions.recovered(shared)
    made.partitions.write()
    assert made.cpus("shared") == "unchanged"


def test_a_task_without_recorded_cores_is_left_alone(tmp_path: Path) -> None:
    made = Cpusets(tmp_path)
    handle = made.handle("old", has_cores=False)
    (tmp_path / "old" / "cpuset.cpus").write_text("1-2")
    made.partitions.recovered(handle)
    made.partitions.write()
    assert (made.partitions.share, made.cpus("old")) == ((0, 1, 2, 3), "1-2")


def test_a_write_that_fails_is_logged_and_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made = Cpusets(tmp_path)
    made.partitions.started(made.handle("shared"), ())
    failing = [True]
    made.partitions._write_setting = lambda path, text: not failing[0] and written(path, text)
    made.partitions.reserve(made.handle("own", 1))
    made.partitions.write()
    assert caplog.text.count("cgroup=") == 1 and made.cpus("shared") == ""
    failing[0] = False
    made.partitions.write()
    assert made.cpus("shared") == "0,2,3"


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


def need_cpusets(handle: ProcessHandle) -> None:
    """Skip the test where tasks have no cpuset."""
    if not existing(f"{folder}/cpuset.cpus" for folder in handle.cgroups):
        pytest.skip("this machine has no cpuset controller for tasks")


@pytest.fixture
async def restarted(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Callable[[], ProcessExecutor]]:
    """Makes the executor of the next agent, which knows nothing but its files."""
    made: list[ProcessExecutor] = []

    def restart() -> ProcessExecutor:
        monkeypatch.setattr(core_partitions, "SHARED", {})
        made.append(ProcessExecutor(state_dir=str(workshop.folder), dev=True))
        return made[-1]

    yield restart
    for executor in made:
        await executor.close()


@pytest.mark.skipif(os.geteuid() != 0 or len(CORES) < 2, reason="cpusets need root and two cores")
async def test_the_next_agent_gives_back_the_cores_of_a_task_that_has_died(
    workshop: Workshop, restarted: Callable[[], ProcessExecutor], eventually: Eventually
) -> None:
    shared = await workshop.executor.start(workshop.spec("sleep", "60"))
    need_cpusets(shared)
    own = await workshop.executor.start(workshop.spec("sleep", "60", cgroup=CgroupSpec(cores=(CORES[1],))))
    for pid in (own.shim_pid, own.pid):
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not start_time(own.pid))

    then = restarted()
    assert allowed(shared.pid) == [core for core in CORES if core != CORES[1]]
    await then.open()

    assert allowed(shared.pid) == CORES
    for task in (own, shared):
        await workshop.executor.destroy(task.task_id)


@pytest.mark.skipif(os.geteuid() != 0 or len(CORES) < 2, reason="cpusets need root and two cores")
async def test_the_next_agent_counts_reserved_cores_before_their_task_is_recovered(
    workshop: Workshop, restarted: Callable[[], ProcessExecutor]
) -> None:
    shared, ended = [await workshop.executor.start(workshop.spec(*argv)) for argv in (("sleep", "60"), ("true",))]
    need_cpusets(shared)
    own = await workshop.executor.start(workshop.spec("sleep", "60", cgroup=CgroupSpec(cores=(CORES[1],))))
    await workshop.executor.wait(ended.task_id)

    then = restarted()
    await then.recover(ended)
    await then.destroy(ended.task_id)

    assert allowed(shared.pid) == [core for core in CORES if core != CORES[1]]
    for task in (own, shared):
        await workshop.executor.destroy(task.task_id)
    await workshop.executor.destroy(ended.task_id)


def test_partitions_are_those_cores_that_the_operator_left_to_the_parent(
    tmp_path: Path,
) -> None:
    (tmp_path / "own.slice").mkdir()
    (tmp_path / "own.slice" / "cpuset.cpus").write_text(f"{CORES[0]}\n")
    found = Hierarchies(v1={"cpuset": str(tmp_path)})
    assert CpuPartitions.below(found, "own.slice", CorePartitions()).share == (CORES[0],)
    assert CpuPartitions.below(found, "empty.slice", CorePartitions()).share == tuple(CORES)


def test_where_the_system_does_not_tell_the_cores_of_a_process_all_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert CpuPartitions.below(Hierarchies(), "own.slice", CorePartitions()).share == (0, 1, 2)


async def test_the_cores_of_an_older_version_come_from_the_allocation(tmp_path: Path) -> None:
    found: list[ProcessHandle] = []

    class Executor:
        """Remembers what it recovers."""

        async def recover(self, handle: ProcessHandle) -> None:
            found.append(handle)

    driver: Any = ProcessDriver("x", task_config=CgroupSpec, process_for=replace, executor=Executor())  # type: ignore[arg-type]
    made = Cpusets(tmp_path)
    for has_cores in (False, True):
        state = msgspec.to_builtins(made.handle("own", has_cores=has_cores))
        await driver.recover_task(TaskHandle(driver="x", task_id="own", state=state, reserved_cores=(1, 2)))
    assert [handle.cores for handle in found] == [(1, 2), ()]
