"""A client with the real raw_exec driver: real processes, and an agent that is killed without warning."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psutil
import pytest
from yurt.client.client import Client
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING
from yurt.testing.fakes import FakeServerPort, eventually
from yurt.testing.real_agent import ALLOC_ID, agent_client, server_that_knows, shell_alloc

plugin = pytest.importorskip("yurt_driver_raw_exec.plugin", reason="the raw_exec driver is not installed")

AGENT = """
import asyncio
from pathlib import Path
from yurt.testing.fakes import FakeServerPort, eventually
from yurt.testing.real_agent import agent_client, shell_alloc
from yurt_driver_raw_exec.plugin import yurt_task_drivers

async def main():
    server = FakeServerPort()
    async with agent_client(Path({root!r}), server, lambda context: yurt_task_drivers(context)[0]) as client:
        alloc = shell_alloc(client.node_id, {script!r}, alloc_id={alloc_id!r})
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == "running")
        print(client.allocs.live[alloc.id].tasks["web"].handle.pid, flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def agent(root: Path, server: FakeServerPort) -> AbstractAsyncContextManager[Client]:
    """An agent's client with raw_exec; leaving it leaves the tasks."""
    return agent_client(root, server, lambda context: plugin.yurt_task_drivers(context)[0])


async def test_a_real_task_runs_with_its_environment_and_its_output_can_be_read(tmp_path: Path):
    server = FakeServerPort()
    async with agent(tmp_path, server) as client:
        alloc = shell_alloc(client.node_id, "echo $NOMAD_TASK_NAME $GREETING $0; exit 0", env={"GREETING": "hi"})

        server.put_alloc(alloc)

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        stream = client.calls.stream_logs(alloc.id, "web", kind="stdout", offset=0, origin="start", follow=True)
        assert b"".join([frame.data async for frame in stream]) == b"web hi sh\n"


async def test_use_of_a_real_task_is_measured(tmp_path: Path):
    server = FakeServerPort()
    async with agent(tmp_path, server) as client:
        alloc = shell_alloc(client.node_id, "exec sleep 60")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)

        usage = await client.calls.alloc_stats(alloc.id, "web")

        assert usage.tasks["web"].resource_usage.memory_stats.rss > 0
        assert (await client.calls.host_stats()).memory["Total"] > 0
        await client.stop_all()


@contextlib.asynccontextmanager
async def killed_agent(root: Path, script: str) -> AsyncIterator[int]:
    """The pid of a task whose agent, another process, was killed at once."""
    source = AGENT.format(root=str(root), script=script, alloc_id=ALLOC_ID)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", source, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
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


async def test_kill_9_of_the_agent_leaves_the_task_and_the_next_agent_has_the_same_process(tmp_path: Path):
    async with killed_agent(tmp_path, "while [ ! -f go ]; do sleep 0.02; done; exit 7") as pid:
        assert psutil.pid_exists(pid)
        server = await server_that_knows(tmp_path)
        async with agent(tmp_path, server) as client:
            runner = client.allocs.live[ALLOC_ID].tasks["web"]
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
