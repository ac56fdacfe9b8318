"""Tests of a task's life from its start to its destruction."""

from __future__ import annotations

import asyncio
import os

import pytest

from yurt.sdk.driver import HEALTHY, UNDETECTED, UNHEALTHY, Driver
from yurt.sdk.errors import DriverError, Invalid, NotFound
from yurt.sdk.schema import decode_config, schema_of
from yurt.sdk.value import seconds
from yurt.testing.driver_suite.bench import KILL_TIMEOUT_S, LIMIT_S, DriverBench, DriverCases, eventually, needed


class LifecycleTests:
    """Tests of start, wait, signal, stop and destroy."""

    async def test_it_keeps_the_protocol(self, bench: DriverBench) -> None:
        assert isinstance(bench.driver, Driver)
        assert bench.driver.name
        assert schema_of(bench.driver.task_config).digest

    async def test_an_unknown_option_is_refused(self, bench: DriverBench, cases: DriverCases) -> None:
        with pytest.raises(Invalid, match="no_such_option"):
            decode_config(bench.driver.task_config, {**cases.runs, "no_such_option": 1})

    async def test_the_first_fingerprint_comes_at_once(self, bench: DriverBench) -> None:
        answers = bench.driver.fingerprint()
        first = await asyncio.wait_for(anext(answers), LIMIT_S)
        assert first.health in (HEALTHY, UNHEALTHY, UNDETECTED)
        assert first.health == HEALTHY or (first.description and first.fix)

    async def test_a_task_that_ends_well_is_a_success(self, bench: DriverBench, cases: DriverCases) -> None:
        result = await bench.run(cases.ends(0))
        assert result.is_success
        assert result.finished_at > 0

    async def test_an_exit_code_is_reported(self, bench: DriverBench, cases: DriverCases) -> None:
        result = await bench.run(cases.ends(3))
        assert (result.exit_code, result.signal, result.error) == (3, 0, "")

    async def test_several_wait_for_one_task_and_again_after_its_end(
        self, bench: DriverBench, cases: DriverCases
    ) -> None:
        handle = await bench.start(cases.ends(5))
        first, second = await asyncio.gather(bench.wait(handle.task_id), bench.wait(handle.task_id))
        assert first == second == await bench.wait(handle.task_id)

    async def test_a_waiter_that_gives_up_harms_no_other(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        assert await bench.is_running_after(handle.task_id, 0.05)
        await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(5))
        assert not (await bench.wait(handle.task_id)).is_success

    async def test_tasks_run_at_the_same_time(self, bench: DriverBench, cases: DriverCases) -> None:
        results = await asyncio.gather(*(bench.run(cases.ends(code), name=f"task-{code}") for code in range(10)))
        assert [result.exit_code for result in results] == list(range(10))

    async def test_a_task_id_is_used_once(self, bench: DriverBench, cases: DriverCases) -> None:
        await bench.start(cases.runs)
        with pytest.raises(DriverError, match="destroy"):
            await bench.driver.start_task(bench.request(cases.runs))

    async def test_an_unknown_task_is_not_found(self, bench: DriverBench) -> None:
        driver, second = bench.driver, seconds(1)
        for call in (
            driver.wait_task("no/such/task"),
            driver.signal_task("no/such/task", "SIGHUP"),
            driver.stop_task("no/such/task", signal="SIGTERM", timeout=second),
            driver.destroy_task("no/such/task"),
            driver.task_stats("no/such/task"),
            driver.exec_task("no/such/task", ("true",), timeout=second),
        ):
            with pytest.raises(NotFound):
                await call

    async def test_a_start_that_fails_says_why_and_leaves_nothing(self, bench: DriverBench, cases: DriverCases) -> None:
        config = needed(cases.cannot_start, "cannot be started")
        with pytest.raises(DriverError) as caught:
            await bench.start(config)
        assert cases.start_error in str(caught.value)
        with pytest.raises(NotFound):
            await bench.driver.wait_task(bench.started[0])

    async def test_stop_ends_a_task(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        await asyncio.wait_for(
            bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(2 * LIMIT_S)), LIMIT_S
        )
        assert not await bench.is_running_after(handle.task_id, 0.5)

    async def test_stop_kills_what_ignores_its_signal(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(needed(cases.ignores_signals, "ignores signals"))
        await eventually("it ignores signals", lambda: cases.ignores_when in bench.text())
        assert await bench.is_running_after(handle.task_id, KILL_TIMEOUT_S)
        loop = asyncio.get_running_loop()
        before = loop.time()
        await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(KILL_TIMEOUT_S))
        assert KILL_TIMEOUT_S * 0.9 <= loop.time() - before < LIMIT_S / 2
        assert (await bench.wait(handle.task_id)).signal == 9

    async def test_stop_of_an_ended_task_is_no_error(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.ends(0))
        await bench.wait(handle.task_id)
        await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(1))
        assert (await bench.wait(handle.task_id)).exit_code == 0

    async def test_a_killing_signal_is_reported(self, bench: DriverBench, cases: DriverCases) -> None:
        if not bench.driver.capabilities.send_signals:
            pytest.skip("this driver sends no signals")
        handle = await bench.start(cases.runs)
        await bench.driver.signal_task(handle.task_id, "SIGKILL")
        assert (await bench.wait(handle.task_id)).signal == 9

    async def test_an_unknown_signal_is_refused(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        with pytest.raises(DriverError, match="SIGNONSENSE"):
            await bench.driver.signal_task(handle.task_id, "SIGNONSENSE")

    async def test_destroy_kills_and_forgets(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        await asyncio.wait_for(bench.driver.destroy_task(handle.task_id), LIMIT_S)
        with pytest.raises(NotFound):
            await bench.driver.wait_task(handle.task_id)

    async def test_a_destroyed_task_may_be_started_again(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.ends(1))
        await bench.wait(handle.task_id)
        await bench.driver.destroy_task(handle.task_id)
        assert (await bench.run(cases.ends(2))).exit_code == 2

    async def test_options_of_the_wrong_type_are_refused(self, bench: DriverBench) -> None:
        schema = schema_of(bench.driver.task_config)
        assert schema == schema_of(bench.driver.task_config)
        with pytest.raises(Invalid):
            decode_config(bench.driver.task_config, dict.fromkeys(bench.driver.task_config.__struct_fields__, object))

    async def test_stop_may_come_twice(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        stops = (bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(5)) for _ in range(2))
        await asyncio.wait_for(asyncio.gather(*stops), LIMIT_S)
        await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(5))
        assert not (await bench.wait(handle.task_id)).is_success

    async def test_destroy_may_come_once(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.ends(0))
        await bench.wait(handle.task_id)
        await bench.driver.destroy_task(handle.task_id)
        with pytest.raises(NotFound):
            await bench.driver.destroy_task(handle.task_id)

    async def test_destroy_ends_every_wait(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        waiting = asyncio.ensure_future(bench.wait(handle.task_id))
        assert await bench.is_running_after(handle.task_id, 0.05)
        await bench.driver.destroy_task(handle.task_id)
        ended = await asyncio.wait_for(asyncio.gather(waiting, return_exceptions=True), LIMIT_S)
        assert not isinstance(ended[0], TimeoutError)

    async def test_a_process_killed_from_outside_is_reported(self, bench: DriverBench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        if handle.pid <= 0:
            pytest.skip("this driver's handles name no process of this machine")
        os.kill(handle.pid, 9)
        result = await bench.wait(handle.task_id)
        assert result.signal == 9 or result.exit_code == 137

    async def test_a_signal_reaches_the_task(self, bench: DriverBench, cases: DriverCases) -> None:
        config = needed(cases.catches, "catches a signal")
        handle = await bench.start(config)
        await eventually("it is ready", lambda: "ready" in bench.text())
        await bench.driver.signal_task(handle.task_id, "SIGHUP")
        await eventually("the task has caught SIGHUP", lambda: "caught" in bench.text())
        assert await bench.is_running_after(handle.task_id, 0.05)
