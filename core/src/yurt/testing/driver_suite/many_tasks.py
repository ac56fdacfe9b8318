"""Tests with many tasks at once, and of what they leave on the machine (invariant E9)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest

from yurt.sdk.exec import StreamsExec
from yurt.sdk.value import seconds
from yurt.testing.driver_suite.bench import LIMIT_S, DriverBench, DriverCases, eventually

LIVES = 5
SLACK = LIVES - 1
"""More descriptors or processes than this are one a life; fewer may be a pool of connections that has grown."""
WARM_UP_MAX = 20
CGROUP_ROOT = "/sys/fs/cgroup"
CGROUP_DEPTH = 4


class Traces(NamedTuple):
    """Resources of a driver and its tasks: counts of descriptors and processes; cgroups, mounts and files by name."""

    descriptors: int
    processes: int
    cgroups: frozenset[str]
    mounts: frozenset[str]
    files: frozenset[str]


class BurdenTests:
    """Tests with many tasks at once, and of what remains afterwards."""

    async def test_many_tasks_at_once(self, bench: DriverBench, cases: DriverCases) -> None:
        codes = [number % 100 for number in range(cases.many)]
        async with asyncio.timeout(LIMIT_S * 4):
            runs = (bench.run(cases.ends(code), name=f"task-{number}") for number, code in enumerate(codes))
            assert [result.exit_code for result in await asyncio.gather(*runs)] == codes
            await asyncio.gather(*(bench.driver.destroy_task(task_id) for task_id in bench.started))

    async def test_nothing_is_left_of_tasks(self, bench: DriverBench, cases: DriverCases) -> None:
        if sys.platform != "linux":
            pytest.skip("what a process holds is counted on Linux alone")
        before = await warmed_up(bench, cases)
        for number in range(LIVES):
            await one_life(bench, cases, f"after-{number}")
        with contextlib.suppress(pytest.fail.Exception):
            await eventually("as before", lambda: not more_than(before, traces_of(bench)))
        assert more_than(before, traces_of(bench)) == {}


async def warmed_up(bench: DriverBench, cases: DriverCases) -> Traces:
    """The resources in use once pools of threads and connections have reached their size."""
    await one_life(bench, cases, "first")
    before = traces_of(bench)
    for number in range(WARM_UP_MAX):
        await one_life(bench, cases, f"before-{number}")
        after = traces_of(bench)
        if after.descriptors <= before.descriptors and number > 0:
            break
        before = after
    return traces_of(bench)


async def one_life(bench: DriverBench, cases: DriverCases, name: str) -> None:
    """Run a task from start to destruction, with a command in it when the driver supports commands."""
    handle = await bench.start(cases.executes or cases.runs, name=name)
    if isinstance(bench.driver, StreamsExec) and bench.driver.capabilities.exec and cases.executes:
        session = await bench.driver.exec_stream(handle.task_id, cases.exec_command, tty=True)
        async for _ in session.output():
            continue
        await session.close()
    await bench.driver.task_stats(handle.task_id)
    await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(0.2))
    await bench.wait(handle.task_id)
    await bench.driver.destroy_task(handle.task_id)


def traces_of(bench: DriverBench) -> Traces:
    """The resources in use now; only cgroups and mounts that name this test count."""
    marks = (bench.alloc_id, str(bench.folder))
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    state = Path(bench.context.paths.state_dir)
    return Traces(
        descriptors=len(os.listdir("/proc/self/fd")),
        processes=len(psutil.Process().children(recursive=True)),
        cgroups=frozenset(folder for folder in folders_below(CGROUP_ROOT, CGROUP_DEPTH) if bench.alloc_id in folder),
        mounts=frozenset(line for line in mounts if any(mark in line for mark in marks)),
        files=frozenset(str(path) for path in state.rglob("*")) if state.is_dir() else frozenset(),
    )


def folders_below(root: str, depth: int) -> list[str]:
    """The folders below a root, to a depth."""
    found: list[str] = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(root):
            if entry.is_dir(follow_symlinks=False):
                found.append(entry.path)
                found += folders_below(entry.path, depth - 1) if depth > 1 else []
    return found


def more_than(before: Traces, after: Traces) -> dict[str, object]:
    """The resources that have grown since `before`, by name."""
    found: dict[str, object] = {}
    for name in ("descriptors", "processes"):
        if getattr(after, name) > getattr(before, name) + SLACK:
            found[name] = f"{getattr(after, name)}, before {getattr(before, name)}"
    for name in ("cgroups", "mounts", "files"):
        added = sorted(getattr(after, name) - getattr(before, name))
        found |= {name: added} if added else {}
    return found
