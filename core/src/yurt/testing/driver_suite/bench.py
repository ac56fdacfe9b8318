"""Creates drivers and tasks for one test of the suite, and reads what a task wrote."""

from __future__ import annotations

import asyncio
import contextlib
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from yurt.sdk.driver import (
    AgentPaths,
    Driver,
    ExitResult,
    LogRotation,
    PluginContext,
    TaskDirs,
    TaskHandle,
    TaskRequest,
    TaskResources,
)
from yurt.sdk.errors import NotFound
from yurt.sdk.schema import decode_config

Config = Mapping[str, Any]
DriverFactory = Callable[[PluginContext], Driver]

LIMIT_S = 60.0
"""What may take no longer on a machine that has much else to do; most of it takes a hundredth of that."""
KILL_TIMEOUT_S = 0.3


class DriverCases(msgspec.Struct, frozen=True, kw_only=True):
    """Config blocks for tasks with a known behaviour; tests of a case that is None are skipped."""

    ends: Callable[[int], Config]
    """Ends at once with an exit code."""
    runs: Config
    """Runs until it is stopped."""
    joins: Config | None = None
    """Runs in the network of its group, where `runs` asks for another."""
    prints: Callable[[str], Config] | None = None
    """Writes a text to its standard output and ends."""
    floods: Callable[[int], Config] | None = None
    """Writes this number of bytes, in lines shorter than 100, to its standard output and ends."""
    ignores_signals: Config | None = None
    """Runs, and goes on when it is asked to stop."""
    ignores_when: str = ""
    """What that task writes to its standard output once it ignores signals; empty where it does so at once."""
    cannot_start: Config | None = None
    start_error: str = ""
    """Cannot be started, and what the error must say."""
    executes: Config | None = None
    exec_command: tuple[str, ...] = ("sh", "-c", "echo inside; exit 4")
    """Runs, and a command run in it that writes "inside" and ends with 4."""
    uses_resources: bool = True
    """Whether a running task uses memory that can be counted."""
    leaves_traces: bool = True
    """Whether `recover_task` can tell that a task is gone."""
    catches: Config | None = None
    """Runs, and writes "caught" to its standard output when it is sent SIGHUP."""
    has_shell: bool = True
    """Whether commands in the task of `executes` are real: `sh`, `cat`, `head` and `sleep`."""
    exec_size_command: tuple[str, ...] | None = ("stty", "size")
    """A command that prints the rows and columns of its terminal."""
    many: int = 100
    """How many tasks at once a machine of two cores can bear."""


class DriverBench:
    """Creates drivers and tasks for one test, and destroys them afterwards."""

    def __init__(self, make_driver: DriverFactory, folder: Path) -> None:
        self.make_driver = make_driver
        self.folder = folder
        self.context = PluginContext(paths=AgentPaths(state_dir=str(folder / "state"), run_dir=str(folder / "run")))
        self.driver = make_driver(self.context)
        self.alloc_id = str(uuid.uuid4())
        self.started: list[str] = []

    def request(
        self,
        config: Config,
        *,
        name: str = "web",
        logs: LogRotation | None = None,
        env: Mapping[str, str] | None = None,
    ) -> TaskRequest:
        """A complete task request with this config; `env` is added to the task's environment."""
        alloc = self.folder / "alloc"
        dirs = TaskDirs(
            alloc_dir=str(alloc),
            shared_dir=str(alloc / "alloc"),
            task_dir=str(alloc / name),
            local_dir=str(alloc / name / "local"),
            secrets_dir=str(alloc / name / "secrets"),
            logs_dir=str(alloc / "alloc" / "logs"),
        )
        for folder in (dirs.local_dir, dirs.secrets_dir, dirs.logs_dir):
            os.makedirs(folder, exist_ok=True)
        return TaskRequest(
            task_id=f"{self.alloc_id}/{name}/0",
            alloc_id=self.alloc_id,
            task_name=name,
            job_id="suite",
            group_name="group",
            namespace="default",
            config=decode_config(self.driver.task_config, config),
            env={"PATH": os.environ.get("PATH", os.defpath), "NOMAD_TASK_NAME": name, **(env or {})},
            dirs=dirs,
            resources=TaskResources(cpu_shares=100, memory_mb=128),
            logs=logs or LogRotation(),
        )

    async def start(
        self,
        config: Config,
        *,
        name: str = "web",
        logs: LogRotation | None = None,
        env: Mapping[str, str] | None = None,
    ) -> TaskHandle:
        """Start a task of this config."""
        request = self.request(config, name=name, logs=logs, env=env)
        self.started.append(request.task_id)
        return await self.driver.start_task(request)

    async def run(self, config: Config, *, name: str = "web", logs: LogRotation | None = None) -> ExitResult:
        """Start a task and wait for its end."""
        return await self.wait((await self.start(config, name=name, logs=logs)).task_id)

    async def wait(self, task_id: str) -> ExitResult:
        """Wait for the end of a task, with a bound."""
        return await asyncio.wait_for(self.driver.wait_task(task_id), LIMIT_S)

    async def is_running_after(self, task_id: str, wait_s: float) -> bool:
        """Whether the task still runs after a time."""
        try:
            await asyncio.wait_for(self.driver.wait_task(task_id), wait_s)
        except TimeoutError:
            return True
        return False

    async def throw_away(self) -> None:
        """Close the driver as a stopping agent does, and create a new one over the same folders."""
        await self.driver.close()
        self.driver = self.make_driver(self.context)

    def output(self, *, name: str = "web", stream: str = "stdout") -> list[Path]:
        """The log files of a task, oldest first."""
        found = (self.folder / "alloc" / "alloc" / "logs").glob(f"{name}.{stream}.*")
        return sorted(found, key=lambda path: int(path.suffix[1:]))

    def text(self, *, name: str = "web") -> str:
        """Everything that the task has written to its standard output so far."""
        return "".join(path.read_text(errors="replace") for path in self.output(name=name))

    async def close(self) -> None:
        """Destroy all tasks that are left."""
        try:
            for task_id in self.started:
                with contextlib.suppress(NotFound):
                    await self.driver.destroy_task(task_id)
        finally:
            await self.driver.close()


def needed(case: Any, what: str) -> Any:
    """The case; skips the test, with the reason, when this driver has no such case."""
    if case is None:
        pytest.skip(f"this driver's cases name no task that {what}")
    return case


def intent_of(bench: DriverBench, handle: TaskHandle) -> TaskHandle:
    """The handle of a task whose agent was killed before `start_task` returned."""
    if not bench.driver.capabilities.finds_by_id:
        pytest.skip("this driver cannot find a task by its id")
    return TaskHandle(driver=handle.driver, task_id=handle.task_id, version=0)


async def eventually(what: str, holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait until a condition holds; fails with `what` after a time limit."""
    loop = asyncio.get_running_loop()
    limit = loop.time() + limit_s
    while not holds():
        if loop.time() > limit:
            pytest.fail(f"not within {limit_s:g} s: {what}")
        await asyncio.sleep(0.02)
