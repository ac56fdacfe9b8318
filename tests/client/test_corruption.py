"""Damage at every region of every file of a client, while its tasks run: none is started a second time.

The tasks are real processes, the agent was killed, and the servers know of them what it had reported. One file is
damaged, or two at once. 300 cases in `make nightly`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from yurt.sdk.driver import Driver, PluginContext
from yurt.sdk.errors import YurtError
from yurt.sdk.value import UnixNano, replace
from yurt.structs.alloc import Allocation, TaskState
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING, TASK_DEAD
from yurt.testing import factories
from yurt.testing.fakes import FakeServerPort, eventually
from yurt.testing.faults.corruption import Damage, damages
from yurt.testing.nightly import is_nightly, seed
from yurt.testing.real_agent import agent_client, shell_alloc

plugin = pytest.importorskip("yurt_driver_raw_exec.plugin", reason="the raw_exec driver is not installed")

CASES = 300 if is_nightly() else 24
SEED = seed(71)
SLEEPERS = 3
ONE_START_EACH = [1] * (SLEEPERS + 1)
REST_S = 0.05
"""A file's time of change moves in steps of some milliseconds: what is older than this would have moved it."""


class World(NamedTuple):
    """What a killed agent left: its folder, a copy of the client's part of it, its allocations as the servers know."""

    root: Path
    killed: Path
    node_id: str
    allocs: tuple[Allocation, ...]

    @property
    def files(self) -> list[str]:
        """The files of the client, some of them empty."""
        return sorted(path.name for path in self.killed.iterdir() if path.is_file())


def make_driver(context: PluginContext) -> Driver:
    driver: Driver = plugin.yurt_task_drivers(context)[0]
    return driver


def starts(world: World) -> list[int]:
    """How often each task was started."""
    return starts_below(world.root)


def starts_below(root: Path) -> list[int]:
    files = [root / f"started-{number}" for number in range(SLEEPERS + 1)]
    return [len(file.read_text().splitlines()) if file.exists() else 0 for file in files]


def server_of(world: World) -> FakeServerPort:
    server = FakeServerPort()
    for alloc in world.allocs:
        server.put_alloc(alloc)
    return server


def known(alloc: Allocation, server: FakeServerPort) -> Allocation:
    """The allocation as the servers have it after the reports."""
    status = server.status_of(alloc.id)
    state = TaskState(state=TASK_DEAD if status == CLIENT_COMPLETE else status, started_at=UnixNano(1))
    return replace(alloc, client_status=status, task_states={"web": state})


async def left_behind(root: Path) -> World:
    """Run an agent with tasks that sleep and one that has ended, and copy its files as a kill would leave them."""
    server = FakeServerPort()
    async with agent_client(root, server, make_driver) as client:
        scripts = [f"echo x >> {root}/started-{number}; exec sleep 3000" for number in range(SLEEPERS)]
        scripts.append(f"echo x >> {root}/started-{SLEEPERS}")
        allocs = tuple(shell_alloc(client.node_id, each, alloc_id=factories.new_id()) for each in scripts)
        for alloc in allocs:
            server.put_alloc(alloc)
        for alloc in allocs[:-1]:
            await eventually(lambda alloc=alloc: server.status_of(alloc.id) == CLIENT_RUNNING)
        await eventually(lambda: server.status_of(allocs[-1].id) == CLIENT_COMPLETE)
        # A task runs from the moment its shell does, which writes its line a little later.
        await eventually(lambda: starts_below(root) == ONE_START_EACH)
        await copy_at_rest(root / "client", root / "killed")
        return World(root, root / "killed", client.node_id, tuple(known(alloc, server) for alloc in allocs))


async def copy_at_rest(source: Path, target: Path) -> None:
    """Copy files as a kill leaves them: all of one moment, although the database's thread may still write."""
    for _ in range(100):
        before = written(source)
        await asyncio.sleep(REST_S)
        if written(source) != before:
            continue
        shutil.copytree(source, target)
        await asyncio.sleep(REST_S)
        if written(source) == before:
            return
        shutil.rmtree(target)
    raise AssertionError(f"{source} does not come to rest")


def written(folder: Path) -> dict[str, tuple[int, int]]:
    found = {path.name: path.stat() for path in folder.iterdir() if path.is_file()}
    return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in found.items()}


def cases(names: list[str]) -> Iterator[tuple[Damage, ...]]:
    """One damage, and every third time two at once."""
    made = damages(names, CASES * 2, seed=SEED)
    for number in range(CASES):
        yield tuple(made[2 * number : 2 * number + (2 if number % 3 == 0 else 1)])


async def outcome(world: World, case: tuple[Damage, ...]) -> str:
    """ "refused" or "taken up"; fails when a task was started again, or the node is another one."""
    shutil.rmtree(world.root / "client")
    shutil.copytree(world.killed, world.root / "client")
    for damage in case:
        damage.do(world.root / "client")
    told = ", ".join(map(str, case))
    server = server_of(world)
    try:
        async with agent_client(world.root, server, make_driver) as client:
            assert client.node_id == world.node_id, told
            await report_running(world, server, told)
    except YurtError:
        return "refused"
    except ExceptionGroup as group:  # a refusal of what runs beside others in the client
        if group.split(YurtError)[1] is not None:
            raise
        return "refused"
    assert starts(world) == ONE_START_EACH, told
    return "taken up"


async def report_running(world: World, server: FakeServerPort, told: str) -> None:
    """Wait until the client has reported the tasks that run; fails with the damage and what it reported instead."""
    statuses: dict[str, str] = {}

    def is_reported() -> bool:
        statuses.update({alloc.id: server.status_of(alloc.id) for alloc in world.allocs[:-1]})
        return set(statuses.values()) == {CLIENT_RUNNING}

    try:
        await eventually(is_reported)
    except TimeoutError:
        raise AssertionError(f"{told}: reported {statuses}, starts {starts(world)}") from None


@pytest.mark.timeout(3600)
async def test_no_task_is_started_a_second_time_whatever_file_is_damaged(tmp_path: Path) -> None:
    world = await left_behind(tmp_path)
    try:
        found = [await outcome(world, case) for case in cases(world.files)]
        assert found.count("taken up") > CASES // 2
        assert starts(world) == ONE_START_EACH
    finally:
        await end_tasks(world)


async def test_nothing_is_started_again_without_any_database(tmp_path: Path) -> None:
    world = await left_behind(tmp_path)
    try:
        gone = tuple(Damage(kind="remove", name=name) for name in world.files if name.startswith("client"))
        assert await outcome(world, gone) == "taken up"
    finally:
        await end_tasks(world)


async def end_tasks(world: World) -> None:
    """With its records the client ends what it ran."""
    shutil.rmtree(world.root / "client")
    shutil.copytree(world.killed, world.root / "client")
    async with agent_client(world.root, server_of(world), make_driver) as client, asyncio.timeout(60):
        await client.stop_all()
        await client.finish_cleaning()
