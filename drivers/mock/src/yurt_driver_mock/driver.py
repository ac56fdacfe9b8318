"""The mock driver (`mock_driver`): simulated tasks, for tests of everything around them.

A task is a script of timed events on the event loop, not a process: it writes the configured texts, and ends when its
time is over or when it is stopped or killed. It does not outlive the agent; `recover_task` starts it again for the
remaining time in its handle, so that a restarted agent sees a task that continued.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
from yurt.sdk.driver import (
    HEALTHY,
    UNHEALTHY,
    Capabilities,
    ExecResult,
    ExitResult,
    Fingerprint,
    LogRotation,
    TaskHandle,
    TaskRequest,
    TaskStats,
    unknown_signal,
)
from yurt.sdk.errors import DriverError, NotFound, RecoverableError
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano

from yurt_driver_mock.config import (
    Behaviour,
    PluginOptions,
    ScriptedOutput,
    TaskConfig,
    behaviour_of,
    decode_behaviour,
    duration_s,
    encode_behaviour,
    remaining_s,
    whole_output,
)
from yurt_driver_mock.exec_session import MockExecSession

NAME = "mock_driver"
KILLED_CODE = 137
SIGNALS = {"SIGHUP": 1, "SIGINT": 2, "SIGQUIT": 3, "SIGKILL": 9, "SIGUSR1": 10, "SIGUSR2": 12, "SIGTERM": 15}
SIGKILL = SIGNALS["SIGKILL"]


def wall_clock() -> UnixNano:
    """The system's clock; the default where the agent provides none."""
    return UnixNano(time.time_ns())  # noqa: TID251 - a driver that is used without an agent


class MockTask:
    """A simulated task."""

    def __init__(self, behaviour: Behaviour, *, logs: RotatedFiles) -> None:
        loop = asyncio.get_running_loop()
        self.behaviour = behaviour
        self.logs = logs
        self.ended: asyncio.Future[ExitResult] = loop.create_future()
        self.timers: set[asyncio.TimerHandle] = set()

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        """Schedule an action, unless the task has ended by then."""
        self.timers = {timer for timer in self.timers if timer.when() > asyncio.get_running_loop().time()}
        self.timers.add(asyncio.get_running_loop().call_later(delay_s, call))

    def write(self, name: str, output: ScriptedOutput, *, left: int) -> None:
        """Write an output's text, and schedule the next time."""
        if self.ended.done() or not output.text:
            return
        self.logs.write(name, output.text.encode())
        if left > 0:
            self.later(output.every_s, lambda: self.write(name, output, left=left - 1))

    def end(self, result: ExitResult) -> None:
        """End the task and drop its scheduled actions."""
        for timer in self.timers:
            timer.cancel()
        self.timers.clear()
        if not self.ended.done():
            self.ended.set_result(result)


class RotatedFiles:
    """The log files of a task, `<base>.<output>.N`."""

    def __init__(self, base: str, rotation: LogRotation) -> None:
        self.base = base
        self.rotation = rotation
        self.index: dict[str, int] = {}

    def write(self, name: str, data: bytes) -> None:
        """Append; start the next file when this one is full, and remove the oldest."""
        if self.rotation.disabled or not self.base:
            return
        index = self.index.get(name, 0)
        path = Path(f"{self.base}.{name}.{index}")
        if path.exists() and path.stat().st_size + len(data) > self.rotation.max_bytes:
            index += 1
            Path(f"{self.base}.{name}.{index - self.rotation.max_files}").unlink(missing_ok=True)
        self.index[name] = index
        with Path(f"{self.base}.{name}.{index}").open("ab") as file:
            file.write(data)


class MockDriver:
    """Simulates tasks."""

    name = NAME
    task_config = TaskConfig

    def __init__(self, options: PluginOptions, *, clock: Callable[[], UnixNano] | None = None) -> None:
        self.capabilities = Capabilities(
            send_signals=True, exec=True, fs_isolation=options.fs_isolation or "none", network_modes=("host", "group")
        )
        self._options = options
        self._clock = clock or wall_clock
        self._tasks: dict[str, MockTask] = {}
        self._closed = asyncio.Event()

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """Healthy, or alternating with unhealthy by the agent's configuration."""
        healthy = Fingerprint(health=HEALTHY, description="Healthy", attributes={"driver.mock": "1"})
        sick = Fingerprint(health=UNHEALTHY, description="shut down on purpose", fix="unset shutdown_periodic_after")
        yield healthy
        period_s = float(self._options.shutdown_periodic_duration)
        is_healthy = True
        while not await self._is_closed_within(
            period_s if self._options.shutdown_periodic_after and period_s else None
        ):
            is_healthy = not is_healthy
            yield healthy if is_healthy else sick

    async def _is_closed_within(self, period_s: float | None) -> bool:
        """Wait up to a time limit until the driver is closed."""
        try:
            async with asyncio.timeout(period_s):
                await self._closed.wait()
        except TimeoutError:
            return False
        return True

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Start the simulation after `start_block_for`, or fail as configured."""
        config: TaskConfig = request.config
        if request.task_id in self._tasks:
            raise DriverError(f"task {request.task_id} runs already; destroy it first")
        behaviour = behaviour_of(config)
        await asyncio.sleep(duration_s(config.start_block_for, option="start_block_for"))
        if config.start_error:
            raise (RecoverableError if config.start_error_recoverable else DriverError)(config.start_error)
        logs_base = f"{request.dirs.logs_dir}/{request.task_name}" if request.dirs.logs_dir else ""
        task = self._run(
            request.task_id, behaviour, RotatedFiles(logs_base, request.logs), run_for_s=behaviour.run_for_s
        )
        for name, output in (("stdout", behaviour.stdout), ("stderr", behaviour.stderr)):
            task.write(name, output, left=output.repeat)
        state = {
            "course": encode_behaviour(behaviour),
            "logs_base": logs_base,
            "logs": msgspec.to_builtins(request.logs),
        }
        return TaskHandle(driver=NAME, task_id=request.task_id, started_at=self._clock(), state=state)

    def _run(self, task_id: str, behaviour: Behaviour, logs: RotatedFiles, *, run_for_s: float) -> MockTask:
        """Run a task for a duration."""
        task = MockTask(behaviour, logs=logs)
        self._tasks[task_id] = task
        task.later(run_for_s, lambda: self._end(task, behaviour.end))
        return task

    def _end(self, task: MockTask, result: ExitResult) -> None:
        """End a task now."""
        task.end(msgspec.structs.replace(result, finished_at=self._clock()))

    async def recover_task(self, handle: TaskHandle) -> None:
        """Continue for the remaining duration; a task without a behaviour in its handle is lost."""
        if "course" not in handle.state:
            raise NotFound(f"task {handle.task_id} cannot be found again: its handle does not describe its behaviour")
        if handle.task_id in self._tasks:
            return
        behaviour = decode_behaviour(handle.state["course"])
        logs = RotatedFiles(handle.state.get("logs_base", ""), msgspec.convert(handle.state["logs"], LogRotation))
        left_s = remaining_s(behaviour, started_at=handle.started_at, now=self._clock())
        self._run(handle.task_id, behaviour, logs, run_for_s=left_s)

    def _task(self, task_id: str) -> MockTask:
        try:
            return self._tasks[task_id]
        except KeyError:
            raise NotFound(f"no task {task_id} here") from None

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for the end."""
        return await asyncio.shield(self._task(task_id).ended)

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Process a signal: SIGKILL ends the task, others have no effect, or fail as configured."""
        task = self._task(task_id)
        if task.behaviour.signal_error:
            raise DriverError(task.behaviour.signal_error)
        if signal not in SIGNALS:
            raise DriverError(unknown_signal(signal))
        if task.ended.done():
            raise DriverError(f"task {task_id} has ended; it cannot be sent {signal}")
        if SIGNALS[signal] == SIGKILL:
            self._end(task, ExitResult(signal=SIGKILL))

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """End the task after its `kill_after`, or by force when that exceeds `timeout`."""
        task = self._task(task_id)
        if task.ended.done():
            return
        task.later(
            task.behaviour.kill_after_s, lambda: self._end(task, ExitResult(signal=SIGNALS.get(signal, SIGKILL)))
        )
        await asyncio.wait([task.ended], timeout=timeout / NANOSECONDS)
        self._end(task, ExitResult(signal=SIGKILL))

    async def destroy_task(self, task_id: str) -> None:
        """Forget a task."""
        task = self._task(task_id)
        self._end(task, ExitResult(signal=SIGKILL))
        del self._tasks[task_id]

    async def task_stats(self, task_id: str) -> TaskStats:
        """No usage."""
        self._task(task_id)
        return TaskStats(at=self._clock())

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Simulate the task's `exec_command`."""
        behaviour = self._task(task_id).behaviour.exec
        if behaviour is None:
            raise DriverError(f"task {task_id} has no `exec_command` block, which says what a command run in it does")
        limit_s = timeout / NANOSECONDS
        await asyncio.sleep(min(behaviour.run_for_s, limit_s))
        if behaviour.run_for_s > limit_s:
            raise DriverError(f'"{" ".join(command)}" did not end within {limit_s:g} s and was killed')
        if behaviour.end.error:
            raise DriverError(behaviour.end.error)
        code = 128 + behaviour.end.signal if behaviour.end.signal else behaviour.end.exit_code
        return ExecResult(exit_code=code, stdout=whole_output(behaviour.stdout), stderr=whole_output(behaviour.stderr))

    async def exec_stream(self, task_id: str, command: tuple[str, ...], *, tty: bool) -> MockExecSession:
        """Simulate the task's `exec_command` as a stream."""
        task = self._task(task_id)
        if task.behaviour.exec is None:
            raise DriverError(f"task {task_id} has no `exec_command` block, which says what a command run in it does")
        if task.behaviour.exec.end.error:
            raise DriverError(task.behaviour.exec.end.error)
        session = MockExecSession(task.behaviour.exec)
        task.ended.add_done_callback(lambda _: session.end(KILLED_CODE))
        return session

    async def close(self) -> None:
        """End the simulation."""
        self._closed.set()
        for task in self._tasks.values():
            for timer in task.timers:
                timer.cancel()
        self._tasks.clear()
