"""What stays of an allocation that has ended: a record that answers as its runner did, and no runner."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing

import pytest
from yurt.client.allocations import removals
from yurt.client.allocations.alloc_runner import AllocRunner
from yurt.client.client import Client
from yurt.sdk.errors import Conflict, Invalid, NotFound
from yurt.sdk.value import replace, seconds
from yurt.storage.client_db import ClientDatabase
from yurt.structs.alloc import Allocation
from yurt.structs.exec import ExecInput, ExecRequest
from yurt.structs.job import Job
from yurt.structs.service import Service, WorkloadIdentity
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_RUNNING, JOB_BATCH
from yurt.structs.task import Template
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

MakeClient = Callable[..., AbstractAsyncContextManager[Client]]


def plain(job: Job) -> Job:
    """One task."""
    return job


def task_with(job: Job, **changes: object) -> Job:
    """The job with its task changed."""
    group = job.task_groups[0]
    return group_with(job, tasks=(replace(group.tasks[0], **changes),))


def group_with(job: Job, **changes: object) -> Job:
    """The job with its group changed."""
    return replace(job, task_groups=(replace(job.task_groups[0], **changes),))


def with_template(job: Job) -> Job:
    """A task with a template that is followed."""
    template = Template(dest_path="local/file", embedded_tmpl="text", change_mode="restart", perms="0644")
    return task_with(job, templates=(template,))


def with_identity(job: Job) -> Job:
    """A task with a token in its environment."""
    return task_with(job, identity=WorkloadIdentity(name="default", env=True))


def with_service(job: Job) -> Job:
    """A group with a service."""
    return group_with(job, services=(Service(name="web", port_label="80", provider="nomad"),))


def with_limit(job: Job) -> Job:
    """A group that may run for a day."""
    return group_with(job, max_run_duration=seconds(86_400))


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Only what no reference keeps is freed, and no cycle."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


async def run_to_end(client: Client, server: FakeServerPort, driver: FakeDriver, job: Job) -> Allocation:
    """Run an allocation until the servers know of its end and its record is there."""
    alloc = placed(client.node_id, job=job)
    server.put_alloc(alloc)
    await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
    driver.finish(f"{alloc.id}/web/0")
    await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE and alloc.id in client.allocs.ended)
    return alloc


def live_runners() -> list[AllocRunner]:
    """The runners that are in memory."""
    return [each for each in gc.get_objects() if type(each) is AllocRunner]  # a weak proxy is taken for an instance


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("shape", [plain, with_template, with_identity, with_service, with_limit])
async def test_the_runner_of_an_ended_allocation_is_freed_without_a_collection(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver, shape: Callable[[Job], Job]
) -> None:
    async with run_client() as client:
        alloc = placed(client.node_id, job=shape(factories.job(type=JOB_BATCH)))
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        runner = weakref.ref(client.allocs.live[alloc.id])
        task = weakref.ref(client.allocs.live[alloc.id].tasks["web"])
        hooked = weakref.ref(client.allocs.live[alloc.id].tasks["web"].hooked)

        driver.finish(f"{alloc.id}/web/0")

        await eventually(lambda: (runner(), task(), hooked()) == (None, None, None))
        assert list(client.allocs.ended) == [alloc.id] and not client.allocs.live


async def test_a_predecessor_is_freed_while_its_successor_runs(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client() as client:
        old = await run_to_end(client, server, driver, factories.job(type=JOB_BATCH))
        new = replace(placed(client.node_id), previous_allocation=old.id)
        server.put_alloc(new)
        await eventually(lambda: server.status_of(new.id) == CLIENT_RUNNING)

        gc.collect()

        assert [runner.id for runner in live_runners()] == [new.id]


async def test_nothing_is_kept_of_an_allocation_that_the_servers_have_forgotten(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client() as client:
        allocs = [await run_to_end(client, server, driver, factories.job(type=JOB_BATCH)) for _ in range(3)]

        for alloc in allocs:
            server.drop_alloc(alloc.id)

        reporter = client.alloc_service.reporter
        await eventually(lambda: not client.allocs.ended)
        assert not (client.allocs.live or reporter._last or reporter._acked or reporter._pending)
        assert not [each for each in allocs if each.id in client.allocs]


async def no_inputs() -> AsyncIterator[ExecInput]:
    """Nobody types."""
    return
    yield


async def test_a_record_answers_as_the_runner_did(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client() as client:
        alloc = await run_to_end(client, server, driver, factories.job(type=JOB_BATCH))

        assert client.alloc_namespace(alloc.id) == alloc.namespace
        assert (await client.calls.alloc_stats(alloc.id, "")).tasks == {}
        assert await client.calls.alloc_checks(alloc.id) == ()
        assert {info.name for info in await client.calls.list_files(alloc.id, "/")} >= {"alloc", "web"}
        with pytest.raises(NotFound, match='task "api" is not in'):
            await client.calls.alloc_stats(alloc.id, "api")
        with pytest.raises(Conflict, match="has ended; it cannot be restarted"):
            await client.calls.restart_alloc(alloc.id, task="", all_tasks=True)
        with pytest.raises(Invalid, match="'web' is not running; only a running task"):
            await client.calls.signal_alloc(alloc.id, task="web", signal="SIGHUP")
        with pytest.raises(NotFound, match="Could not find task 'api'"):
            await client.calls.signal_alloc(alloc.id, task="api", signal="SIGHUP")
        request = ExecRequest(alloc_id=alloc.id, task="web", command=("true",), is_node_exec_allowed=True)
        async with aclosing(client.calls.exec_task(request, no_inputs())) as frames:
            with pytest.raises(Invalid, match='Task "web" is not running: it is dead'):
                await anext(frames)


async def test_an_ended_allocation_is_not_taken_for_a_new_one(
    run_client: MakeClient, server: FakeServerPort, driver: FakeDriver
) -> None:
    async with run_client() as client:
        alloc = await run_to_end(client, server, driver, factories.job(type=JOB_BATCH))

        server.put_alloc(replace(alloc, client_status=CLIENT_RUNNING))
        other = await run_to_end(client, server, driver, factories.job(type=JOB_BATCH))

        assert driver.host.starts == [f"{alloc.id}/web/0", f"{other.id}/web/0"]


async def test_thousands_of_removals_are_a_few_at_once(
    run_client: MakeClient,
    server: FakeServerPort,
    driver: FakeDriver,
    database: ClientDatabase,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    most, delete = 0, database.delete_alloc

    async def counted(alloc_id: str) -> None:
        nonlocal most
        most = max(most, sum("removal" in task.get_name() for task in asyncio.all_tasks()))
        await delete(alloc_id)

    monkeypatch.setattr(removals, "AT_ONCE", 2)
    monkeypatch.setattr(database, "delete_alloc", counted)
    async with run_client() as client:
        allocs = [await run_to_end(client, server, driver, factories.job(type=JOB_BATCH)) for _ in range(5)]
        server.allocs.clear()
        server.put_alloc(placed(client.node_id))

        await eventually(lambda: not client.allocs.ended)
        assert most == 2 and not [each for each in allocs if each.id in client.allocs]
