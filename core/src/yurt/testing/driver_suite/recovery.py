"""Tests of tasks that outlive their agent and driver."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import traceback
import warnings
from typing import NoReturn

import msgspec
import pytest

from yurt.sdk.driver import TaskHandle, TaskRequest
from yurt.sdk.errors import NotFound
from yurt.sdk.value import seconds
from yurt.testing.driver_suite.bench import LIMIT_S, Config, DriverBench, DriverCases, intent_of

HANDLE_BYTES_MAX = 1 << 20


class RecoveryTests:
    """Tests of `recover_task`."""

    async def test_a_running_task_is_taken_up_again_from_a_stored_handle(
        self, bench: DriverBench, cases: DriverCases
    ) -> None:
        handle = await bench.start(cases.runs)
        stored = msgspec.msgpack.encode(handle)
        await bench.throw_away()
        await bench.driver.recover_task(msgspec.msgpack.decode(stored, type=TaskHandle))
        assert await bench.is_running_after(handle.task_id, 0.1)
        await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(5))
        assert not (await bench.wait(handle.task_id)).is_success

    async def test_an_end_that_nobody_saw_is_reported_after_all(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.ends(7))
        await bench.throw_away()
        await bench.driver.recover_task(handle)
        assert (await bench.wait(handle.task_id)).exit_code == 7

    async def test_a_task_is_taken_up_again_by_its_id_alone(self, bench: DriverBench, cases: DriverCases) -> None:
        intent = intent_of(bench, await bench.start(cases.runs))
        await bench.throw_away()
        await bench.driver.recover_task(intent)
        assert await bench.is_running_after(intent.task_id, 0.05)
        await bench.driver.stop_task(intent.task_id, signal="SIGTERM", timeout=seconds(5))
        assert not (await bench.wait(intent.task_id)).is_success

    async def test_a_task_that_was_never_started_is_not_found_by_its_id(
        self, bench: DriverBench, cases: DriverCases
    ) -> None:
        handle = await bench.start(cases.ends(3))
        await bench.driver.destroy_task(handle.task_id)
        with pytest.raises(NotFound):
            await bench.driver.recover_task(intent_of(bench, handle))
        assert (await bench.run(cases.ends(3))).exit_code == 3

    async def test_to_recover_twice_changes_nothing(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        await bench.driver.recover_task(handle)
        assert await bench.is_running_after(handle.task_id, 0.05)

    async def test_a_task_that_is_gone_is_not_found(self, bench: DriverBench, cases: DriverCases) -> None:
        if not cases.leaves_traces:
            pytest.skip("this driver starts a task again from its handle")
        handle = await bench.start(cases.ends(0))
        await bench.driver.destroy_task(handle.task_id)
        with pytest.raises(NotFound):
            await bench.driver.recover_task(handle)

    async def test_a_task_outlives_an_agent_that_is_killed(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = started_by_a_killed_agent(bench, cases.runs)
        await bench.driver.recover_task(handle)
        assert await bench.is_running_after(handle.task_id, 0.1)
        await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(5))
        assert not (await bench.wait(handle.task_id)).is_success


def started_by_a_killed_agent(bench: DriverBench, config: Config) -> TaskHandle:
    """The handle of a task that a process started before it was killed by SIGKILL."""
    request = bench.request(config)
    bench.started.append(request.task_id)
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork in a process with threads: the child uses none
        child = os.fork()
    if child == 0:
        start_and_wait(bench, request, write_end)
    os.close(write_end)
    with open(read_end, "rb") as pipe:
        is_readable, _, _ = select.select([pipe], [], [], LIMIT_S)
        stored = os.read(read_end, HANDLE_BYTES_MAX) if is_readable else b""
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    if not stored:
        pytest.fail("a process of its own could not start the task; what it says stands above")
    return msgspec.msgpack.decode(stored, type=TaskHandle)


def start_and_wait(bench: DriverBench, request: TaskRequest, write_end: int) -> NoReturn:
    """Entry point of the child process: start a task, send its handle, and wait to be killed."""

    async def agent() -> None:
        driver = bench.make_driver(bench.context)
        os.write(write_end, msgspec.msgpack.encode(await driver.start_task(request)))
        await asyncio.sleep(LIMIT_S)

    try:
        asyncio.run(agent())
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(1)
