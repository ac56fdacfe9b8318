"""Host volumes with a single writer: a task starts to write once those that are being stopped have left the volume."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from yurt.client.client import Client
from yurt.client.hooks import ending_tasks
from yurt.client.volumes.writers import VolumeWriters
from yurt.lifecycle.task import DEAD, RUNNING, WAITING, Phase, TaskMachine, TaskPolicy
from yurt.sdk.driver import Capabilities
from yurt.sdk.value import Duration, replace
from yurt.structs.alloc import Allocation
from yurt.structs.node import HostVolumeInfo
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING
from yurt.structs.volumes.host import MULTI_WRITER, SINGLE_WRITER, WRITER, HostVolume, HostVolumeCapability
from yurt.structs.volumes.request import VolumeMount, VolumeRequest
from yurt.testing import factories
from yurt.testing.client_objects import messages, placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

MakeClient = Callable[..., AbstractAsyncContextManager[Client]]


def alloc(name: str, *, create_index: int, is_reader: bool = False, mounts: bool = True, **request: Any) -> Allocation:
    """An allocation of a job that mounts the volume `data`."""
    asked = VolumeRequest(**{"name": "v", "type": "host", "source": "data", "access_mode": SINGLE_WRITER, **request})
    mount = VolumeMount(volume="v", destination="/d", read_only=is_reader)
    task = factories.task(volume_mounts=(mount,) if mounts else ())
    job = factories.job(name, task_groups=(factories.group(tasks=(task,), volumes={"v": asked}),))
    return replace(placed("node", job=job), create_index=create_index)


class Writer:
    """A task that may write."""

    def __init__(self, alloc: Allocation, phase: Phase = RUNNING) -> None:
        self.name, self.alloc = "web", alloc
        self.machine = TaskMachine(policy=TaskPolicy(), phase=phase)


def volume(*modes: str) -> HostVolume:
    """The dynamic volume `data`."""
    capabilities = tuple(HostVolumeCapability(access_mode=mode, attachment_mode="file-system") for mode in modes)
    return HostVolume(id="v", name="data", requested_capabilities=capabilities)


def waits(
    older: Allocation,
    younger: Allocation,
    *,
    phase: Phase = RUNNING,
    dynamic: HostVolume | None = None,
    is_first_run: bool = False,
) -> bool:
    """Whether the younger one's task waits for that of the older one."""
    writers = VolumeWriters(lambda: (Writer(older, phase),), lambda name: dynamic if name == "data" else None)
    found = writers.before(younger, "web", is_first_run=is_first_run)
    assert found is None or (found[0].alloc, found[1]) == (older, "data")
    return found is not None


@pytest.mark.parametrize(
    ("old", "new", "modes", "expected"),
    [
        ({}, {}, (), True),
        ({"access_mode": WRITER}, {}, (), True),
        ({"access_mode": ""}, {}, (), False),  # the servers place both on a volume of the configuration
        ({"access_mode": ""}, {}, (MULTI_WRITER, SINGLE_WRITER), True),
        ({"access_mode": ""}, {"access_mode": ""}, (SINGLE_WRITER,), True),
        ({"access_mode": MULTI_WRITER}, {"access_mode": MULTI_WRITER}, (MULTI_WRITER, SINGLE_WRITER), False),
        ({"read_only": True}, {}, (SINGLE_WRITER,), False),
        ({}, {"read_only": True}, (SINGLE_WRITER,), False),
        ({"is_reader": True}, {}, (SINGLE_WRITER,), False),
        ({"mounts": False}, {}, (SINGLE_WRITER,), False),
        ({"source": "other"}, {}, (), False),
    ],
)
def test_the_access_modes_decide_who_waits(
    old: dict[str, Any], new: dict[str, Any], modes: tuple[str, ...], expected: bool
) -> None:
    older = replace(alloc("old", create_index=1, **old), desired_status="stop")
    dynamic = volume(*modes) if modes else None
    assert waits(older, alloc("new", create_index=2, **new), dynamic=dynamic) == expected


@pytest.mark.parametrize(
    ("status", "phase", "is_first_run", "expected"),
    [
        ("stop", RUNNING, False, True),
        ("evict", RUNNING, False, True),
        ("stop", WAITING, False, True),  # a poststop task
        ("stop", DEAD, False, False),
        ("run", RUNNING, False, False),
        ("run", RUNNING, True, True),  # an agent that came back does not know yet that the servers stopped it
    ],
)
def test_a_task_waits_for_those_that_are_to_end(status: str, phase: Phase, is_first_run: bool, expected: bool) -> None:
    older = replace(alloc("old", create_index=1), desired_status=status)
    assert waits(older, alloc("new", create_index=2), phase=phase, is_first_run=is_first_run) == expected


def test_of_two_allocations_one_waits() -> None:
    one, other = (replace(alloc(name, create_index=1), desired_status="stop") for name in ("one", "other"))
    assert sorted((waits(one, other), waits(other, one))) == [False, True]
    assert not waits(one, one)


def test_a_volume_of_each_allocation_has_its_writers_apart() -> None:
    older = replace(alloc("old", create_index=1, per_alloc=True), desired_status="stop")
    younger = alloc("new", create_index=2, per_alloc=True)
    assert not waits(older, replace(younger, name="new.web[1]"))


# A client.


class SlowToStop(FakeDriver):
    """Ends a task once it is let; its tasks mount volumes."""

    def __init__(self) -> None:
        super().__init__()
        self.capabilities = Capabilities(exec=True, finds_by_id=True, mounts=True)
        self.may_stop = asyncio.Event()

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        await self.may_stop.wait()
        await super().stop_task(task_id, signal=signal, timeout=timeout)


@pytest.fixture
def slow() -> SlowToStop:
    return SlowToStop()


@pytest.fixture
def run(run_client: MakeClient, slow: SlowToStop, tmp_path: Path) -> MakeClient:
    """Run a client that offers the volume `data`, and whose tasks end late."""
    (tmp_path / "data").mkdir()
    offered = {"data": HostVolumeInfo(path=str(tmp_path / "data"))}
    return partial(run_client, with_driver=slow, host_volumes=offered)


async def waiting_for_volume(
    client: Client, server: FakeServerPort, slow: SlowToStop, *, successor: str = "new"
) -> tuple[Allocation, Allocation]:
    """An allocation that is being stopped, and one that has begun to wait for its volume."""
    old, new = (
        replace(alloc(name, create_index=index), node_id=client.node_id)
        for index, name in enumerate(("old", successor))
    )
    server.put_alloc(old)
    await eventually(lambda: server.status_of(old.id) == CLIENT_RUNNING)
    server.put_alloc(replace(old, desired_status="stop", client_status="lost"))
    server.put_alloc(new)
    await eventually(lambda: says_so(server, old, new))
    assert len(slow.host.starts) == 1
    return old, new


def says_so(server: FakeServerPort, old: Allocation, new: Allocation) -> bool:
    """Whether an event of the new one says that it waits for the old one."""
    text = f'Waiting for host volume "data": task web of allocation {old.id[:8]} has not ended yet'
    return any(update.id == new.id for update in server.updates) and text in messages(server, new)


@pytest.mark.parametrize("successor", ["new", "old"])  # another job; the same job and name
async def test_a_task_waits_until_a_lost_one_has_left_its_volume(
    run: MakeClient, server: FakeServerPort, slow: SlowToStop, successor: str
) -> None:
    async with run() as client:
        old, new = await waiting_for_volume(client, server, slow, successor=successor)
        slow.may_stop.set()
        await eventually(lambda: server.status_of(new.id) == CLIENT_RUNNING)
        assert server.status_of(old.id) == CLIENT_COMPLETE


async def test_a_task_that_waits_for_a_volume_can_be_stopped(
    run: MakeClient, server: FakeServerPort, slow: SlowToStop
) -> None:
    async with run() as client:
        _, new = await waiting_for_volume(client, server, slow)
        server.put_alloc(replace(new, desired_status="stop"))
        await eventually(lambda: server.status_of(new.id) == CLIENT_COMPLETE)
        assert len(slow.host.starts) == 1
        slow.may_stop.set()


async def test_the_wait_goes_on_after_a_restart_of_the_agent(
    run: MakeClient, server: FakeServerPort, slow: SlowToStop
) -> None:
    async with run(dev=False) as client:
        old, new = await waiting_for_volume(client, server, slow)
    server.updates.clear()
    async with run(dev=False):
        await eventually(lambda: says_so(server, old, new))
        assert len(slow.host.starts) == 1
        slow.may_stop.set()
        await eventually(lambda: server.status_of(new.id) == CLIENT_RUNNING)


async def test_a_wait_that_takes_too_long_fails_the_task(
    run: MakeClient, server: FakeServerPort, slow: SlowToStop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending_tasks, "HOLDER_LIMIT_S", 0.3)
    async with run() as client:
        old, new = await waiting_for_volume(client, server, slow)
        text = f'host volume "data" is still used by task web of allocation {old.id[:8]} after 0.3 s'
        await eventually(lambda: text in messages(server, new))
        slow.may_stop.set()
