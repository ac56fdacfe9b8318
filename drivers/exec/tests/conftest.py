"""Runs scripts in real exec tasks."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest_asyncio
from yurt.sdk.driver import ExitResult, TaskHandle, TaskResources
from yurt.sdk.errors import NotFound
from yurt.sdk.executor import ContainerExecutor
from yurt.sdk.value import replace
from yurt.testing.driver_suite import DriverBench
from yurt.testing.driver_suite.many_tasks import CGROUP_DEPTH, CGROUP_ROOT, folders_below
from yurt_driver_exec.driver import exec_driver


class Cell(DriverBench):
    """Runs scripts in isolated tasks of an agent that is configured in a certain way."""

    def __init__(self, folder: Path, *, plugin: Mapping[str, Any], options: Mapping[str, str]) -> None:
        super().__init__(
            lambda context: exec_driver(
                replace(context, config=plugin, options=options), ContainerExecutor.from_context(context)
            ),
            folder,
        )
        self.handle = TaskHandle(driver="exec", task_id=self.task_id)

    @property
    def task_id(self) -> str:
        """The one task of the cell."""
        return f"{self.alloc_id}/web/0"

    async def said(self, script: str, *, user: str = "", **config: Any) -> str:
        """What a script prints, to its end."""
        assert (await self.script(script, user=user, **config)).is_success, self.printed("stderr")
        return self.printed("stdout")

    async def script(self, script: str, *, user: str = "", **config: Any) -> ExitResult:
        """Run a script to its end."""
        await self.begin(script, user=user, **config)
        return await self.wait(self.task_id)

    async def begin(self, script: str, *, user: str = "", memory_mb: int = 128, **config: Any) -> int:
        """Start a script, after the last one; the pid of its shell."""
        with contextlib.suppress(NotFound):
            await self.driver.destroy_task(self.task_id)
        for path in (*self.output(), *self.output(stream="stderr")):
            path.unlink()
        request = self.request({"command": "sh", "args": ["-c", script], **config})
        self.started.append(self.task_id)
        resources = TaskResources(cpu_shares=100, memory_mb=memory_mb)
        self.handle = await self.driver.start_task(replace(request, user=user, resources=resources))
        return self.handle.pid

    def printed(self, stream: str) -> str:
        """The output so far."""
        return "".join(path.read_text() for path in self.output(stream=stream))

    def left(self) -> list[str]:
        """What of the task is on the host: mounts, cgroups, files of the executor."""
        mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(self.folder) in line]
        groups = [folder for folder in folders_below(CGROUP_ROOT, CGROUP_DEPTH) if self.alloc_id in folder]
        state = self.folder / "state"
        files = [str(path) for path in state.rglob("*") if self.alloc_id[:8] in path.name]
        return mounts + groups + files


@pytest_asyncio.fixture
async def cell(tmp_path: Path) -> AsyncIterator[Cell]:
    """An agent with the default configuration; nothing is left when its tasks are destroyed."""
    cell = Cell(tmp_path, plugin={}, options={})
    yield cell
    await cell.close()
    assert cell.left() == []


@pytest_asyncio.fixture
async def generous(tmp_path: Path) -> AsyncIterator[Cell]:
    """An agent that allows more than the default."""
    plugin = {
        "allow_caps": ["all"],
        "allowed_modes": {"pid": ["host"], "ipc": ["host"], "seccomp": ["unconfined"]},
        "user_namespace": {"first_host_id": 1_000_000},
    }
    cell = Cell(tmp_path, plugin=plugin, options={"user.denylist": "games"})
    yield cell
    await cell.close()
    assert cell.left() == []
