"""What lives on when the agent dies: every task, or in a dev run nothing. The agents are real processes, killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from yurt.executor import ProcessExecutor, ProcessHandle, cgroups
from yurt.executor.process_identity import start_time
from yurt.sdk.errors import NotFound
from yurt.sdk.value import seconds
from yurt.testing.fakes import eventually

AGENT = """
import asyncio, os, sys
import msgspec
from yurt.executor import ProcessExecutor, ProcessSpec

async def main(folder, mode, *scripts):
    executor = ProcessExecutor(state_dir=folder, dev=mode == "dev", cgroup_parent=f"yurt-test-{os.getpid()}.slice")
    handles = []
    for number, script in enumerate(scripts):
        spec = ProcessSpec(
            task_id=f"alloc/web/{number}", argv=("sh", "-c", script), env=dict(os.environ), cwd="/", logs_dir=folder,
            log_name=f"web{number}",
        )
        handles.append(await executor.start(spec))
    told = {"handles": handles, "zygote": executor.zygote_pid, "parents": executor.cgroup_parents}
    print(msgspec.json.encode(told).decode(), flush=True)
    if await asyncio.to_thread(sys.stdin.readline):
        await executor.close()

asyncio.run(main(*sys.argv[1:]))
"""


class Told(msgspec.Struct):
    """What an agent says of itself when its tasks run."""

    handles: list[ProcessHandle]
    zygote: int
    parents: list[str]


class Agent:
    """A process that starts tasks as an agent does."""

    def __init__(self, folder: Path, mode: str, *scripts: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, str(folder), mode, *scripts],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.told = msgspec.json.decode(self.process.stdout.readline(), type=Told)

    @property
    def task(self) -> ProcessHandle:
        """The handle of its first task."""
        return self.told.handles[0]

    def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        self.process.communicate()

    def close(self) -> None:
        """Let it close its executor and end."""
        self.process.communicate("close\n", timeout=60)

    def is_clean(self) -> bool:
        """Whether neither process nor cgroup of it is left."""
        pids = [self.told.zygote, *(pid for handle in self.told.handles for pid in (handle.pid, handle.shim_pid))]
        return not any(map(start_time, pids)) and not any(map(os.path.exists, self.told.parents))


MakeAgent = Callable[..., Agent]


@pytest.fixture
def make_agent(tmp_path: Path) -> Iterator[MakeAgent]:
    """Makes agents, and ends what a failed test leaves of them."""
    agents: list[Agent] = []

    def make(mode: str, *scripts: str) -> Agent:
        agents.append(Agent(tmp_path, mode, *scripts))
        return agents[-1]

    yield make
    for agent in agents:
        agent.kill()
        for handle in agent.told.handles:
            if start_time(handle.shim_pid) == handle.shim_start_time:
                os.kill(handle.shim_pid, signal.SIGCONT)
                os.kill(handle.shim_pid, signal.SIGTERM)
                psutil.Process(handle.shim_pid).wait(60)
            cgroups.remove(handle.cgroups)
        for parent in agent.told.parents:
            cgroups.remove((parent, f"{parent}/{cgroups.SHIMS}"))


async def test_a_task_whose_end_its_shim_is_about_to_write_is_found_again(
    make_agent: MakeAgent, eventually: Any
) -> None:
    agent = make_agent("keep", "exec sleep 1000")
    agent.kill()
    task = agent.task
    os.kill(task.shim_pid, signal.SIGSTOP)
    os.kill(task.pid, signal.SIGKILL)
    await eventually(lambda: start_time(task.pid) == 0)
    executor = ProcessExecutor(state_dir=str(agent.folder))
    await executor.recover(task)
    os.kill(task.shim_pid, signal.SIGCONT)
    assert (await executor.wait(task.task_id)).signal == signal.SIGKILL
    await executor.destroy(task.task_id)
    await executor.close()


async def test_a_task_survives_the_agent_and_is_found_again(make_agent: MakeAgent, eventually: Any) -> None:
    agent = make_agent("keep", "echo one; exec sleep 1000")
    agent.kill()
    await eventually(lambda: not start_time(agent.told.zygote))
    parent = next(iter(agent.told.parents), "").rpartition("/")[2]  # none where cgroups may not be made
    executor = ProcessExecutor(state_dir=str(agent.folder), cgroup_parent=parent)
    await executor.recover(agent.task)
    assert start_time(agent.task.pid) == agent.task.start_time
    await executor.stop(agent.task.task_id, signal_name="SIGTERM", timeout=seconds(5))
    assert (await executor.wait(agent.task.task_id)).signal == signal.SIGTERM
    await executor.destroy(agent.task.task_id)
    await executor.close()
    cgroups.remove(tuple(agent.told.parents))  # the operator's; empty from now on
    assert agent.is_clean()


async def test_logs_go_on_without_the_agent(make_agent: MakeAgent, eventually: Any, tmp_path: Path) -> None:
    agent = make_agent("keep", f"echo before; while [ ! -e {tmp_path}/go ]; do sleep 0.02; done; echo after")
    agent.kill()
    (tmp_path / "go").touch()
    await eventually(lambda: Path(agent.task.exit_file).exists())
    assert (agent.folder / "web0.stdout.0").read_text() == "before\nafter\n"


async def test_an_end_while_no_agent_runs_is_known_afterwards(make_agent: MakeAgent, eventually: Any) -> None:
    agent = make_agent("keep", "sleep 0.2; echo late; exit 11")
    agent.kill()
    await eventually(lambda: not start_time(agent.task.shim_pid))
    executor = ProcessExecutor(state_dir=str(agent.folder))
    await executor.recover(agent.task)
    result = await executor.wait(agent.task.task_id)
    assert (result.exit_code, (agent.folder / "web0.stdout.0").read_text()) == (11, "late\n")
    await executor.destroy(agent.task.task_id)
    with pytest.raises(NotFound):
        await executor.recover(agent.task)
    await executor.close()


async def test_exec_works_in_a_task_that_was_found_again(make_agent: MakeAgent) -> None:
    agent = make_agent("keep", "cd /usr && MARK=1 exec sleep 1000")
    await eventually(lambda: psutil.Process(agent.task.pid).cmdline() == ["sleep", "1000"])
    agent.kill()
    executor = ProcessExecutor(state_dir=str(agent.folder))
    await executor.recover(agent.task)
    result = await executor.exec(agent.task.task_id, ("sh", "-c", "pwd; echo $MARK"), timeout=seconds(5))
    assert result.stdout.split() == [b"/usr", b"1"]
    await executor.destroy(agent.task.task_id)
    await executor.close()


async def test_closing_an_executor_leaves_the_tasks(make_agent: MakeAgent) -> None:
    agent = make_agent("keep", "exec sleep 1000")
    agent.close()
    assert start_time(agent.task.pid) == agent.task.start_time
    assert not start_time(agent.told.zygote)


async def test_when_a_dev_agent_vanishes_nothing_is_left(make_agent: MakeAgent, eventually: Any) -> None:
    agent = make_agent(
        "dev", "trap '' TERM INT HUP; while :; do sleep 1; done", "(setsid sleep 1000 &); exec sleep 1000"
    )
    agent.kill()
    await eventually(agent.is_clean)


async def test_a_dev_run_ends_even_when_its_zygote_went_first(make_agent: MakeAgent, eventually: Any) -> None:
    agent = make_agent("dev", "exec sleep 1000")
    os.kill(agent.told.zygote, signal.SIGKILL)
    agent.kill()
    await eventually(lambda: not start_time(agent.task.pid) and not start_time(agent.task.shim_pid))


async def test_closing_the_executor_of_a_dev_run_returns_when_all_is_gone(make_agent: MakeAgent) -> None:
    agent = make_agent("dev", "trap '' TERM; while :; do sleep 1; done", "exec sleep 1000")
    agent.close()
    assert agent.is_clean()
