"""A client with the real raw_exec driver: real processes, and an agent that is killed without warning."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from yurt.client.client import Client
from yurt.client.config import ClientConfig
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import AgentPaths, PluginContext
from yurt.sdk.value import replace
from yurt.storage.client_db import ClientDatabase
from yurt.structs.alloc import Allocation
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING, JOB_BATCH
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeServerPort, eventually

plugin = pytest.importorskip("yurt_driver_raw_exec.plugin", reason="the raw_exec driver is not installed")

ALLOC_ID = "12345678-0000-4000-8000-000000000001"

AGENT = """
import asyncio, sys
sys.path.insert(0, {folder!r})
from test_raw_exec import agent, alloc_of
from yurt.testing.fakes import FakeServerPort, eventually
from pathlib import Path

async def main():
    server = FakeServerPort()
    async with agent(Path({root!r}), server) as client:
        alloc = alloc_of(client.node_id, {script!r})
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == "running", within_s=10)
        print(client.runners[alloc.id].tasks["web"].handle.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def alloc_of(node_id: str, script: str, **task_changes: Any) -> Allocation:
    """A batch allocation that runs a shell script."""
    task = factories.task(driver="raw_exec", config={"command": "sh", "args": ["-c", script]}, **task_changes)
    job = factories.job(type=JOB_BATCH, task_groups=(factories.group(tasks=(task,), update=None, migrate=None),))
    alloc = placed(node_id, job=job)
    assert alloc.job is not None
    group = replace(alloc.job.task_groups[0], tasks=(task,))
    return replace(alloc, id=ALLOC_ID, job=replace(alloc.job, task_groups=(group,)))


@asynccontextmanager
async def agent(root: Path, server: FakeServerPort) -> AsyncIterator[Client]:
    """An agent's client with a state directory of its own; leaving it leaves the tasks."""
    (root / "client").mkdir(parents=True, exist_ok=True)
    paths = AgentPaths(state_dir=str(root / "plugins"), run_dir=str(root / "run"))
    context = PluginContext(config={"enabled": True}, paths=paths)
    driver = plugin.yurt_task_drivers(context)[0]
    database = ClientDatabase(root / "client" / "client.db")
    client = Client(
        ClientConfig(state_dir=str(root / "state"), alloc_dir=str(root / "alloc"), dev=True),
        env=RealEnv(),
        server=server,
        drivers={"raw_exec": driver},
        plugin_attributes={},
        database=database,
    )
    ready = asyncio.Event()
    running = asyncio.ensure_future(client.run(ready=ready))
    try:
        async with asyncio.timeout(10):
            await ready.wait()
        yield client
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await driver.close()
        await database.close()


async def test_a_real_task_runs_with_its_environment_and_its_output_can_be_read(tmp_path: Path):
    server = FakeServerPort()
    async with agent(tmp_path, server) as client:
        alloc = alloc_of(client.node_id, "echo $NOMAD_TASK_NAME $GREETING $0; exit 0", env={"GREETING": "hi"})

        server.put_alloc(alloc)

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        stream = client.stream_logs(alloc.id, "web", kind="stdout", offset=0, origin="start", follow=True)
        assert b"".join([frame.data async for frame in stream]) == b"web hi sh\n"


async def test_use_of_a_real_task_is_measured(tmp_path: Path):
    server = FakeServerPort()
    async with agent(tmp_path, server) as client:
        alloc = alloc_of(client.node_id, "exec sleep 60")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)

        usage = await client.alloc_stats(alloc.id, "web")

        assert usage.tasks["web"].resource_usage.memory_stats.rss > 0
        assert (await client.host_stats()).memory["Total"] > 0
        await client.stop_all()


@contextlib.asynccontextmanager
async def killed_agent(root: Path, script: str) -> AsyncIterator[int]:
    """The pid of a task whose agent, another process, was killed at once."""
    source = AGENT.format(folder=str(Path(__file__).parent), root=str(root), script=script)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", source, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(20):
            pid = int(await process.stdout.readline())
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
    try:
        yield pid
    finally:
        with contextlib.suppress(psutil.NoSuchProcess):
            if "sleep" in " ".join(psutil.Process(pid).cmdline()):
                os.kill(pid, signal.SIGKILL)


async def server_that_knows(root: Path) -> FakeServerPort:
    """A server that lists what the killed agent ran."""
    database = ClientDatabase(root / "client" / "client.db")
    records = await database.allocs()
    await database.close()
    server = FakeServerPort()
    server.index = 100
    assert records[0].alloc is not None
    server.put_alloc(records[0].alloc)
    return server


async def test_kill_9_of_the_agent_leaves_the_task_and_the_next_agent_has_the_same_process(tmp_path: Path):
    async with killed_agent(tmp_path, "while [ ! -f go ]; do sleep 0.02; done; exit 7") as pid:
        assert psutil.pid_exists(pid)
        server = await server_that_knows(tmp_path)
        async with agent(tmp_path, server) as client:
            runner = client.runners[ALLOC_ID].tasks["web"]
            assert runner.handle is not None and runner.handle.pid == pid and psutil.pid_exists(pid)
            state = server.last_update(ALLOC_ID).task_states["web"]
            assert state.state == "running" and state.restarts == 0
            assert [event.type for event in state.events].count("Started") == 1

            (tmp_path / "alloc" / ALLOC_ID / "web" / "go").touch()

            await eventually(lambda: server.last_update(ALLOC_ID).task_states["web"].restarts == 1)
            assert 7 in [event.exit_code for event in server.last_update(ALLOC_ID).task_states["web"].events]
            await client.stop_all()


async def test_an_end_while_no_agent_was_there_keeps_its_exit_code(tmp_path: Path):
    async with killed_agent(tmp_path, "while [ ! -f go ]; do sleep 0.02; done; exit 0") as pid:
        (tmp_path / "alloc" / ALLOC_ID / "web" / "go").touch()
        await eventually(lambda: not psutil.pid_exists(pid))
        server = await server_that_knows(tmp_path)

        async with agent(tmp_path, server):
            await eventually(lambda: server.status_of(ALLOC_ID) == CLIENT_COMPLETE)
            events = server.last_update(ALLOC_ID).task_states["web"].events
            assert [event.display_message for event in events][-1] == "Exit Code: 0"
