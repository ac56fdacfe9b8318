"""A client whose database was damaged takes up what runs, and starts nothing beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from yurt.client.client import Client
from yurt.client.tasks import rebuild as rebuilding
from yurt.sdk.driver import ExitResult
from yurt.sdk.value import replace
from yurt.storage.client_db import ClientDatabase, NodeIdentity
from yurt.structs.alloc import Allocation, TaskState
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_RUNNING, TASK_DEAD, TASK_RUNNING
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually


async def running(server: FakeServerPort, client: Client, **changes: object) -> Allocation:
    alloc = placed(client.node_id, **changes)
    server.put_alloc(alloc)
    await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    return alloc


async def lose_everything(database: ClientDatabase) -> None:
    """As a client that finds both of its copies damaged."""
    for alloc in await database.allocs():
        await database.delete_alloc(alloc.id)
    database.is_incomplete = True
    database.damage = "the client's database was damaged"


def known(alloc: Allocation, **state: object) -> Allocation:
    """The allocation as the servers were told of its task."""
    return replace(alloc, task_states={"web": TaskState(**state)}, modify_index=alloc.modify_index + 1)


async def test_what_runs_is_taken_up_without_a_record_and_the_servers_are_told(run_client, server, driver, database):
    async with run_client() as client:
        alloc = await running(server, client)
    await lose_everything(database)
    server.updates.clear()

    async with run_client(with_driver=FakeDriver(driver.host)) as client:
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        assert driver.host.starts == [f"{alloc.id}/web/0"]
        events = [event for request in server.events for event in request.events]
        assert [event.subsystem for event in events if "Client state damaged" in event.message] == ["Storage"]


async def test_a_broken_record_costs_nothing_when_the_driver_finds_the_task(run_client, server, driver, database):
    async with run_client() as client:
        good, bad = await running(server, client), await running(server, client, job=factories.job("other"))
    await database._worker.call(
        lambda connection: connection.execute("UPDATE allocs SET alloc = x'00' WHERE id = ?", (bad.id,)).rowcount
    )
    server.updates.clear()

    async with run_client(with_driver=FakeDriver(driver.host)):
        await eventually(lambda: {server.status_of(each.id) for each in (good, bad)} == {CLIENT_RUNNING})
        assert len(driver.host.starts) == 2


async def test_a_run_that_ended_meanwhile_is_not_run_again(run_client, server, driver, database):
    async with run_client() as client:
        alloc = await running(server, client, job=factories.job("once", type="batch"))
    driver.finish(f"{alloc.id}/web/0", ExitResult())
    await lose_everything(database)

    async with run_client(with_driver=FakeDriver(driver.host)):
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert len(driver.host.starts) == 1


async def test_a_task_that_the_servers_know_to_be_dead_stays_so(run_client, server, driver, database, tmp_path: Path):
    async with run_client() as client:
        alloc = await running(server, client, job=factories.job("once", type="batch"))
    del driver.host.tasks[f"{alloc.id}/web/0"]
    await lose_everything(database)
    server.put_alloc(known(alloc, state=TASK_DEAD, started_at=1, finished_at=2))

    async with run_client(with_driver=FakeDriver(driver.host)):
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert len(driver.host.starts) == 1


async def test_a_task_that_nobody_finds_has_ended_and_its_restart_policy_decides(run_client, server, driver, database):
    async with run_client() as client:
        alloc = await running(server, client)
    del driver.host.tasks[f"{alloc.id}/web/0"]
    await lose_everything(database)
    server.put_alloc(known(alloc, state=TASK_RUNNING, started_at=1))

    async with run_client(with_driver=FakeDriver(driver.host)):
        await eventually(lambda: len(driver.host.starts) == 2)
        assert driver.host.starts[-1] == f"{alloc.id}/web/1"


async def test_a_driver_that_cannot_find_tasks_starts_none(run_client, server, driver, database):
    async with run_client() as client:
        alloc = await running(server, client)
    await lose_everything(database)
    blind = FakeDriver(driver.host)
    blind.capabilities = replace(blind.capabilities, finds_by_id=False)

    async with run_client(with_driver=blind):
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
        assert len(driver.host.starts) == 1


async def test_a_new_allocation_is_begun_as_ever(run_client, server, driver, database):
    await database.put_identity(NodeIdentity(node_id="n", secret_id="s"))
    await lose_everything(database)
    async with run_client() as client:
        alloc = await running(server, client)
        assert driver.host.starts == [f"{alloc.id}/web/0"]


@pytest.mark.parametrize(("state", "run", "expected"), [
    (None, None, None),
    (TaskState(), None, None),
    (None, 2, (TASK_RUNNING, 2, True)),
    (TaskState(state=TASK_RUNNING, started_at=1, restarts=3), None, (TASK_RUNNING, 3, False)),
    (TaskState(state=TASK_DEAD, restarts=1), 1, (TASK_DEAD, 1, True)),
])  # fmt: skip
def test_what_is_known_of_a_task_again(state, run, expected) -> None:
    handle = rebuilding.TaskHandle(driver="fake", task_id="x", version=0)
    record = rebuilding.rebuilt_record(state, run, handle)
    got = None if record is None else (record.state.state, record.run, record.handle is not None)
    assert got == expected
