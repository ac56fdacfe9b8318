"""A driver whose tasks run on a simulated host: they outlive the agent's process and end with the host.

What a job asks of a task is in its `config`: how long it runs and how it ends. What goes wrong beyond that is the
nemesis's: starts that are slow or fail, calls that fail once, ends that are reported late or as lost.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from yurt.sdk.driver import (
    HEALTHY,
    Capabilities,
    ExecResult,
    ExitResult,
    Fingerprint,
    TaskHandle,
    TaskRequest,
    TaskStats,
)
from yurt.sdk.errors import DriverError, NotFound, RecoverableError
from yurt.sdk.value import NANOSECONDS, Duration, UnixNano
from yurt.testing.sim.csi.plugin import ENDPOINT, CsiNode
from yurt.testing.sim.hardware import Hardware
from yurt.testing.sim.loop import Process, SimLoop

NAME = "sim"
KILLED = ExitResult(exit_code=137, signal=9)
STOPPED = ExitResult(exit_code=130)


class SimConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The behaviour of a task: seconds until it exits (0: never), and its exit code."""

    run_s: float = 0.0
    exit_code: int = 0


@dataclass
class SimTaskRun:
    """One run of a task on a host."""

    alloc_id: str
    task: str
    namespace: str
    job_id: str
    handle: TaskHandle
    started_s: float
    mounted: tuple[str, ...] = ()
    """The folders of volumes that it has mounted, and those of them to which it may write."""
    written: tuple[str, ...] = ()
    result: ExitResult | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class DriverFaults:
    """The rates at which a host's driver misbehaves; all 0 once faults have stopped."""

    start_fails: float = 0.0
    start_slow: float = 0.0
    call_fails: float = 0.0
    end_lost: float = 0.0


def _ignore(*_: object) -> None:
    """The default of callbacks without a check."""


@dataclass(frozen=True)
class RunChecks:
    """The checks of every run of a task."""

    started: Callable[[SimHost, SimTaskRun], None] = _ignore
    ended: Callable[[SimHost, SimTaskRun], None] = _ignore
    stopped: Callable[[SimHost, SimTaskRun], None] = _ignore
    """Called when the agent stops a task that runs."""
    devices: Callable[[str], None] = _ignore
    """Called with the violations of a host's devices."""


NO_RUN_CHECKS: Final = RunChecks()


class SimHost:
    """The machine on which the tasks of one node run."""

    def __init__(self, loop: SimLoop, name: str, seed: int, *, checks: RunChecks = NO_RUN_CHECKS) -> None:
        self.name = name
        self.loop = loop
        self.chance = random.Random(f"host {seed} {name}")
        self.faults = DriverFaults()
        self.runs: dict[str, SimTaskRun] = {}
        self.notes: dict[str, Any] = {}
        """What a driver keeps on the host's disk."""
        self.hardware = Hardware(name, checks.devices)
        self.csi: CsiNode | None = None
        self._checks = checks

    def start(self, request: TaskRequest) -> SimTaskRun:
        """Start a run for the simulator's own driver."""
        assert request.task_id not in self.runs, f"{request.task_id} is started twice on {self.name}"
        config: SimConfig = request.config
        return self.begin(request, request.task_id, run_s=config.run_s, exit_code=config.exit_code)

    def begin(self, request: TaskRequest, key: str, *, run_s: float, exit_code: int) -> SimTaskRun:
        """Start a run under a key; with `run_s` it ends by itself after this number of seconds."""
        handle = TaskHandle(driver=NAME, task_id=key, pid=1000 + len(self.runs))
        run = SimTaskRun(
            alloc_id=request.alloc_id,
            task=request.task_name,
            namespace=request.namespace,
            job_id=request.job_id,
            handle=handle,
            started_s=self.loop.time(),
            mounted=tuple(each.host_path for each in request.mounts),
            written=tuple(each.host_path for each in request.mounts if not each.is_read_only),
        )
        self.runs[key] = run
        self._checks.started(self, run)
        if self.csi is not None and ENDPOINT in request.env:
            folders = {each.task_path: each.host_path for each in request.mounts}
            self.csi.serve(request.env[ENDPOINT], folders, lambda: self.runs.get(key) is run and run.result is None)
        self.hardware.started((run.alloc_id, run.task), [(each.alloc_id, each.task) for each in self.live()])
        if run_s:
            self.loop.call_later(run_s, self._end_by_itself, key, run, ExitResult(exit_code=exit_code))
        return run

    def _end_by_itself(self, key: str, run: SimTaskRun, result: ExitResult) -> None:
        if self.runs.get(key) is run:  # else it was removed, and another may have its key
            self.end(key, result)

    def end(self, task_id: str, result: ExitResult) -> None:
        """End a run, by itself or because it was stopped; does nothing when it has ended."""
        run = self.runs.get(task_id)
        if run is not None and run.result is None:
            run.result = result
            self._checks.ended(self, run)
            run.ended.set()

    def stop(self, task_id: str, result: ExitResult) -> None:
        """End a run as its agent asks for."""
        run = self.runs.get(task_id)
        if run is not None and run.result is None:
            self._checks.stopped(self, run)
            self.end(task_id, result)

    def crash(self) -> None:
        """End the host and all its tasks."""
        for task_id in tuple(self.runs):
            self.end(task_id, KILLED)
        self.runs.clear()
        if self.csi is not None:
            self.csi.power_off()

    def live(self) -> list[SimTaskRun]:
        """The runs that have not ended."""
        return [run for run in self.runs.values() if run.result is None]


PLAIN: Final = Capabilities(exec=True, finds_by_id=True)
MOUNTING: Final = Capabilities(exec=True, finds_by_id=True, fs_isolation="image", mounts=True)
ISOLATING: Final = Capabilities(exec=True, finds_by_id=True, fs_isolation="image", mounts=True, devices=True)


class SimDriver:
    """The driver as one agent process loads it; `capabilities` are what it claims to support."""

    name = NAME
    task_config = SimConfig

    def __init__(self, host: SimHost, process: Process, capabilities: Capabilities = PLAIN) -> None:
        self.capabilities = capabilities
        self._host = host
        self._process = process
        self._known: set[str] = set()
        self._closed = asyncio.Event()

    async def fingerprint(self) -> AsyncIterator[Fingerprint]:
        """Healthy, without changes."""
        yield Fingerprint(health=HEALTHY, attributes={f"driver.{NAME}.version": "1"})
        await self._closed.wait()

    async def _pass(self, *, may_fail: bool = True) -> None:
        """Delay a call, and at random fail it; calls of a dead process never return."""
        await asyncio.sleep(self._host.chance.uniform(0.0005, 0.01))
        if self._process.is_dead:
            await asyncio.Event().wait()
        if may_fail and self._host.chance.random() < self._host.faults.call_fails:
            raise DriverError("the engine does not answer")

    def _run(self, task_id: str) -> SimTaskRun:
        if task_id not in self._known or task_id not in self._host.runs:
            raise NotFound(f"no task {task_id}")
        return self._host.runs[task_id]

    async def start_task(self, request: TaskRequest) -> TaskHandle:
        """Start the task after a delay, or fail."""
        host, chance = self._host, self._host.chance
        await self._pass(may_fail=False)
        if chance.random() < host.faults.start_slow:
            await asyncio.sleep(chance.uniform(0.5, 8.0))
        draw = chance.random()
        if draw < host.faults.start_fails:
            raise (RecoverableError if draw < host.faults.start_fails / 2 else DriverError)("no such image")
        if self._process.is_dead:
            await asyncio.Event().wait()
        run = host.start(request)
        self._known.add(request.task_id)
        await self._pass(may_fail=False)
        return run.handle

    async def recover_task(self, handle: TaskHandle) -> None:
        """Find the task on the host, by its handle or by its id alone."""
        await self._pass()
        if handle.task_id not in self._host.runs:
            raise NotFound(f"no task {handle.task_id}")
        self._known.add(handle.task_id)

    async def wait_task(self, task_id: str) -> ExitResult:
        """Wait for the task's end; at random the driver has lost it."""
        run = self._run(task_id)
        await run.ended.wait()
        if self._process.is_dead:
            await asyncio.Event().wait()
        if self._host.chance.random() < self._host.faults.end_lost:
            return ExitResult(error="the engine has lost the task's end")
        assert run.result is not None
        return run.result

    async def signal_task(self, task_id: str, signal: str) -> None:
        """Accept the signal, without an effect."""
        await self._pass()
        self._run(task_id)

    async def stop_task(self, task_id: str, *, signal: str, timeout: Duration) -> None:
        """Stop the task within the time limit, or kill it then."""
        await self._pass()
        run = self._run(task_id)
        if run.result is None:
            limit_s = timeout / NANOSECONDS
            await asyncio.sleep(min(limit_s, self._host.chance.choice((0.0, 0.05, 1.0, limit_s))))
            if self._process.is_dead:
                await asyncio.Event().wait()
            self._host.stop(task_id, STOPPED if signal != "SIGKILL" else KILLED)

    async def destroy_task(self, task_id: str) -> None:
        """Forget it."""
        await self._pass(may_fail=False)
        self._run(task_id)
        self._host.stop(task_id, KILLED)
        self._host.runs.pop(task_id, None)
        self._known.discard(task_id)

    async def task_stats(self, task_id: str) -> TaskStats:
        """A fixed usage."""
        self._run(task_id)
        return TaskStats(at=UnixNano(0), rss_bytes=4096, pids=1)

    async def exec_task(self, task_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Echo the command."""
        self._run(task_id)
        return ExecResult(exit_code=0, stdout=" ".join(command).encode())

    async def close(self) -> None:
        """Nothing is held."""
        self._closed.set()
