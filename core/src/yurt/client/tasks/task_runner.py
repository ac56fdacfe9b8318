"""The shell around one task's machine: it carries out the machine's actions and feeds back what came of them.

The machine decides (`yurt.lifecycle.task`), `yurt.client.tasks.task_setup` prepares; here is only the driver. Every
action runs as supervised work of the client, so a driver that fails unexpectedly ends as an event of its own task.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, assert_never

from yurt.client.context import ClientContext
from yurt.client.drivers.driver_table import passage, wait_end
from yurt.client.task_env import lookup_in, replace_references
from yurt.client.tasks.rebuild import find_run, rebuilt_record, runs_to_try
from yurt.client.tasks.task_setup import SetupProblem, TaskSetup, TaskSpec, run_id, task_spec
from yurt.client.templates.control import Spawn
from yurt.client.waiting import LightEvent, wait_or_sleep
from yurt.lifecycle import events
from yurt.lifecycle import task as machine
from yurt.lifecycle.allocation import restarts_on_success
from yurt.runtime.supervise import supervised
from yurt.sdk.driver import Driver, ExecResult, ExitResult, TaskHandle, TaskRequest, TellingDriver
from yurt.sdk.errors import Invalid, NotFound, RecoverableError, YurtError
from yurt.sdk.value import NANOSECONDS, Duration, replace
from yurt.storage.client_db import TaskRecord
from yurt.structs.alloc import Allocation, TaskEvent
from yurt.structs.status import TASK_RUNNING
from yurt.structs.task import Task

KILL_RETRY_FIRST_S = 5.0
KILL_RETRY_MAX_S = 120.0
KILL_ATTEMPTS = 5
HELD = (machine.RUNNING, machine.STOPPING)
RECORD_LOST = "the client's record of this task was lost"
RECOVER_WAITS_S = (1.0, 2.0, 4.0, 8.0)


class TaskOwner(Protocol):
    """The allocation runner as its task runners see it."""

    def on_change(self) -> None:
        """The task has changed."""
        ...

    async def save(self) -> None:
        """Write down how all tasks of the allocation fare."""
        ...

    async def wait_saved(self) -> None:
        """Wait until everything that has happened so far is written down."""
        ...


class TaskRunner:
    """One task of an allocation on this node."""

    def __init__(
        self,
        alloc: Allocation,
        task_name: str,
        context: ClientContext,
        *,
        group: asyncio.TaskGroup,
        owner: TaskOwner,
    ) -> None:
        self.name = task_name
        self.alloc = alloc
        self.handle: TaskHandle | None = None
        self._context = context
        self._group = group
        self.cleaning: set[asyncio.Task[None]] = set()
        self._owner = owner
        self._request: TaskRequest | None = None
        self._ended = LightEvent()
        self._wake = LightEvent()
        self._killed = LightEvent()
        self._setups = TaskSetup(
            task_name,
            context,
            control=weakref.proxy(self),  # a cycle of references would outlive the task
            spawn=_follower_spawn(group, f"{task_name} of {alloc.id[:8]}"),
            saved=owner.wait_saved,
            killed=self._killed,
        )
        self.machine = machine.new_task(self._policy(), context.env.now())

    @property
    def spec(self) -> TaskSpec:
        """The task and what it stands in."""
        return task_spec(self.alloc, self.name)

    @property
    def task(self) -> Task:
        """The task as the job says."""
        return self.spec.task

    @property
    def driver(self) -> Driver | None:
        """The driver of the task, when this node has it."""
        return self._context.drivers.get(self.task.driver)

    @property
    def record(self) -> TaskRecord:
        """What has to be remembered of the task; a handle of an earlier run would mislead."""
        now = self.machine
        is_present = self.handle is not None and self.handle.task_id == self.task_id(now.run)
        return TaskRecord(
            state=now.state,
            run=now.run,
            window=now.window,
            handle=self.handle if is_present else None,
            fetched=tuple(sorted(self._setups.fetched)),
        )

    @property
    def held_handle(self) -> TaskHandle | None:
        """The handle of what the driver holds for the task, if it holds anything."""
        if self.handle is None or self.handle.is_intent or self.handle.task_id != self.task_id(self.machine.run):
            return None
        return self.handle if self.machine.phase in HELD or self.cleaning else None

    def _passage(self) -> contextlib.AbstractAsyncContextManager[None]:
        """Work on the task by its driver, which is not exchanged meanwhile."""
        return passage(self._context.drivers, self.task.driver)

    def task_id(self, run: int) -> str:
        """The name of one run of the task for its driver."""
        return run_id(self.alloc, self.name, run)

    def update(self, alloc: Allocation) -> None:
        """Take over an allocation that the servers changed in place."""
        self.alloc = alloc
        self.machine = replace(self.machine, policy=self._policy())

    def _policy(self) -> machine.TaskPolicy:
        task = self.task
        return machine.TaskPolicy(
            restart=task.restart_policy,
            restart_on_success=restarts_on_success(task, self.spec.job.type),
            kill_timeout=self._kill_timeout(),
        )

    def _kill_timeout(self) -> Duration:
        return Duration(min(self.task.kill_timeout, round(self._context.config.max_kill_timeout_s * NANOSECONDS)))

    async def restore(self, record: TaskRecord) -> None:
        """Continue a task that an earlier agent ran: find its run again, or learn that it is gone."""
        self.machine = machine.restored_task(self._policy(), record.state, record.run, record.window)
        self.handle = record.handle
        self._setups.fetched = set(record.fetched)
        driver = self.driver
        if driver is not None:
            self._spawn("clearing", self._clear_earlier(driver, record), None)
        if self.machine.phase == machine.DEAD or record.handle is None:
            if self.machine.phase == machine.WAITING and record.state.state == TASK_RUNNING:
                self.post(machine.Lost())
            return
        if driver is None:
            reason = f"driver {self.task.driver!r}, which started the task, is not on this node any more"
            self.post(machine.Note(event=events.driver_failure(reason)))
            self.post(machine.Lost())
            return
        if record.handle.is_intent:
            await self._restore_intent(driver, record.handle)
        elif await self._recover(driver, record.handle):
            self.post(machine.Recovered())
            self._setups.resume(self.alloc)
        else:
            self.post(machine.Lost())

    async def rebuild(self) -> None:
        """Continue a task that an earlier agent may have run, of which no record is left."""
        known, driver = self.alloc.task_states.get(self.name), self.driver
        ids = tuple(self.task_id(run) for run in range(runs_to_try(known)))
        run = await find_run(driver, ids, self._context.env)
        record = rebuilt_record(known, run, self._intent(run or 0))
        if record is not None:
            await self.restore(record)
            self.post(machine.Note(event=events.driver_message(RECORD_LOST)))
        if run is None and driver is not None and not driver.capabilities.finds_by_id:
            reason = f"{RECORD_LOST}, and driver {driver.name!r} cannot tell whether the task runs"
            self.post(machine.Kill(reason=events.driver_failure(reason), is_failure=True))

    async def _restore_intent(self, driver: Driver, handle: TaskHandle) -> None:
        """The agent ended between its wish to start a run and its knowledge of it: it may run, or was never started."""
        for wait_s in RECOVER_WAITS_S:
            try:
                await driver.recover_task(handle)
            except NotFound:
                self.handle = None
                return
            except YurtError as error:
                self.post(machine.Note(event=events.driver_message(f"looking for a started task failed: {error}")))
                await self._context.env.sleep(wait_s)
            else:
                self.post(machine.Recovered())
                self._setups.resume(self.alloc)
                return
        self.post(machine.Lost())

    async def _clear_earlier(self, driver: Driver, record: TaskRecord) -> None:
        """Free what the driver still holds for a run that had ended, when the agent ended before it could."""
        ended = [record.handle] if self.machine.phase == machine.DEAD and record.handle is not None else []
        if record.run > 0 and driver.capabilities.finds_by_id:
            ended.append(self._intent(record.run - 1))
        for handle in ended:
            with contextlib.suppress(NotFound):
                await driver.recover_task(handle)
                await driver.destroy_task(handle.task_id)

    def _intent(self, run: int) -> TaskHandle:
        """What is known of a run before it starts."""
        return TaskHandle(driver=self.task.driver, task_id=self.task_id(run), version=0)

    async def _recover(self, driver: Driver, handle: TaskHandle) -> bool:
        """Let the driver find the run; one that cannot look at present is asked again before the run is given up."""
        for wait_s in RECOVER_WAITS_S:
            try:
                await driver.recover_task(handle)
            except NotFound as error:
                self.post(machine.Note(event=events.driver_message(str(error))))
                return False
            except YurtError as error:
                self.post(machine.Note(event=events.driver_message(f"finding the task again failed: {error}")))
                await self._context.env.sleep(wait_s)
            else:
                return True
        return False

    def post(self, event: machine.AnyTaskEvent) -> None:
        """Tell the machine what happened and begin what it wants done."""
        env = self._context.env
        step = machine.advance(self.machine, event, now=env.now(), chance=env.random())
        has_changed = step.machine is not self.machine
        self.machine = step.machine
        if self.machine.phase != machine.BACKOFF:
            self._wake.set()
        self._setups.templates.set_running(self.machine.phase == machine.RUNNING and not self.machine.is_killed)
        if self.machine.is_killed:
            self._killed.set()
        else:
            self._killed.clear()
        if self.machine.is_killed or self.machine.phase == machine.DEAD:
            self._setups.stop()
        for action in step.actions:
            self._perform(action)
        if has_changed:
            self._owner.on_change()

    def _perform(self, action: machine.AnyAction) -> None:
        match action:
            case machine.RunSetup(run=run):
                is_findable = self.driver is not None and self.driver.capabilities.finds_by_id
                self.handle = self._intent(run) if is_findable else None
                self._spawn("setup", self._setup(), self._setup_broke)
            case machine.StartTask():
                self._spawn("start", self._start(), self._start_broke)
            case machine.WatchTask(run=run):
                self._ended.clear()
                self._spawn("watch", self._watch(run), lambda error: self._watch_broke(run, error))
            case machine.StopTask(run=run):
                self._spawn("stop", self._stop(run), lambda error: self._stop_broke(run, error))
            case machine.DestroyTask(run=run):
                cleaning = self._spawn("destroy", self._destroy(run), None)
                self.cleaning.add(cleaning)
                cleaning.add_done_callback(self.cleaning.discard)
            case machine.SetTimer(run=run, delay=delay):
                self._wake.clear()
                self._spawn("restart delay", self._backoff(run, delay / NANOSECONDS), None)
            case _:
                assert_never(action)

    def _spawn(
        self, what: str, work: Coroutine[Any, Any, None], on_error: Callable[[Exception], None] | None
    ) -> asyncio.Task[None]:
        return supervised(self._group, f"{what} of task {self.name} of {self.alloc.id[:8]}", work, on_error=on_error)

    def _setup_broke(self, error: Exception) -> None:
        self.post(machine.SetupFailed(event=events.setup_failure(_unexpected("preparing the task", error))))

    def _start_broke(self, error: Exception) -> None:
        self.post(machine.StartFailed(reason=_unexpected(f"driver {self.task.driver!r} starting the task", error)))

    def _watch_broke(self, run: int, error: Exception) -> None:
        lost = _unexpected(f"driver {self.task.driver!r} watching the task", error)
        self.post(machine.Exited(run=run, result=ExitResult(error=lost)))

    def _stop_broke(self, run: int, error: Exception) -> None:
        self.post(machine.Stopped(run=run, error=_unexpected("stopping the task", error)))

    async def _setup(self) -> None:
        """Prepare the next run."""
        try:
            self._request = await self._setups.prepare(self.alloc, self.machine.run)
        except SetupProblem as problem:
            self.post(machine.SetupFailed(event=problem.event, is_recoverable=problem.is_recoverable))
        else:
            self.post(machine.SetupDone())

    async def _start(self) -> None:
        """Start by the driver, the intent being on disk; the handle follows it, before anybody hears of it."""
        assert self._request is not None, self.name
        try:
            async with self._passage():
                driver = self.driver
                assert driver is not None, self.name
                self.handle = await self._start_whole(driver, self._request)
        except YurtError as error:
            is_recoverable = isinstance(error, RecoverableError)
            self.post(machine.StartFailed(reason=str(error), is_recoverable=is_recoverable))
            return
        self.post(machine.Started())

    async def _start_whole(self, driver: Driver, request: TaskRequest) -> TaskHandle:
        """Start the task; an agent that ends meanwhile first remembers what it has started, or nobody would find it."""
        telling = asyncio.ensure_future(self._follow_progress(driver, request.task_id))  # noqa: TID251 - ended below
        starting = asyncio.ensure_future(driver.start_task(request))  # noqa: TID251 - awaited on every path below
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self.handle = await starting
            self.machine = machine.advance(
                self.machine, machine.Started(), now=self._context.env.now(), chance=0.0
            ).machine
            await self._owner.save()
            raise
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _follow_progress(self, driver: Driver, task_id: str) -> None:
        """Note what the driver tells of a start."""
        if isinstance(driver, TellingDriver):
            async for text in driver.progress(task_id):
                self.post(machine.Note(event=events.driver_message(text)))

    async def _watch(self, run: int) -> None:
        try:
            result = await wait_end(self._context.drivers, self.task.driver, self.task_id(run))
        except YurtError as error:
            result = ExitResult(error=str(error))
        self._ended.set()
        self.post(machine.Exited(run=run, result=result))

    async def _stop(self, run: int) -> None:
        """Wait the shutdown delay, unless the task ends by itself, then stop it, trying again when the driver fails."""
        driver = self.driver
        assert driver is not None, self.name
        if not self.alloc.desired_transition.no_shutdown_delay and self.task.shutdown_delay > 0:
            await wait_or_sleep(self._context.env, self._ended, self.task.shutdown_delay / NANOSECONDS)
        signal = self.task.kill_signal or ("SIGTERM" if driver.capabilities.fs_isolation == "image" else "SIGINT")
        retry_s, failure = KILL_RETRY_FIRST_S, ""
        for _ in range(KILL_ATTEMPTS):
            try:
                async with self._passage():
                    driver = self.driver or driver
                    await driver.stop_task(self.task_id(run), signal=signal, timeout=self._kill_timeout())
            except NotFound:
                failure = ""
            except YurtError as error:
                failure = str(error)
                await wait_or_sleep(self._context.env, self._ended, retry_s)
                retry_s = min(retry_s * 2, KILL_RETRY_MAX_S)
                continue
            else:
                failure = ""
            break
        self.post(machine.Stopped(run=run, error=failure))

    async def _destroy(self, run: int) -> None:
        """Free the run once its end is remembered, so that a crash in between loses no exit code."""
        await self._owner.wait_saved()
        try:
            async with self._passage():
                driver = self.driver
                assert driver is not None, self.name
                await driver.destroy_task(self.task_id(run))
        except NotFound:
            return

    async def _backoff(self, run: int, delay_s: float) -> None:
        if not await wait_or_sleep(self._context.env, self._wake, delay_s):
            self.post(machine.RestartDue(run=run))

    def note(self, event: TaskEvent) -> None:
        """Tell the user something that changes nothing."""
        self.post(machine.Note(event=event))

    async def end_run(self, why: TaskEvent) -> None:
        """Kill the present run at once, as the kernel does when memory runs out: the restart policy decides."""
        driver, run = self.driver, self.machine.run
        assert driver is not None, self.name
        self.note(why)
        await driver.stop_task(self.task_id(run), signal="SIGKILL", timeout=Duration(0))

    # What templates may do (`yurt.client.templates.control.TaskControl`).

    def restart(self, reason: str) -> None:
        """End the run and start another."""
        self.post(machine.AskRestart(reason=reason))

    def fail(self, event: TaskEvent) -> None:
        """End the task for good, as failed."""
        self.post(machine.Kill(reason=event, is_failure=True))

    def filled(self, texts: tuple[str, ...]) -> tuple[str, ...]:
        """Texts of the job with their `${...}` replaced, as in the configuration of the run."""
        driver = self.driver
        assert driver is not None, self.name
        env = self._request.env if self._request is not None else self._setups.env_again(self.alloc, driver)
        lookup = lookup_in(self._context.node(), self._context.config.region, env)
        return tuple(replace_references(text, lookup) for text in texts)

    async def exec(self, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command inside the running task."""
        driver = self.driver
        if self.machine.phase != machine.RUNNING or driver is None:
            raise Invalid(f"task {self.name!r} is not running; only in a running task can a command be run")
        return await driver.exec_task(self.task_id(self.machine.run), command, timeout=timeout)

    async def signal(self, signal: str, reason: str = "") -> None:
        """Send a signal to the running task."""
        driver = self.driver
        if self.machine.phase != machine.RUNNING or driver is None:
            raise Invalid(f"task {self.name!r} is not running; only a running task can be sent a signal")
        self.post(machine.Note(event=events.signaling(signal, reason)))
        async with self._passage():
            await (self.driver or driver).signal_task(self.task_id(self.machine.run), signal)


def _follower_spawn(group: asyncio.TaskGroup, label: str) -> Spawn:
    """How templates and identities of a task are followed."""

    def spawn(work: Coroutine[Any, Any, None], on_error: Callable[[Exception], None]) -> asyncio.Task[None]:
        return supervised(group, f"templates and identities of task {label}", work, on_error=on_error)

    return spawn


def _unexpected(doing: str, error: Exception) -> str:
    """A failure that the code did not foresee, as one line."""
    return f"{doing} failed unexpectedly: {type(error).__name__}: {error}"
