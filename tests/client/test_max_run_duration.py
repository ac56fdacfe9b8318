"""A batch allocation ends when its group's `max_run_duration` is over, whatever restarts meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from yurt.sdk.driver import ExitResult
from yurt.sdk.value import replace, seconds
from yurt.structs.alloc import Allocation
from yurt.structs.policies import RestartPolicy
from yurt.structs.status import CLIENT_FAILED, CLIENT_RUNNING, JOB_BATCH
from yurt.testing import factories
from yurt.testing.client_objects import messages, placed, running, with_task
from yurt.testing.fakes import FakeDriver, FakeEnv, FakeServerPort, eventually


def batch() -> object:
    return factories.job(type=JOB_BATCH)


async def passes(env: FakeEnv, condition: Callable[[], bool]) -> None:
    """Let time pass in small steps until a condition holds; ten seconds at most."""
    for _ in range(100):
        if condition():
            return
        await env.advance(0.1)
    raise AssertionError("the condition does not hold after ten seconds")


def limited(alloc: Allocation, limit_s: int, **task_changes: object) -> Allocation:
    """The allocation with a `max_run_duration`."""
    alloc = with_task(alloc, **task_changes)
    assert alloc.job is not None
    group = replace(alloc.job.task_groups[0], max_run_duration=seconds(limit_s))
    return replace(alloc, job=replace(alloc.job, task_groups=(group,)))


async def test_a_batch_allocation_is_ended_as_failed_when_its_max_run_duration_is_over(
    run_client, server: FakeServerPort, driver: FakeDriver
):
    env = FakeEnv()
    async with run_client(env=env, wait_ready=False) as client:
        await passes(env, lambda: "pull_allocs" in server.calls)
        alloc = limited(placed(client.node_id, job=batch()), 100)
        await running(server, alloc)
        await env.advance(98)
        assert server.status_of(alloc.id) == CLIENT_RUNNING

        await env.advance(3)

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
        assert "Timeout: allocation exceeded max_run_duration of 1m40s" in messages(server, alloc)
        assert driver.host.stops == [f"{alloc.id}/web/0"]


async def test_a_restart_does_not_lengthen_max_run_duration(run_client, server: FakeServerPort, driver: FakeDriver):
    env = FakeEnv()
    again = RestartPolicy(attempts=3, interval=seconds(600), delay=seconds(5), mode="fail")
    async with run_client(env=env, wait_ready=False) as client:
        await passes(env, lambda: "pull_allocs" in server.calls)
        alloc = limited(placed(client.node_id, job=batch()), 100, restart_policy=again)
        await running(server, alloc)
        await env.advance(50)
        driver.finish(f"{alloc.id}/web/0", ExitResult(exit_code=1))
        await env.advance(10)
        await eventually(lambda: driver.host.starts[-1] == f"{alloc.id}/web/1")

        await env.advance(45)

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)


async def test_max_run_duration_goes_on_over_a_restart_of_the_agent(
    run_client, server: FakeServerPort, driver: FakeDriver
):
    env = FakeEnv()
    async with run_client(env=env, wait_ready=False) as client:
        await passes(env, lambda: "pull_allocs" in server.calls)
        alloc = limited(placed(client.node_id, job=batch()), 100)
        await running(server, alloc)
        await env.advance(60)

    server.updates.clear()
    async with run_client(env=env, wait_ready=False):
        await passes(env, lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        await env.advance(25)
        assert server.status_of(alloc.id) == CLIENT_RUNNING
        await env.advance(20)

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)


async def test_a_service_has_no_max_run_duration(run_client, server: FakeServerPort):
    env = FakeEnv()
    async with run_client(env=env, wait_ready=False) as client:
        await passes(env, lambda: "pull_allocs" in server.calls)
        alloc = limited(placed(client.node_id), 100)
        await running(server, alloc)
        await env.advance(300)
        assert server.status_of(alloc.id) == CLIENT_RUNNING
