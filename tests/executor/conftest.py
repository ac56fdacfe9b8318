"""Executors on real processes, and the check that a test leaves none behind."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path

import psutil
import pytest
from yurt.executor import ProcessExecutor, ProcessSpec
from yurt.executor.polling import until

Eventually = Callable[[Callable[[], bool]], Awaitable[None]]

LIMIT_S = 60.0


class Workshop:
    """An executor with a folder, and specs that differ only in what a test is about."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.executor = ProcessExecutor(state_dir=str(folder), dev=True)
        self.number = 0

    def spec(self, *argv: str, **changes: object) -> ProcessSpec:
        """A task that runs a command."""
        self.number += 1
        given: dict[str, object] = {
            "task_id": f"alloc/web/{self.number}",
            "argv": argv,
            "env": {"PATH": os.environ["PATH"]},
            "cwd": "/",
            "logs_dir": str(self.folder),
            "log_name": f"web{self.number}",
        }
        return ProcessSpec(**{**given, **changes})  # type: ignore[arg-type]

    def stdout(self, number: int = 1) -> str:
        """What a task wrote."""
        return (self.folder / f"web{number}.stdout.0").read_text()


def open_files() -> int:
    """How many descriptors this process holds."""
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


def existing(paths: Iterable[str]) -> list[str]:
    """Those of the files and folders that are there."""
    return [path for path in paths if os.path.exists(path)]


def running_children() -> set[psutil.Process]:
    """The children of this process that have not ended: engines of other tests may be among them."""
    return {child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE}


@pytest.fixture
async def workshop(tmp_path: Path) -> AsyncIterator[Workshop]:
    """An executor of a dev run; afterwards no process, cgroup or descriptor of it is left."""
    descriptors, children = open_files(), running_children()
    workshop = Workshop(tmp_path)
    yield workshop
    parents = workshop.executor.cgroup_parents
    await workshop.executor.close()
    assert existing(parents) == []
    assert running_children() <= children
    assert open_files() <= descriptors


@pytest.fixture
def eventually() -> Eventually:
    """Wait for a condition, with a bound."""

    async def wait(condition: Callable[[], bool]) -> None:
        assert await until(condition, LIMIT_S), f"the condition did not come true within {LIMIT_S:g} s"

    return wait
