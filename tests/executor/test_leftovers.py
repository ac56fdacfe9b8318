"""Tasks whose agent was killed are found by what their shims wrote, ended as a whole, and found no more."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.executor import ProcessExecutor, ProcessSpec, cgroups
from yurt.executor.leftovers import belongs, end, find_leftover_tasks
from yurt.executor.process_identity import start_time
from yurt.testing.fakes import eventually

HAS_PROC = os.path.isdir("/proc/self")
PARENT = f"yurt-test-{os.getpid()}.slice"


@pytest.fixture(autouse=True)
def parents() -> Iterator[tuple[str, ...]]:
    """The operator's parent cgroups, removed afterwards."""
    found = cgroups.prepare(PARENT)[1]
    yield found
    cgroups.remove(tuple(path for folder in found for path in (folder, f"{folder}/{cgroups.SHIMS}")))


async def left_behind(folder: Path, script: str, *, env: dict[str, str] | None = None) -> int:
    """Start a task and leave it, as an agent that ends does; the pid of its main process."""
    executor = ProcessExecutor(state_dir=str(folder), cgroup_parent=PARENT)
    spec = ProcessSpec(
        task_id="alloc/web/0", argv=("sh", "-c", script), env={**os.environ, **(env or {})}, cwd="/",
        logs_dir=str(folder), log_name="web",
    )  # fmt: skip
    handle = await executor.start(spec)
    await executor.close()
    return handle.pid


async def test_all_processes_of_a_task_end_and_its_exit_is_recorded(tmp_path: Path) -> None:
    pid = await left_behind(tmp_path, "setsid sleep 3000 & sleep 3000")
    (task,) = find_leftover_tasks([tmp_path], "/nowhere/alloc")
    assert (task.task_id, task.members[0][0]) == ("alloc/web/0", pid)

    await end(task)

    assert start_time(pid) == 0 and start_time(task.shim[0]) == 0
    await eventually(lambda: find_leftover_tasks([tmp_path], "/nowhere/alloc") == ())
    assert list((tmp_path / "executor").glob("*.exit")), "an agent that starts again finds how it ended"


async def test_a_task_that_ended_is_none(tmp_path: Path) -> None:
    pid = await left_behind(tmp_path, "exit 0")
    await eventually(lambda: start_time(pid) == 0)
    await eventually(lambda: find_leftover_tasks([tmp_path], "/nowhere/alloc") == ())


async def test_a_process_is_told_by_where_it_works(tmp_path: Path) -> None:
    alloc = tmp_path / "alloc"
    (alloc / "one").mkdir(parents=True)
    sleep = ("sleep", "3000")
    by_folder = await asyncio.create_subprocess_exec(*sleep, cwd=alloc / "one", env={"PATH": os.environ["PATH"]})
    by_variable = await asyncio.create_subprocess_exec(
        *sleep, cwd="/", env={"PATH": os.environ["PATH"], "NOMAD_ALLOC_DIR": f"{alloc}/one/alloc"}
    )
    stranger = await asyncio.create_subprocess_exec(*sleep, cwd=tmp_path, env={"PATH": os.environ["PATH"]})
    try:
        if HAS_PROC:
            await eventually(lambda: belongs(by_variable.pid, str(alloc)))
            assert belongs(by_folder.pid, str(alloc))
            assert not belongs(by_folder.pid, str(tmp_path / "all"))
        assert not belongs(stranger.pid, str(alloc))
    finally:
        for process in (by_folder, by_variable, stranger):
            process.kill()
            await process.wait()


async def test_a_task_without_a_record_is_found_below_the_configured_parent(
    tmp_path: Path, parents: tuple[str, ...]
) -> None:
    if not parents:
        pytest.skip("no cgroup that may be written to on this host")
    pid = await left_behind(tmp_path, "exec sleep 3000", env={"NOMAD_ALLOC_DIR": f"{tmp_path}/alloc/one/alloc"})
    shutil.rmtree(tmp_path / "executor")
    assert find_leftover_tasks([tmp_path], f"{tmp_path}/alloc") == ()
    (task,) = find_leftover_tasks([tmp_path], f"{tmp_path}/alloc", PARENT)
    await end(task)
    assert pid in {member for member, _ in task.members} and start_time(pid) == 0
