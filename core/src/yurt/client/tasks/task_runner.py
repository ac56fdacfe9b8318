"""The shell around one task's machine: it executes the machine's actions and reports their results to it.

The machine decides (`yurt.lifecycle.task`), hooks prepare and follow (`yurt.client.hooks`), the driver acts
(`driver_calls`). Every action runs as supervised work of the client, so a driver that fails unexpectedly ends as an
event of its own task. What an earlier agent ran is taken up by `task_recovery`.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, assert_never

from yurt.client.context import ClientContext
from yurt.client.tasks.client_task import ClientTask, SetupProblem, TaskSpec, run_id, task_spec
from yurt.client.tasks.driver_calls import DriverCalls
from yurt.client.tasks.run_end import RunEnd
from yurt.client.tasks.task_counts import count_change, count_oom, task_labels
from yurt.client.tasks.task_setup import TaskSetup
from yurt.client.timed_waits import LightEvent, wait_or_sleep
from yurt.lifecycle import events
from yurt.lifecycle import task as machine
from yurt.lifecycle.allocation import restarts_on_success
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.driver import Driver, ExitResult, TaskHandle
from yurt.sdk.errors import Invalid, RecoverableError, YurtError
from yurt.sdk.value import NANOSECONDS, Duration, replace
from yurt.storage.client_db import TaskRecord
from yurt.structs.alloc import Allocation, TaskEvent
from yurt.structs.policies import Checkpoint
from yurt.structs.status import DESIRED_EVICT
from yurt.structs.task import Task

SAVED_POLL_S = 0.25
LIVE = (machine.RUNNING, machine.STOPPING)


class TaskOwner(Protocol):
    """Stores the states of an allocation's tasks for their runners."""

    def on_change(self) -> None:
        """Note that the task has changed."""
        ...

    async def save(self) -> None:
        """Store the states of all tasks of the allocation."""
        ...

    async def wait_saved(self) -> None:
        """Wait until every change so far is stored."""
        ...


class TaskRunner:
    """One task of an allocation on this node."""

    def __init__(
        self,
        alloc: Allocation,
        task_name: str,
        context: ClientContext,
        *,
        setup: TaskSetup,
        owner: TaskOwner,
        group: asyncio.TaskGroup,
    ) -> None:
        spec = task_spec(alloc, task_name)
        self.name = task_name
        self.alloc = alloc
        self.handle: TaskHandle | None = None
        self.machine = machine.new_task(policy_of(spec, context.config.max_kill_timeout_s), context.env.now())
        self.hooked = ClientTask(alloc, task_name, context, runner=weakref.proxy(self), group=group)
        self.cleaning: set[asyncio.Task[None]] = set()
        runner = weakref.proxy(self)
        report = lambda text: runner.note(events.driver_message(text))  # noqa: E731
        self.calls = DriverCalls(context.drivers, spec.task.driver, context.env, task=task_name, report=report)
        self._context = context
        self._setup = setup
        self._hooks = setup.hooks
        self._owner = owner
        self._group = group
        self._run = RunEnd()
        self._wake = LightEvent()
        self._dead = LightEvent()
        _follow_schedule(self, context.env, self._dead)

    @property
    def task(self) -> Task:
        """The task in the current job."""
        return task_spec(self.alloc, self.name).task

    @property
    def driver(self) -> Driver | None:
        """The task's driver; None when this node does not have it."""
        return self.calls.driver

    @property
    def record(self) -> TaskRecord:
        """The task's record to store; it has no handle of an earlier run."""
        now = self.machine
        is_present = self.handle is not None and self.handle.task_id == self.task_id(now.run)
        return TaskRecord(
            state=now.state,
            run=now.run,
            window=now.window,
            handle=self.handle if is_present else None,
            fetched=tuple(sorted(self.hooked.fetched)),
            dynamic_uid=self._context.users.uid_of(*self.hooked.key),
        )

    @property
    def live_handle(self) -> TaskHandle | None:
        """The handle of the run that the driver has now; None without one."""
        if self.handle is None or self.handle.is_intent or self.handle.task_id != self.task_id(self.machine.run):
            return None
        return self.handle if self.machine.phase in LIVE or self.cleaning else None

    @property
    def is_live(self) -> bool:
        """Whether the driver runs the task: commands and signals are still possible while it is being stopped."""
        return self.machine.phase in LIVE and self.driver is not None

    def task_id(self, run: int) -> str:
        """The id of a run of the task for its driver."""
        return run_id(self.alloc, self.name, run)

    def intent(self, run: int) -> TaskHandle:
        """The record of a run before it starts."""
        return TaskHandle(
            driver=self.calls.name,
            task_id=self.task_id(run),
            version=0,
            reserved_cores=reserved_cores(self.alloc, self.name),
        )

    def update(self, alloc: Allocation) -> None:
        """Adopt an allocation that the servers changed in place."""
        before, self.alloc = self.task.schedule, alloc
        if before is None and self.machine.phase != machine.DEAD:
            _follow_schedule(self, self._context.env, self._dead)
        elif before != self.task.schedule and self.machine.phase != machine.DEAD:
            # The follower sleeps until the next edge of the old hours; a waiter that is woken reads the new ones.
            self._dead.set()
            self._dead.clear()
        policy = policy_of(task_spec(alloc, self.name), self._context.config.max_kill_timeout_s)
        self.machine = replace(self.machine, policy=policy)
        if self.machine.phase == machine.RUNNING:  # one that is made ready is shown as it was at its beginning
            self._hooks.update(self.hooked, alloc)

    def take_up(self, record: TaskRecord) -> None:
        """Continue from the record of an earlier agent."""
        self.machine = machine.restored_task(self.machine.policy, record.state, record.run, record.window)
        self.handle = record.handle
        self.hooked.fetched = set(record.fetched)
        self.hooked.begin(self.alloc, record.run)
        if self.task.schedule is not None or self.machine.state.paused == machine.PAUSED_BY_SCHEDULE:
            from yurt.client.tasks.schedules import post_present

            post_present(self, self._context.env)

    def recovered(self) -> None:
        """Continue a run of an earlier agent that the driver has found."""
        self.post(machine.Recovered())
        self.hooked.spawn(self._hooks.recover(self.hooked), lambda _: None)

    def release(self) -> None:
        """Break the reference cycles of an unused task."""
        self._hooks.finish(self.hooked)

    def post(self, event: machine.AnyTaskEvent) -> None:
        """Send an event to the machine and execute its actions."""
        env, hooked = self._context.env, self.hooked
        if self._hooks.is_finishing(hooked):
            return
        step = machine.advance(self.machine, event, now=env.now(), chance=env.random())
        before, self.machine = self.machine, step.machine
        has_changed = before is not self.machine
        if has_changed:
            count_change(self._context.metrics, before, self.machine, task_labels(self.alloc, self.name))
        _set(self._dead, self.machine.phase == machine.DEAD)
        if before.phase == machine.DEAD != self.machine.phase:
            _follow_schedule(self, self._context.env, self._dead)
        if self.machine.phase != machine.BACKOFF:
            self._wake.set()
        _set(hooked.running, self.machine.phase == machine.RUNNING and not self.machine.is_killed)
        # Hooks learn of the kill before the actions begin: a hook that waits for it must not delay the stop.
        _set(hooked.killed, self.machine.is_killed)
        if self.machine.is_killed or self.machine.phase == machine.DEAD:
            self._hooks.finish(hooked)
        for action in step.actions:
            self._perform(action)
        if has_changed:
            self._owner.on_change()

    def _perform(self, action: machine.AnyAction) -> None:
        def broke(error: Exception) -> None:
            self.post(_after_defect(action, self.calls.name, error))

        match action:
            case machine.RunSetup(run=run):
                # The intent is saved before the driver starts anything: after a crash the run is looked for by its id.
                self.handle = self.intent(run) if self.calls.finds_by_id else None
                self.spawn("setup", self._prepare(run), broke)
            case machine.StartTask():
                self.spawn("start", self._start(), broke)
            case machine.WatchTask(run=run):
                self._run = RunEnd()
                self.spawn("watch", self._watch(run, self._run), broke)
            case machine.StopTask(run=run):
                self.spawn("stop", self._stop(run, self._run), broke)
            case machine.DestroyTask(run=run):
                cleaning = self.spawn("destroy", self._destroy(run))
                self.cleaning.add(cleaning)
                cleaning.add_done_callback(self.cleaning.discard)
            case machine.SetTimer(run=run, delay=delay):
                self._wake.clear()
                self.spawn("restart delay", self._backoff(run, delay / NANOSECONDS))
            case _:
                assert_never(action)

    def spawn(
        self, what: str, work: Coroutine[Any, Any, None], on_error: Callable[[Exception], None] | None = None
    ) -> asyncio.Task[None]:
        """Start supervised work on the task."""
        return supervised(self._group, f"{what} of task {self.name} of {self.alloc.id[:8]}", work, on_error=on_error)

    async def _prepare(self, run: int) -> None:
        """Prepare the next run."""
        try:
            request = await self._setup.prepare(self.hooked, self.alloc, run, saved=self._owner.wait_saved)
        except SetupProblem as problem:
            self.post(machine.SetupFailed(event=problem.event, is_recoverable=problem.is_recoverable))
        else:
            self.hooked.request = request
            self.post(machine.SetupDone())

    async def _start(self) -> None:
        """Start the run once its intent is stored; its handle is stored before the start is reported."""
        assert self.hooked.request is not None, self.name
        note = lambda text: self.note(events.driver_message(text))  # noqa: E731
        try:
            self.handle = await self.calls.start(self.hooked.request, on_text=note, keep=self._keep_started)
        except YurtError as error:
            is_recoverable = isinstance(error, RecoverableError)
            self.post(machine.StartFailed(reason=str(error), is_recoverable=is_recoverable))
            return
        self.post(machine.Started())
        if self.machine.phase == machine.RUNNING:
            self._hooks.update(self.hooked, self.alloc)
        if self._hooks.has_started:
            self.spawn("hooks of the start", self._hooks.started(self.hooked, self.handle, ended=self._run.ended))

    async def _keep_started(self, handle: TaskHandle) -> None:
        """Store the handle of a run that started while the agent ended."""
        started = machine.advance(self.machine, machine.Started(), now=self._context.env.now(), chance=0.0)
        self.handle, self.machine = handle, started.machine
        await self._owner.save()

    async def _watch(self, run: int, end: RunEnd) -> None:
        result = await self.calls.wait(self.task_id(run))
        if result.oom_killed:
            count_oom(self._context.metrics, task_labels(self.alloc, self.name))
        await end.notify(lambda: self._hooks.exited(self.hooked, result))
        self.post(machine.Exited(run=run, result=result))

    async def _stop(self, run: int, end: RunEnd) -> None:
        """Wait for the shutdown delay, unless the task ends by itself, then stop it.

        A run that cannot be stopped is abandoned: hooks are notified now, because the next run may be prepared then.
        """
        task, timeout = self.task, self.machine.policy.kill_timeout
        if not self.alloc.desired_transition.no_shutdown_delay and task.shutdown_delay > 0 and not end.ended.is_set():
            self.note(events.waiting_for_shutdown_delay(task.shutdown_delay))
            await wait_or_sleep(self._context.env, end.ended, task.shutdown_delay / NANOSECONDS)
        checkpoint = checkpoint_of(self.alloc)
        if checkpoint is not None and not end.ended.is_set():
            await _save_work(self, self._context.env, checkpoint, end.ended)
        failure = await self.calls.stop(self.task_id(run), signal=task.kill_signal, timeout=timeout, ended=end.ended)
        if failure:
            await end.notify(lambda: self._hooks.exited(self.hooked, ExitResult(error=failure)))
        self.post(machine.Stopped(run=run, error=failure))
        if not failure:
            await self.calls.watch_end(end.ended)

    async def _destroy(self, run: int) -> None:
        """Free the run once its end is stored, so that a crash in between does not lose the exit code."""
        await self._owner.wait_saved()
        await self.calls.destroy(self.task_id(run))

    async def _backoff(self, run: int, delay_s: float) -> None:
        if not await wait_or_sleep(self._context.env, self._wake, delay_s):
            self.post(machine.RestartDue(run=run))

    # Operations of other parts of the client.

    def note(self, event: TaskEvent) -> None:
        """Add an event without a change of state."""
        self.post(machine.Note(event=event))

    async def end_run(self, why: TaskEvent) -> None:
        """Kill the current run at once, as the kernel does when memory runs out; the restart policy then applies."""
        run = self.machine.run
        self.note(why)
        await self.calls.kill(self.task_id(run))

    async def signal(self, signal: str, reason: str = "") -> None:
        """Send a signal to the running task."""
        if not self.is_live:
            raise Invalid(f"task {self.name!r} is not running; only a running task can be sent a signal")
        self.note(events.signaling(signal, reason))
        await self.calls.signal(self.task_id(self.machine.run), signal)


def reserved_cores(alloc: Allocation, task: str) -> tuple[int, ...]:
    """The cores that an allocation gives to one of its tasks alone."""
    given = alloc.allocated_resources.tasks.get(task)
    return given.cpu.reserved_cores if given is not None else ()


def _follow_schedule(runner: TaskRunner, env: Env, dead: asyncio.Event) -> None:
    """Hold and release the task by its schedule, if it has one, until it is dead."""
    if runner.task.schedule is not None:
        from yurt.client.tasks.schedules import follow_schedule

        runner.spawn("schedule", follow_schedule(weakref.proxy(runner), env, dead))


async def _save_work(runner: TaskRunner, env: Env, checkpoint: Checkpoint, ended: asyncio.Event) -> None:
    """Ask the task to save its work; wait, at most for the grace, until it has saved or ended."""
    from yurt.client.tasks.checkpoints import last_saved

    before = (await env.in_thread(last_saved, runner.hooked, checkpoint)).done_at
    try:
        await runner.calls.signal(runner.task_id(runner.machine.run), checkpoint.signal)
    except YurtError as error:
        runner.note(events.checkpointing_failed(str(error)))
        return
    runner.note(events.checkpointing(checkpoint.signal, checkpoint.grace))
    until = env.now() + checkpoint.grace
    # An agent that stops its tasks at once ends this wait too: the grace may be an hour.
    while env.now() < until and not runner.alloc.desired_transition.no_shutdown_delay:
        if await wait_or_sleep(env, ended, SAVED_POLL_S):
            return
        if (await env.in_thread(last_saved, runner.hooked, checkpoint)).done_at > before:
            return


def checkpoint_of(alloc: Allocation) -> Checkpoint | None:
    """The checkpoint settings of an allocation that stops; None when no other allocation continues its work."""
    is_continued = alloc.desired_status == DESIRED_EVICT or alloc.desired_transition.migrate
    group = alloc.job.group(alloc.task_group) if alloc.job is not None and is_continued else None
    return group.checkpoint if group is not None else None


def policy_of(spec: TaskSpec, max_kill_timeout_s: float) -> machine.TaskPolicy:
    """The job's rules for the end of a task, within the client's limits."""
    return machine.TaskPolicy(
        restart=spec.task.restart_policy,
        restart_on_success=restarts_on_success(spec.task, spec.job.type),
        kill_timeout=Duration(min(spec.task.kill_timeout, round(max_kill_timeout_s * NANOSECONDS))),
        has_schedule=spec.task.schedule is not None,
    )


def _set(event: asyncio.Event, is_set: bool) -> None:
    if is_set:
        event.set()
    else:
        event.clear()


def _after_defect(action: machine.AnyAction, driver: str, error: Exception) -> machine.AnyTaskEvent:
    """The event for the machine after an unexpected failure of an action."""
    failure = f"failed unexpectedly: {type(error).__name__}: {error}"
    match action:
        case machine.RunSetup():
            return machine.SetupFailed(event=events.setup_failure(f"preparing the task {failure}"))
        case machine.StartTask():
            return machine.StartFailed(reason=f"driver {driver!r} starting the task {failure}")
        case machine.WatchTask(run=run):
            return machine.Exited(run=run, result=ExitResult(error=f"driver {driver!r} watching the task {failure}"))
        case machine.StopTask(run=run):
            return machine.Stopped(run=run, error=f"stopping the task {failure}")
        case machine.DestroyTask() | machine.SetTimer():
            raise AssertionError("a task goes on without the ends of these") from error
        case _:
            assert_never(action)
