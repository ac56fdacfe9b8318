"""An agent that is killed while it starts a task: never an orphan, never two (invariants E3 and E4)."""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from yurt.executor.process_executor import ProcessExecutor
from yurt.executor.spec import CgroupPlan, ProcessHandle, ProcessSpec
from yurt.executor.start_files import StartFiles
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.errors import NotFound
from yurt.storage.client_db import ClientDatabase
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeServerPort, eventually
from yurt.testing.real_agent import ALLOC_ID, agent_client, server_that_knows, shell_alloc

plugin = pytest.importorskip("yurt_driver_raw_exec.plugin", reason="the raw_exec driver is not installed")

ATTEMPTS = 4
AGENTS = 2
START_TAKES_S = 0.05

AGENT = """
import asyncio
from pathlib import Path
from yurt.testing.fakes import FakeServerPort
from yurt.testing.real_agent import agent_client, server_that_knows, shell_alloc
from yurt_driver_raw_exec.plugin import yurt_task_drivers

async def main():
    root = Path({root!r})
    server = await server_that_knows(root)
    async with agent_client(root, server, lambda context: yurt_task_drivers(context)[0]) as client:
        if {alloc_id!r} not in server.allocs:
            server.put_alloc(shell_alloc(client.node_id, {script!r}, alloc_id={alloc_id!r}))
        print("ready", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


TASK_ID = f"{uuid.uuid4()}/web/0"
"""Of executors that share the cgroups' folder with those of other processes of tests."""


def running(marker: str) -> list[int]:
    """The pids of tasks that bear the marker."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            if words[:1] == ["sleep"] and words[-1] == marker:
                found.append(process.pid)
    return found


def raw_exec(context: PluginContext) -> Driver:
    """The driver of these tests."""
    driver: Driver = plugin.yurt_task_drivers(context)[0]
    return driver


@asynccontextmanager
async def agent_process(root: Path, script: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """An agent of its own that has just been given the allocation; killed without warning at the end."""
    source = AGENT.format(root=str(root), script=script, alloc_id=ALLOC_ID)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", source, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        await process.wait()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("attempt", range(ATTEMPTS))
async def test_agents_killed_at_any_moment_of_a_start_leave_one_process_at_most_and_the_next_has_it(
    tmp_path: Path, attempt: int
):
    chance = random.Random(attempt)
    marker = f"{4_000_000_000 + uuid.uuid4().int % 1_000_000_000}"
    script = f"exec sleep {marker}"
    for _ in range(AGENTS):
        async with agent_process(tmp_path, script):
            await asyncio.sleep(chance.random() * START_TAKES_S)  # the moment of the kill is what is tested
        assert len(running(marker)) <= 1

    server = await server_that_knows(tmp_path)
    async with agent_client(tmp_path, server, raw_exec) as client:
        if ALLOC_ID not in server.allocs:
            server.put_alloc(shell_alloc(client.node_id, script))
        await eventually(lambda: server.status_of(ALLOC_ID) == "running")
        await eventually(lambda: len(running(marker)) == 1)
        assert client.allocs.live[ALLOC_ID].tasks["web"].machine.state.restarts == 0
        await client.stop_all()
        assert running(marker) == []
        await eventually(lambda: list((tmp_path / "plugins" / "executor").iterdir()) == [])


async def test_the_directory_of_an_allocation_is_whole_though_its_agent_was_killed_while_it_was_made(
    run_client: Any, server: FakeServerPort, database: ClientDatabase, tmp_path: Path
):
    async with run_client() as killed:
        alloc = placed(killed.node_id)
    await database.put_alloc(alloc)
    begun = tmp_path / "alloc" / alloc.id / "alloc"
    begun.mkdir(parents=True)
    server.put_alloc(alloc)

    async with run_client():
        await eventually(lambda: server.status_of(alloc.id) == "running")

    assert sorted(path.name for path in begun.iterdir()) == ["data", "logs", "tmp"]


def sleeper(folder: Path, task_id: str) -> ProcessSpec:
    """A process that stays."""
    return ProcessSpec(
        task_id=task_id,
        argv=("sleep", "600"),
        env={"PATH": "/usr/bin:/bin"},
        cwd="/",
        logs_dir=str(folder),
        log_name="task",
    )


@asynccontextmanager
async def executor_in(folder: Path) -> AsyncIterator[ProcessExecutor]:
    """One agent's executor; leaving it leaves the tasks."""
    executor = ProcessExecutor(state_dir=str(folder))
    try:
        yield executor
    finally:
        await executor.close()


async def test_a_request_that_nobody_took_is_withdrawn_and_never_carried_out(tmp_path: Path):
    task_id = TASK_ID
    async with executor_in(tmp_path) as killed, executor_in(tmp_path) as present:
        await killed.open()
        folder = tmp_path / "executor"
        StartFiles(folder).ask(killed._planned_handle(task_id, CgroupPlan(), cores=()), "token-of-the-killed-agent")

        with pytest.raises(NotFound, match="had not been started"):
            await present.recover_by_id(task_id)

        assert list(folder.iterdir()) == []
        handle = await present.start(sleeper(tmp_path, task_id))
        assert psutil.pid_exists(handle.pid)
        await present.destroy(task_id)


async def test_a_task_is_found_by_its_id_with_its_own_times(tmp_path: Path):
    async with executor_in(tmp_path) as first, executor_in(tmp_path) as second:
        handle = await first.start(sleeper(tmp_path, TASK_ID))

        await second.recover_by_id(TASK_ID)

        assert second.pid_of(TASK_ID) == handle.pid
        second.check_alive(TASK_ID)
        await second.destroy(TASK_ID)
        assert not psutil.pid_exists(handle.pid)


def write_taken(folder: Path, known: ProcessHandle) -> None:
    """What a shim leaves that took a task and was killed at once."""
    folder.mkdir()
    files = StartFiles(folder)
    Path(files.ask(known, "token")).rename(files.path(known.task_id))
    with Path(files.path(known.task_id)).open("ab") as file:
        file.write(b"999999999 12345\n")


async def test_a_shim_that_was_killed_before_it_had_started_its_task_leaves_nothing(tmp_path: Path):
    async with executor_in(tmp_path) as executor:
        folder = tmp_path / "executor"
        write_taken(folder, executor._planned_handle(TASK_ID, CgroupPlan(), cores=()))

        with pytest.raises(NotFound):
            await executor.recover_by_id(TASK_ID)

        assert list(folder.iterdir()) == []
