"""What mock_driver adds to a driver: every option of its task and plugin blocks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.driver import TaskDirs, TaskRequest, TaskResources
from yurt.sdk.errors import DriverError, Invalid, NotFound, RecoverableError
from yurt.sdk.schema import decode_config
from yurt.sdk.value import UnixNano, replace, seconds
from yurt_driver_mock.config import (
    CommandConfig,
    PluginOptions,
    TaskConfig,
    behaviour_of,
    command_line,
    duration_s,
    remaining_s,
)
from yurt_driver_mock.driver import MockDriver

MakeRequest = Callable[..., TaskRequest]


@pytest.fixture
async def driver() -> AsyncIterator[MockDriver]:
    driver = MockDriver(PluginOptions())
    yield driver
    await driver.close()


@pytest.fixture
def request_of(tmp_path: Path) -> MakeRequest:
    """Makes a task of these options."""

    def make(**config: Any) -> TaskRequest:
        folder = str(tmp_path)
        return TaskRequest(
            task_id="a/web/0",
            alloc_id="a",
            task_name="web",
            job_id="job",
            group_name="group",
            namespace="default",
            config=decode_config(TaskConfig, config),
            env={},
            dirs=TaskDirs(
                alloc_dir=folder,
                shared_dir=folder,
                task_dir=folder,
                local_dir=folder,
                secrets_dir=folder,
                logs_dir=folder,
            ),
            resources=TaskResources(),
        )

    return make


@pytest.mark.parametrize(
    ("text", "value"), [("", 0), ("10", 10), ("250ms", 0.25), ("1m30s", 90), ("1.5h", 5400), ("3us", 3e-6)]
)
def test_durations_are_read_as_go_writes_them(text: str, value: float) -> None:
    assert duration_s(text, option="run_for") == pytest.approx(value)


@pytest.mark.parametrize("text", ["soon", "5 s", "1x", "s"])
def test_what_is_no_duration_is_named_with_its_option(text: str) -> None:
    with pytest.raises(Invalid, match="run_for"):
        duration_s(text, option="run_for")


def test_a_wrong_duration_of_a_command_is_named_with_its_block() -> None:
    config = TaskConfig(exec_command=CommandConfig(run_for="soon"))
    with pytest.raises(Invalid, match=r'^exec_command\.run_for = "soon" is not a valid duration'):
        behaviour_of(config)


def test_the_time_that_is_left_is_what_has_not_passed() -> None:
    behaviour = behaviour_of(TaskConfig(run_for="10s"))
    assert remaining_s(behaviour, started_at=UnixNano(0), now=UnixNano(4_000_000_000)) == 6
    assert remaining_s(behaviour, started_at=UnixNano(0), now=UnixNano(40_000_000_000)) == 0


def test_the_command_line_shows_how_long_it_pretends(request_of: MakeRequest) -> None:
    assert command_line(request_of(run_for="5s")) == ("mock_driver", "5s")


async def test_a_task_without_options_ends_at_once(driver: MockDriver, request_of: MakeRequest) -> None:
    handle = await driver.start_task(request_of())
    assert (await driver.wait_task(handle.task_id)).is_success


async def test_an_end_may_be_a_signal_or_an_error(driver: MockDriver, request_of: MakeRequest) -> None:
    handle = await driver.start_task(request_of(exit_signal=11, exit_err_msg="the driver lost it"))
    result = await driver.wait_task(handle.task_id)
    assert (result.signal, result.error) == (11, "the driver lost it")


@pytest.mark.parametrize(("recoverable", "kind"), [(True, RecoverableError), (False, DriverError)])
async def test_a_start_fails_as_told(
    driver: MockDriver, request_of: MakeRequest, recoverable: bool, kind: type[DriverError]
) -> None:
    with pytest.raises(DriverError, match="on fire") as caught:
        await driver.start_task(request_of(start_error="on fire", start_error_recoverable=recoverable))
    assert type(caught.value) is kind


async def test_a_start_may_take_its_time(driver: MockDriver, request_of: MakeRequest) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(driver.start_task(request_of(start_block_for="1h")), 0.05)


async def test_both_outputs_are_repeated(driver: MockDriver, request_of: MakeRequest, tmp_path: Path) -> None:
    handle = await driver.start_task(
        request_of(
            run_for="200ms",
            stdout_string="out\n",
            stdout_repeat=2,
            stdout_repeat_duration="10ms",
            stderr_string="err\n",
            stderr_repeat=1,
        )
    )
    await driver.wait_task(handle.task_id)
    assert (tmp_path / "web.stdout.0").read_text() == "out\n" * 3
    assert (tmp_path / "web.stderr.0").read_text() == "err\n" * 2


async def test_a_signal_may_be_refused(driver: MockDriver, request_of: MakeRequest) -> None:
    handle = await driver.start_task(request_of(run_for="1h", signal_error="no signals today"))
    with pytest.raises(DriverError, match="no signals today"):
        await driver.signal_task(handle.task_id, "SIGHUP")


async def test_kill_after_delays_the_end(driver: MockDriver, request_of: MakeRequest) -> None:
    handle = await driver.start_task(request_of(run_for="1h", kill_after="50ms"))
    before = asyncio.get_running_loop().time()
    await driver.stop_task(handle.task_id, signal="SIGINT", timeout=seconds(100))
    assert 0.04 < asyncio.get_running_loop().time() - before < 50
    assert (await driver.wait_task(handle.task_id)).signal == 2


async def test_a_command_without_exec_command_is_an_error(driver: MockDriver, request_of: MakeRequest) -> None:
    handle = await driver.start_task(request_of(run_for="1h"))
    with pytest.raises(DriverError, match="exec_command"):
        await driver.exec_task(handle.task_id, ("true",), timeout=seconds(1))


async def test_a_command_may_fail_or_take_too_long(driver: MockDriver, request_of: MakeRequest) -> None:
    handle = await driver.start_task(request_of(run_for="1h", exec_command={"run_for": "1h"}))
    with pytest.raises(DriverError, match="did not end within"):
        await driver.exec_task(handle.task_id, ("true",), timeout=seconds(0.02))


async def test_a_handle_without_a_course_is_not_found(driver: MockDriver, request_of: MakeRequest) -> None:
    handle = await driver.start_task(request_of(run_for="1h"))
    await driver.destroy_task(handle.task_id)
    with pytest.raises(NotFound):
        await driver.recover_task(replace(handle, state={}))


async def test_it_falls_ill_by_turns_when_told(request_of: MakeRequest) -> None:
    driver = MockDriver(PluginOptions(shutdown_periodic_after=True, shutdown_periodic_duration=1))
    answers = driver.fingerprint()
    first = await anext(answers)
    second = await asyncio.wait_for(anext(answers), 60)
    assert (first.health, second.health) == ("healthy", "unhealthy")
    assert second.fix
    await driver.close()
    assert [answer async for answer in answers] == []


async def test_it_takes_the_clock_that_it_is_given(request_of: MakeRequest) -> None:
    driver = MockDriver(PluginOptions(), clock=lambda: UnixNano(77))
    handle = await driver.start_task(request_of())
    assert (handle.started_at, (await driver.wait_task(handle.task_id)).finished_at) == (77, 77)
    await driver.close()
