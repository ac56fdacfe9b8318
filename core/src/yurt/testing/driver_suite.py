"""What every task driver must do, as a test class that any driver package runs against its own driver.

    class TestMyDriver(DriverSuite):
        @pytest.fixture
        def make_driver(self) -> DriverFactory:
            return lambda context: MyDriver(context)

        @pytest.fixture
        def cases(self) -> DriverCases:
            return DriverCases(ends=lambda code: {"command": "sh", "args": ["-c", f"exit {code}"]}, ...)

A case is the `config` block, as a job file would give it, of a task that does a certain thing. The suite makes a
driver, starts real tasks in a temporary folder, and destroys whatever is left at the end of a test.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from yurt.sdk.driver import (
    HEALTHY,
    UNDETECTED,
    UNHEALTHY,
    AgentPaths,
    Driver,
    ExitResult,
    LogRotation,
    PluginContext,
    TaskDirs,
    TaskHandle,
    TaskRequest,
    TaskResources,
)
from yurt.sdk.errors import DriverError, Invalid, NotFound
from yurt.sdk.schema import decode_config, schema_of
from yurt.sdk.value import seconds

Config = Mapping[str, Any]
DriverFactory = Callable[[PluginContext], Driver]

LIMIT_S = 20.0
KILL_TIMEOUT_S = 0.3


class DriverCases(msgspec.Struct, frozen=True, kw_only=True):
    """Config blocks of tasks that do certain things; a case left empty is not tested."""

    ends: Callable[[int], Config]
    """Ends at once with an exit code."""
    runs: Config
    """Runs until it is stopped."""
    prints: Callable[[str], Config] | None = None
    """Writes a text to its standard output and ends."""
    floods: Callable[[int], Config] | None = None
    """Writes so many bytes, in lines shorter than 100, to its standard output and ends."""
    ignores_signals: Config | None = None
    """Runs, and goes on when it is asked to stop."""
    cannot_start: Config | None = None
    start_error: str = ""
    """Cannot be started, and what the error must say."""
    executes: Config | None = None
    exec_command: tuple[str, ...] = ("sh", "-c", "echo inside; exit 4")
    """Runs, and a command run in it that writes "inside" and ends with 4."""
    uses_resources: bool = True
    """Whether a running task uses memory that can be counted."""
    leaves_traces: bool = True
    """Whether `recover_task` can tell that a task is gone."""


class Bench:
    """Makes drivers and tasks for one test, and clears them away."""

    def __init__(self, make_driver: DriverFactory, folder: Path) -> None:
        self.make_driver = make_driver
        self.folder = folder
        self.context = PluginContext(paths=AgentPaths(state_dir=str(folder / "state"), run_dir=str(folder / "run")))
        self.driver = make_driver(self.context)
        self.started: list[str] = []

    def request(self, config: Config, *, name: str = "web", logs: LogRotation | None = None) -> TaskRequest:
        """A complete task of this config."""
        alloc = self.folder / "alloc"
        dirs = TaskDirs(
            alloc_dir=str(alloc),
            shared_dir=str(alloc / "alloc"),
            task_dir=str(alloc / name),
            local_dir=str(alloc / name / "local"),
            secrets_dir=str(alloc / name / "secrets"),
            logs_dir=str(alloc / "alloc" / "logs"),
        )
        for folder in (dirs.local_dir, dirs.secrets_dir, dirs.logs_dir):
            os.makedirs(folder, exist_ok=True)
        return TaskRequest(
            task_id=f"5d7d7a5e-alloc/{name}/0",
            alloc_id="5d7d7a5e-alloc",
            task_name=name,
            job_id="suite",
            group_name="group",
            namespace="default",
            config=decode_config(self.driver.task_config, config),
            env={"PATH": os.environ.get("PATH", os.defpath), "NOMAD_TASK_NAME": name},
            dirs=dirs,
            resources=TaskResources(cpu_shares=100, memory_mb=128),
            logs=logs or LogRotation(),
        )

    async def start(self, config: Config, *, name: str = "web", logs: LogRotation | None = None) -> TaskHandle:
        """Start a task of this config."""
        request = self.request(config, name=name, logs=logs)
        self.started.append(request.task_id)
        return await self.driver.start_task(request)

    async def run(self, config: Config, *, name: str = "web", logs: LogRotation | None = None) -> ExitResult:
        """Start a task and wait for its end."""
        return await self.wait((await self.start(config, name=name, logs=logs)).task_id)

    async def wait(self, task_id: str) -> ExitResult:
        """Wait for the end of a task, with a bound."""
        return await asyncio.wait_for(self.driver.wait_task(task_id), LIMIT_S)

    async def is_running_after(self, task_id: str, wait_s: float) -> bool:
        """Whether the task does not end within a time."""
        try:
            await asyncio.wait_for(self.driver.wait_task(task_id), wait_s)
        except TimeoutError:
            return True
        return False

    async def throw_away(self) -> None:
        """Close the driver as an agent that stops does, and make a new one in the same folders."""
        await self.driver.close()
        self.driver = self.make_driver(self.context)

    def output(self, *, name: str = "web", stream: str = "stdout") -> list[Path]:
        """The log files of a task, oldest first."""
        found = (self.folder / "alloc" / "alloc" / "logs").glob(f"{name}.{stream}.*")
        return sorted(found, key=lambda path: int(path.suffix[1:]))

    async def close(self) -> None:
        """Destroy what is left."""
        for task_id in self.started:
            try:
                await self.driver.destroy_task(task_id)
            except NotFound:
                continue
        await self.driver.close()


def needed(case: Any, what: str) -> Any:
    """The case, or a stated reason why the test does not apply to this driver."""
    if case is None:
        pytest.skip(f"this driver's cases name no task that {what}")
    return case


def intent_of(bench: Bench, handle: TaskHandle) -> TaskHandle:
    """What is known of a task whose start an agent did not live to see."""
    if not bench.driver.capabilities.finds_by_id:
        pytest.skip("this driver cannot find a task by its id")
    return TaskHandle(driver=handle.driver, task_id=handle.task_id, version=0)


class DriverSuite:
    """Subclass it, give `make_driver` and `cases`, and let pytest collect it."""

    @pytest.fixture
    def make_driver(self) -> DriverFactory:
        """Makes the driver under test; a subclass overrides this."""
        pytest.fail("a DriverSuite needs a fixture `make_driver`")

    @pytest.fixture
    def cases(self) -> DriverCases:
        """The driver's cases; a subclass overrides this."""
        pytest.fail("a DriverSuite needs a fixture `cases`")

    @pytest_asyncio.fixture
    async def bench(self, make_driver: DriverFactory, tmp_path: Path) -> AsyncIterator[Bench]:
        """A driver with an empty folder."""
        bench = Bench(make_driver, tmp_path)
        yield bench
        await bench.close()

    async def test_it_keeps_the_protocol(self, bench: Bench) -> None:
        assert isinstance(bench.driver, Driver)
        assert bench.driver.name
        assert schema_of(bench.driver.task_config).digest

    async def test_an_unknown_option_is_refused(self, bench: Bench, cases: DriverCases) -> None:
        with pytest.raises(Invalid, match="no_such_option"):
            decode_config(bench.driver.task_config, {**cases.runs, "no_such_option": 1})

    async def test_the_first_fingerprint_comes_at_once(self, bench: Bench) -> None:
        answers = bench.driver.fingerprint()
        first = await asyncio.wait_for(anext(answers), LIMIT_S)
        assert first.health in (HEALTHY, UNHEALTHY, UNDETECTED)
        assert first.health == HEALTHY or (first.description and first.fix)

    async def test_a_task_that_ends_well_is_a_success(self, bench: Bench, cases: DriverCases) -> None:
        result = await bench.run(cases.ends(0))
        assert result.is_success
        assert result.finished_at > 0

    async def test_an_exit_code_is_reported(self, bench: Bench, cases: DriverCases) -> None:
        result = await bench.run(cases.ends(3))
        assert (result.exit_code, result.signal, result.error) == (3, 0, "")

    async def test_several_wait_for_one_task_and_again_after_its_end(self, bench: Bench, cases: DriverCases) -> None:
        handle = await bench.start(cases.ends(5))
        first, second = await asyncio.gather(bench.wait(handle.task_id), bench.wait(handle.task_id))
        assert first == second == await bench.wait(handle.task_id)

    async def test_a_waiter_that_gives_up_harms_no_other(self, bench: Bench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        assert await bench.is_running_after(handle.task_id, 0.05)
        await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(5))
        assert not (await bench.wait(handle.task_id)).is_success

    async def test_tasks_run_at_the_same_time(self, bench: Bench, cases: DriverCases) -> None:
        results = await asyncio.gather(*(bench.run(cases.ends(code), name=f"task-{code}") for code in range(10)))
        assert [result.exit_code for result in results] == list(range(10))

    async def test_a_task_id_is_used_once(self, bench: Bench, cases: DriverCases) -> None:
        await bench.start(cases.runs)
        with pytest.raises(DriverError, match="destroy"):
            await bench.driver.start_task(bench.request(cases.runs))

    async def test_an_unknown_task_is_not_found(self, bench: Bench) -> None:
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

    async def test_a_start_that_fails_says_why_and_leaves_nothing(self, bench: Bench, cases: DriverCases) -> None:
        config = needed(cases.cannot_start, "cannot be started")
        with pytest.raises(DriverError) as caught:
            await bench.start(config)
        assert cases.start_error in str(caught.value)
        with pytest.raises(NotFound):
            await bench.driver.wait_task(bench.started[0])

    async def test_stop_ends_a_task(self, bench: Bench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        await asyncio.wait_for(
            bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(10)), LIMIT_S / 4
        )
        assert not await bench.is_running_after(handle.task_id, 0.5)

    async def test_stop_kills_what_ignores_its_signal(self, bench: Bench, cases: DriverCases) -> None:
        handle = await bench.start(needed(cases.ignores_signals, "ignores signals"))
        assert await bench.is_running_after(handle.task_id, KILL_TIMEOUT_S)
        loop = asyncio.get_running_loop()
        before = loop.time()
        await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(KILL_TIMEOUT_S))
        assert KILL_TIMEOUT_S * 0.9 <= loop.time() - before < LIMIT_S / 2
        assert (await bench.wait(handle.task_id)).signal == 9

    async def test_stop_of_an_ended_task_is_no_error(self, bench: Bench, cases: DriverCases) -> None:
        handle = await bench.start(cases.ends(0))
        await bench.wait(handle.task_id)
        await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(1))
        assert (await bench.wait(handle.task_id)).exit_code == 0

    async def test_a_killing_signal_is_reported(self, bench: Bench, cases: DriverCases) -> None:
        if not bench.driver.capabilities.send_signals:
            pytest.skip("this driver sends no signals")
        handle = await bench.start(cases.runs)
        await bench.driver.signal_task(handle.task_id, "SIGKILL")
        assert (await bench.wait(handle.task_id)).signal == 9

    async def test_an_unknown_signal_is_refused(self, bench: Bench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        with pytest.raises(DriverError, match="SIGNONSENSE"):
            await bench.driver.signal_task(handle.task_id, "SIGNONSENSE")

    async def test_destroy_kills_and_forgets(self, bench: Bench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        await asyncio.wait_for(bench.driver.destroy_task(handle.task_id), LIMIT_S)
        with pytest.raises(NotFound):
            await bench.driver.wait_task(handle.task_id)

    async def test_a_destroyed_task_may_be_started_again(self, bench: Bench, cases: DriverCases) -> None:
        handle = await bench.start(cases.ends(1))
        await bench.wait(handle.task_id)
        await bench.driver.destroy_task(handle.task_id)
        assert (await bench.run(cases.ends(2))).exit_code == 2

    async def test_a_running_task_is_taken_up_again_from_a_stored_handle(
        self, bench: Bench, cases: DriverCases
    ) -> None:
        handle = await bench.start(cases.runs)
        stored = msgspec.msgpack.encode(handle)
        await bench.throw_away()
        await bench.driver.recover_task(msgspec.msgpack.decode(stored, type=TaskHandle))
        assert await bench.is_running_after(handle.task_id, 0.1)
        await bench.driver.stop_task(handle.task_id, signal="SIGTERM", timeout=seconds(5))
        assert not (await bench.wait(handle.task_id)).is_success

    async def test_an_end_that_nobody_saw_is_reported_after_all(self, bench: Bench, cases: DriverCases) -> None:
        handle = await bench.start(cases.ends(7))
        await bench.throw_away()
        await bench.driver.recover_task(handle)
        assert (await bench.wait(handle.task_id)).exit_code == 7

    async def test_a_task_is_taken_up_again_by_its_id_alone(self, bench: Bench, cases: DriverCases) -> None:
        intent = intent_of(bench, await bench.start(cases.runs))
        await bench.throw_away()
        await bench.driver.recover_task(intent)
        assert await bench.is_running_after(intent.task_id, 0.05)
        await bench.driver.stop_task(intent.task_id, signal="SIGTERM", timeout=seconds(5))
        assert not (await bench.wait(intent.task_id)).is_success

    async def test_a_task_that_was_never_started_is_not_found_by_its_id(self, bench: Bench, cases: DriverCases) -> None:
        handle = await bench.start(cases.ends(3))
        await bench.driver.destroy_task(handle.task_id)
        with pytest.raises(NotFound):
            await bench.driver.recover_task(intent_of(bench, handle))
        assert (await bench.run(cases.ends(3))).exit_code == 3

    async def test_to_recover_twice_changes_nothing(self, bench: Bench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        await bench.driver.recover_task(handle)
        assert await bench.is_running_after(handle.task_id, 0.05)

    async def test_a_task_that_is_gone_is_not_found(self, bench: Bench, cases: DriverCases) -> None:
        if not cases.leaves_traces:
            pytest.skip("this driver makes a task anew from its handle")
        handle = await bench.start(cases.ends(0))
        await bench.driver.destroy_task(handle.task_id)
        with pytest.raises(NotFound):
            await bench.driver.recover_task(handle)

    async def test_output_is_in_the_log_when_the_task_has_ended(self, bench: Bench, cases: DriverCases) -> None:
        await bench.run(needed(cases.prints, "prints")("hello from the task"))
        assert "hello from the task" in bench.output()[0].read_text()

    async def test_logs_are_rotated(self, bench: Bench, cases: DriverCases) -> None:
        config = needed(cases.floods, "floods")(20_000)
        await bench.run(config, logs=LogRotation(max_files=3, max_bytes=4000))
        files = bench.output()
        assert 1 < len(files) <= 3
        assert all(path.stat().st_size <= 4000 for path in files)
        assert int(files[-1].suffix[1:]) >= 4

    async def test_collection_of_logs_may_be_off(self, bench: Bench, cases: DriverCases) -> None:
        await bench.run(needed(cases.prints, "prints")("nobody reads this"), logs=LogRotation(disabled=True))
        assert bench.output() == []

    async def test_the_use_of_resources_is_counted(self, bench: Bench, cases: DriverCases) -> None:
        handle = await bench.start(cases.runs)
        stats = await bench.driver.task_stats(handle.task_id)
        assert stats.at > 0
        assert not cases.uses_resources or (stats.rss_bytes > 0 and stats.pids > 0)

    async def test_a_command_runs_in_a_task(self, bench: Bench, cases: DriverCases) -> None:
        if not bench.driver.capabilities.exec:
            pytest.skip("this driver runs no commands in tasks")
        handle = await bench.start(needed(cases.executes, "runs commands"))
        result = await bench.driver.exec_task(handle.task_id, cases.exec_command, timeout=seconds(10))
        assert (result.exit_code, result.stdout) == (4, b"inside\n")
