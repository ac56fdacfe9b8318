"""Shared by all tests: nothing may be left behind by a test."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import psutil
import pytest
from yurt.client.files.secrets_dir import unmount_secrets
from yurt.testing.processes import descendants

# `docs` and `bench` are imported from the checkout: they belong to no distribution.
sys.path.append(str(Path(__file__).resolve().parent.parent))

ALLOWED_GROWTH = 8
"""Descriptors that caches of libraries may keep open from one test to the next."""
SERVERS_A_COLLECTION = 20
"""Garbage in cycles is collected once so many servers have been started."""
END_LIMIT_S = 20.0
"""How long a child that is about to end may take on a machine that has much else to do."""


@pytest.fixture(scope="session", autouse=True)
def no_secrets_stay_mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Unmount the secrets of tasks that tests let live on without their agent."""
    yield
    unmount_secrets(str(tmp_path_factory.getbasetemp()))


def pytest_collection_finish() -> None:
    """Modules and tests stay: Python's collector need not look at them, as it would at the start of each server."""
    gc.collect()
    gc.freeze()


class Collector:
    """Counts full collections of garbage: each server begins with one. To ask what is frozen takes milliseconds."""

    def __init__(self) -> None:
        self.full = 0

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        self.full += phase == "start" and info["generation"] == 2

    def freeze(self) -> None:
        """Freeze again what there is, some garbage with it, which goes later."""
        if self.full >= SERVERS_A_COLLECTION:
            gc.unfreeze()
            gc.collect()
            self.full = 0
        gc.freeze()


@pytest.fixture(scope="session")
def garbage_collector() -> Iterator[Collector]:
    """Python's garbage collector as seen during the session."""
    made = Collector()
    gc.callbacks.append(made)
    yield made
    gc.callbacks.remove(made)
    gc.unfreeze()  # pytest looks at all garbage once more


@pytest.fixture(autouse=True)
def modules_stay_frozen(garbage_collector: Collector) -> Iterator[None]:
    """A server that ends hands all objects back to the collector, for it cannot tell those that it did not freeze."""
    before = garbage_collector.full
    yield
    if garbage_collector.full > before:
        garbage_collector.freeze()


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves child processes or many open files."""
    children = descendants()
    files = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    yield
    if request.node.get_closest_marker("keeps_processes"):
        return
    left = [child for child in map(running, descendants() - children) if child is not None and is_alive(child)]
    assert not left, f"processes left behind: {[(child.pid, child.name()) for child in left]}"
    if files:
        grown = len(os.listdir("/proc/self/fd")) - files
        assert grown <= ALLOWED_GROWTH, f"{grown} files left open"


def running(pid: int) -> psutil.Process | None:
    """The process with a pid; None when it has ended already."""
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def is_alive(process: psutil.Process) -> bool:
    """Running, or a zombie that nobody waited for."""
    try:
        process.wait(timeout=END_LIMIT_S)
    except psutil.TimeoutExpired:
        return True
    except psutil.NoSuchProcess:
        return False
    return False
