"""A driver that hangs is named in the task's events and in the log, and holds up neither a stop nor the agent's end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest
from yurt.client.allocations.usage import STATS_LIMIT_S
from yurt.client.tasks.driver_calls import DriverCalls
from yurt.client.tasks.unanswered_call import UnansweredCall
from yurt.client.timed_waits import GIVE_UP_LIMIT_S
from yurt.sdk.driver import ExitResult, TaskDirs, TaskHandle, TaskRequest, TaskResources, TaskStats
from yurt.sdk.value import Duration, replace, seconds
from yurt.structs.alloc import Allocation
from yurt.testing.client_objects import messages, placed, running, with_task
from yurt.testing.fakes import FakeDriver, FakeEnv, FakeServerPort, eventually, settle

DIRS = TaskDirs(
    alloc_dir="/a", shared_dir="/a/s", task_dir="/a/t", local_dir="/a/l", secrets_dir="/a/x", logs_dir="/a/g"
)
REQUEST = TaskRequest(
    task_id="a/web/0", alloc_id="a", task_name="web", job_id="j", group_name="g", namespace="default", config={},
    env={}, dirs=DIRS, resources=TaskResources(cpu_shares=1, node_cpu_shares=1, memory_mb=1),
)  # fmt: skip


class HangingDriver(FakeDriver):
    """A driver whose calls do not return while `hangs` names them, whoever cancels them."""

    def __init__(self, *hangs: str, name: str = "fake") -> None:
        super().__init__()
        self.name = name
        self.asked: list[str] = []
        """The tasks whose usage was asked for."""
        self.hangs = set(hangs)
        self.released = asyncio.Event()
        self.last_call = ""

    async def _hang(self, call: str) -> None:
        self.last_call = call
        while call in self.hangs and not self.released.is_set():
            try:
                await self.released.wait()
            except asyncio.CancelledError:
                continue

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        await self._hang("start")
        return await super().start_task(request)

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        await self._hang("stop")
        await super().stop_task(task_id, signal=signal, timeout=timeout)

    async def wait_task(self, task_id: str) -> ExitResult:
        await self._hang("wait")
        return await super().wait_task(task_id)

    async def recover_task(self, handle: TaskHandle) -> None:
        await self._hang("recover")
        await super().recover_task(handle)

    async def signal_task(self, task_id: str, signal: str) -> None:
        await self._hang("signal")
        await super().signal_task(task_id, signal)

    async def task_stats(self, task_id: str) -> TaskStats:
        self.asked.append(task_id)
        if self.hangs & {"stats", task_id}:
            await asyncio.Event().wait()
        return await super().task_stats(task_id)


async def passes(env: FakeEnv, condition: Callable[[], bool]) -> None:
    """Let time pass in small steps until a condition holds; ten seconds at most."""
    for _ in range(100):
        if condition():
            return
        await env.advance(0.1)
    raise AssertionError("the condition does not hold after ten seconds")


@pytest.fixture
def driver() -> HangingDriver:
    """Hangs in what a test adds to `hangs`."""
    return HangingDriver()


def delayed(alloc: Allocation, *, task: int = 0, group: int = 0) -> Allocation:
    """The allocation with shutdown delays in seconds."""
    alloc = with_task(alloc, shutdown_delay=seconds(task))
    assert alloc.job is not None
    changed = replace(alloc.job.task_groups[0], shutdown_delay=seconds(group))
    return replace(alloc, job=replace(alloc.job, task_groups=(changed,)))


async def test_a_start_that_hangs_is_told_within_seconds_and_again_and_recovers(
    run_client, server: FakeServerPort, driver: HangingDriver, caplog: pytest.LogCaptureFixture
) -> None:
    env = FakeEnv()
    driver.hangs.add("start")
    async with run_client(env=env, wait_ready=False) as client:
        await passes(env, lambda: "pull_allocs" in server.calls)
        alloc = placed(client.node_id)
        server.put_alloc(alloc)

        await env.advance(12)
        await eventually(lambda: any("has not answered" in text for text in messages(server, alloc)))
        await env.advance(60)

        told = [text for text in messages(server, alloc) if "has not answered" in text]
        assert told == [f'driver "fake" has not answered the start of task "web" for {at} s' for at in (10, 60)]
        with caplog.at_level(logging.WARNING):
            driver.released.set()
            await passes(env, lambda: server.status_of(alloc.id) == "running")
        assert "no longer waiting for a driver: after_s=" in caplog.text


async def test_a_stop_that_hangs_is_told_after_the_kill_timeout(
    run_client, server: FakeServerPort, driver: HangingDriver
) -> None:
    env = FakeEnv()
    async with run_client(env=env, wait_ready=False) as client:
        await passes(env, lambda: "pull_allocs" in server.calls)
        alloc = with_task(placed(client.node_id), kill_timeout=seconds(7))
        await running(server, alloc)
        driver.hangs.add("stop")
        server.put_alloc(replace(alloc, desired_status="stop"))

        await env.advance(16)
        assert not any("has not answered" in text for text in messages(server, alloc))
        await env.advance(4)

        text = 'driver "fake" has not answered the stop of task "web" for 17 s'
        await passes(env, lambda: text in messages(server, alloc))
        driver.released.set()
        await passes(env, lambda: server.status_of(alloc.id) == "complete")


async def test_a_driver_that_sees_no_end_of_a_stopped_task_is_told(
    run_client, server: FakeServerPort, driver: HangingDriver
) -> None:
    env = FakeEnv()
    driver.hangs.add("wait")
    async with run_client(env=env, wait_ready=False) as client:
        await passes(env, lambda: "pull_allocs" in server.calls)
        alloc = placed(client.node_id)
        await running(server, alloc)
        server.put_alloc(replace(alloc, desired_status="stop"))

        text = 'driver "fake" has not answered the wait for the end of task "web" for 10 s'
        await env.advance(12)
        await eventually(lambda: text in messages(server, alloc))
        driver.released.set()
        await passes(env, lambda: server.status_of(alloc.id) == "complete")


async def test_a_recovery_that_hangs_is_told(run_client, server: FakeServerPort, driver: HangingDriver) -> None:
    env = FakeEnv()
    async with run_client(env=env, wait_ready=False) as client:
        await passes(env, lambda: "pull_allocs" in server.calls)
        alloc = placed(client.node_id)
        await running(server, alloc)
    driver.hangs.add("recover")

    async with run_client(env=env, wait_ready=False) as client:
        await passes(env, lambda: driver.last_call == "recover")
        await env.advance(12)

        text = 'driver "fake" has not answered the recovery of task "web" for 10 s'
        events = client.allocs.live[alloc.id].states["web"].events
        driver.released.set()
        assert text in [event.display_message for event in events]
        await passes(env, lambda: server.status_of(alloc.id) == "running")


@pytest.mark.parametrize("call", ["signal", "kill"])
async def test_a_signal_or_kill_that_hangs_is_told(call: str) -> None:
    driver, env, told = HangingDriver("signal", "stop"), FakeEnv(), list[str]()
    calls = DriverCalls({"fake": driver}, "fake", env, task="web", report=told.append)
    await driver.start_task(REQUEST)

    working = asyncio.ensure_future(calls.signal(REQUEST.task_id, "SIGHUP") if call == "signal" else calls.kill("a"))
    await settle()
    await env.advance(11)

    assert told == [f'driver "fake" has not answered the {call} of task "web" for 10 s']
    driver.released.set()
    await asyncio.wait([working])


async def test_a_driver_that_gives_no_usage_delays_that_of_others_by_a_bound_and_is_logged_once(
    run_client, server: FakeServerPort, driver: HangingDriver, caplog: pytest.LogCaptureFixture
) -> None:
    env = FakeEnv()
    async with run_client(env=env, wait_ready=False) as client:
        await passes(env, lambda: "pull_allocs" in server.calls)
        alloc = placed(client.node_id)
        await running(server, alloc)
        driver.hangs.add("stats")

        for _ in range(2):
            asking = asyncio.ensure_future(client.calls.alloc_stats(alloc.id, ""))
            await settle()
            await env.advance(STATS_LIMIT_S + 1)
            assert (await asking).tasks == {}

    assert caplog.text.count("a driver does not answer about usage: limit_s=5 driver=fake") == 1


async def test_silent_drivers_delay_usage_by_one_limit_whatever_their_number(
    run_client, server: FakeServerPort, driver: HangingDriver
) -> None:
    env = FakeEnv()
    more = [HangingDriver(name=f"fake{number}") for number in range(3)]
    async with run_client(env=env, wait_ready=False, more_drivers=more) as client:
        await passes(env, lambda: "pull_allocs" in server.calls)
        allocs = [with_task(placed(client.node_id), driver=each.name) for each in (driver, *more) for _ in range(3)]
        for alloc in allocs:
            await running(server, alloc)
        for each in more:
            each.hangs.add("stats")
            each.asked.clear()

        sampling = asyncio.ensure_future(client.calls.history.sample())
        await settle()
        await env.advance(STATS_LIMIT_S + 1)
        assert await sampling == len(allocs)

        sampled = [alloc for alloc in allocs if (await client.calls.alloc_usage_history(alloc.id, "")).tasks]
    assert sampled == allocs[:3], "the driver that answers is asked about each of its tasks"
    assert [len(each.asked) for each in more] == [1, 1, 1]


async def test_one_task_without_usage_costs_the_others_of_its_driver_a_single_sample(
    run_client, server: FakeServerPort, driver: HangingDriver
) -> None:
    env = FakeEnv()
    async with run_client(env=env, wait_ready=False) as client:
        await passes(env, lambda: "pull_allocs" in server.calls)
        allocs = [placed(client.node_id) for _ in range(3)]
        for alloc in allocs:
            await running(server, alloc)
        driver.hangs.add(client.allocs.live[allocs[0].id].tasks["web"].task_id(0))

        for _ in range(2):
            sampling = asyncio.ensure_future(client.calls.history.sample())
            await settle()
            await env.advance(STATS_LIMIT_S + 1)
            await sampling

        histories = [(await client.calls.alloc_usage_history(alloc.id, "")).tasks for alloc in allocs]
    assert [bool(tasks) for tasks in histories] == [False, True, True]


@pytest.mark.parametrize(("task", "group", "shown"), [(3, 0, "3s"), (0, 4, "4s")])
async def test_a_shutdown_delay_is_an_event(run_client, server: FakeServerPort, task: int, group: int, shown: str):
    env = FakeEnv()
    async with run_client(env=env, wait_ready=False) as client:
        await passes(env, lambda: "pull_allocs" in server.calls)
        alloc = delayed(placed(client.node_id), task=task, group=group)
        await running(server, alloc)
        server.put_alloc(replace(alloc, desired_status="stop"))

        await passes(env, lambda: server.status_of(alloc.id) == "complete")

    events = server.last_update(alloc.id).task_states["web"].events
    (found,) = [event for event in events if event.type == "Waiting for shutdown delay"]
    assert found.display_message == f"Waiting for shutdown_delay of {shown} before killing the task."


@pytest.mark.parametrize("call", ["start", "stop"])
async def test_the_end_of_the_agent_leaves_a_call_that_hangs(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.client.timed_waits.GIVE_UP_LIMIT_S", 0.05)
    driver, env = HangingDriver(call), FakeEnv()
    calls = DriverCalls({"fake": driver}, "fake", env, task="web", report=lambda _: None)

    async def never_kept(_: TaskHandle) -> None:
        raise AssertionError("nothing has started")

    if call == "start":
        work = calls.start(REQUEST, on_text=lambda _: None, keep=never_kept)
    else:
        work = calls.stop("a/web/0", signal="", timeout=Duration(0), ended=asyncio.Event())
    working = asyncio.ensure_future(work)
    await settle()
    working.cancel()
    await env.advance(GIVE_UP_LIMIT_S)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(working, GIVE_UP_LIMIT_S + 5)
    driver.released.set()
    await settle()


async def test_progress_shows_that_a_driver_does_not_hang() -> None:
    env, told = FakeEnv(), list[str]()
    with UnansweredCall(env, "docker", "start", "web", report=told.append) as call:
        for _ in range(5):
            await env.advance(6)
            call.hear()
        assert told == []
        await env.advance(11)

    assert told == ['driver "docker" has not answered the start of task "web" for 10 s']
    await env.advance(1000)
    assert len(told) == 1
