"""The state machine of one task of an allocation, from its receipt to its last end.

Phases and transitions:

    waiting --Begin--> setup --SetupDone--> starting --Started--> running --Exited--> backoff --RestartDue--> setup ...
    running --Kill or Restart--> stopping --Exited and Stopped--> dead, or setup again
    setup, starting, running --failure without a restart--> dead;  waiting, backoff --Kill--> dead at once
    waiting --Recovered--> running (the agent restarted)
    running, backoff, dead --AskRestart(from_start)--> waiting, so that the group's order decides again
    waiting, setup, backoff, stopping --while paused--> paused --Resume--> setup ...;  paused --Kill--> dead at once

The machine only answers with actions; the shell carries them out and feeds the results back as events. A kill that
arrives while a start is in flight is carried out when the start has answered, so that no started process is forgotten;
the same holds for a pause. `state.paused` says who decides whether the task runs: "" its schedule, which lets it run,
or no schedule; "scheduled_pause" its schedule, which holds it; "pause" and "run" a user. It survives a restart of the
agent. Must never happen: a start after a kill or while paused; two starts in flight; leaving `dead` without a user's
request; a falling `restarts`. `run` numbers the starts; results of an older run are ignored.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, assert_never

from yurt.lifecycle import events
from yurt.lifecycle.restarts import NoRestart, RestartOutcome, RestartWindow, decide
from yurt.sdk.driver import ExitResult
from yurt.sdk.value import Duration, UnixNano, Value, replace
from yurt.structs.alloc import TaskEvent, TaskState
from yurt.structs.policies import RestartPolicy
from yurt.structs.status import TASK_DEAD, TASK_PENDING, TASK_RUNNING

Phase = Literal["waiting", "setup", "starting", "running", "backoff", "stopping", "paused", "dead"]
WAITING: Final = "waiting"
SETUP: Final = "setup"
STARTING: Final = "starting"
RUNNING: Final = "running"
BACKOFF: Final = "backoff"
STOPPING: Final = "stopping"
PAUSED: Final = "paused"
DEAD: Final = "dead"

PAUSED_BY_USER: Final = "pause"  # these are values of `state.paused`, as the API names them
PAUSED_BY_SCHEDULE: Final = "scheduled_pause"
RUN_BY_USER: Final = "run"
LOST_MESSAGE: Final = "the task was not found when the agent restarted"


class TaskPolicy(Value):
    """The job's rules for the end of a task."""

    restart: RestartPolicy = RestartPolicy()
    restart_on_success: bool = False
    kill_timeout: Duration = Duration(5_000_000_000)
    has_schedule: bool = False


class TaskMachine(Value):
    """A task's phase and history; `state` is what the servers see."""

    policy: TaskPolicy
    state: TaskState = TaskState()
    phase: Phase = WAITING
    run: int = 0
    window: RestartWindow = RestartWindow()
    is_killed: bool = False
    is_outside_schedule: bool = False
    is_restart_asked: bool = False
    is_from_start: bool = False
    is_found_bad: bool = False
    has_exited: bool = False
    has_stopped: bool = False

    @property
    def is_paused(self) -> bool:
        """Whether a user or the schedule holds the task."""
        return self.state.paused in (PAUSED_BY_USER, PAUSED_BY_SCHEDULE)


class Begin(Value):
    """The group's order allows this task to run."""


class SetupDone(Value):
    """Directory, environment and configuration are prepared."""


class SetupFailed(Value):
    """The task cannot be prepared; `event` gives the reason."""

    event: TaskEvent
    is_recoverable: bool = False


class Started(Value):
    """The driver started the task."""


class StartFailed(Value):
    """The driver could not start the task."""

    reason: str
    is_recoverable: bool = False


class Exited(Value):
    """Run `run` of the task has ended."""

    run: int
    result: ExitResult


class Stopped(Value):
    """The driver reports that no process of run `run` is left; `error` is set when it could not be stopped."""

    run: int
    error: str = ""


class RestartDue(Value):
    """The delay before run `run` has passed."""

    run: int


class Kill(Value):
    """End the task permanently; `reason` explains it, unless the allocation was stopped."""

    reason: TaskEvent | None = None
    is_failure: bool = False


class AskRestart(Value):
    """A user (or a changed template) requests a restart now.

    `from_start`: with its whole group, even if dead. `is_failure`: a check found it bad, so its end counts as a
    failure and the restart policy decides.
    """

    reason: str
    from_start: bool = False
    is_failure: bool = False


class Pause(Value):
    """A user asks to pause the task until it is resumed."""


class Resume(Value):
    """A user asks to resume the task, whatever its schedule says."""


class FollowSchedule(Value):
    """A user returns the decision to the task's schedule; without a schedule, the task runs."""


class ScheduleEdge(Value):
    """The task's schedule lets it run from now on, or holds it."""

    is_open: bool


class Recovered(Value):
    """The driver has recovered the task after a restart of the agent."""


class Lost(Value):
    """After a restart of the agent, the driver did not find the task."""


class Note(Value):
    """An event for the user without a change of state."""

    event: TaskEvent


class Checkpointed(Value):
    """The task has saved its work at that time."""

    at: UnixNano


UserWish = AskRestart | Pause | Resume | FollowSchedule | ScheduleEdge
AnyTaskEvent = (
    Begin | SetupDone | SetupFailed | Started | StartFailed | Exited | Stopped | RestartDue | Kill
    | UserWish | Recovered | Lost | Note | Checkpointed
)  # fmt: skip


class RunSetup(Value):
    """Prepare run `run`."""

    run: int


class StartTask(Value):
    """Start run `run` with the driver."""

    run: int


class WatchTask(Value):
    """Wait for the end of run `run`."""

    run: int


class StopTask(Value):
    """Stop run `run` gracefully, then by force."""

    run: int


class DestroyTask(Value):
    """Free the driver's resources for run `run`."""

    run: int


class SetTimer(Value):
    """Send RestartDue(run) after `delay`."""

    run: int
    delay: Duration


AnyAction = RunSetup | StartTask | WatchTask | StopTask | DestroyTask | SetTimer


class TaskStep(NamedTuple):
    """The machine after an event and the actions of the shell, in this order."""

    machine: TaskMachine
    actions: tuple[AnyAction, ...] = ()


def new_task(policy: TaskPolicy, now: UnixNano) -> TaskMachine:
    """A task that the client has just received."""
    return _noted(TaskMachine(policy=policy), events.received(), now)


def restored_task(policy: TaskPolicy, state: TaskState, run: int, window: RestartWindow) -> TaskMachine:
    """A task from the record of an earlier agent; a live one waits for Recovered, Lost or Begin."""
    phase: Phase = DEAD if state.state == TASK_DEAD else WAITING
    return TaskMachine(policy=policy, state=state, phase=phase, run=run, window=window)


def advance(machine: TaskMachine, event: AnyTaskEvent, *, now: UnixNano, chance: float) -> TaskStep:
    """The machine after `event`.

    `chance` in [0, 1) spreads restart delays. Events that do not fit the phase change nothing.
    """
    assert 0.0 <= chance < 1.0, chance
    step = _advance(machine, event, now=now, chance=chance)
    _check(machine, step.machine)
    _check_actions(step)
    is_wished = isinstance(event, AskRestart) and event.from_start
    assert machine.phase != DEAD or step.machine.phase == DEAD or is_wished, "dead is left by a user's wish alone"
    return step


def _check(before: TaskMachine, after: TaskMachine) -> None:
    """Assert the invariants that hold after every event."""
    assert after.state.restarts >= before.state.restarts, "restarts are counted, never taken back"
    assert after.run == before.run or after.run == before.run + 1, (before.run, after.run, "one event, one start")
    assert len(after.state.events) <= max(events.EVENTS_MAX, len(before.state.events)), len(after.state.events)
    assert (after.phase == DEAD) == (after.state.state == TASK_DEAD), "the servers see a dead task as dead, at once"
    assert after.phase != RUNNING or after.state.state == TASK_RUNNING, (after.phase, after.state.state)
    assert not (after.is_killed and after.phase in (BACKOFF, PAUSED)), "a killed task does not wait to start again"
    assert after.phase != PAUSED or after.is_paused, "a task that is not paused leaves the phase paused"
    assert after.run >= before.run, "an event of an earlier run never counts for a later one"
    assert not after.has_exited or not after.has_stopped or after.phase != STOPPING, (
        "a run that has exited and stopped is over"
    )


def _check_actions(step: TaskStep) -> None:
    """Assert invariants of the actions that an event causes."""
    machine, actions = step
    starts = [action for action in actions if isinstance(action, RunSetup | StartTask | SetTimer)]
    assert len(starts) <= 1, (starts, "no two starts are in flight")
    assert not starts or not machine.is_killed, (starts, "nothing starts after a kill")
    assert not starts or starts[0].run == machine.run, (starts[0].run, machine.run)
    assert not starts or not machine.is_paused, (starts, "nothing starts while it is paused")
    assert machine.phase != DEAD or all(isinstance(action, DestroyTask) for action in actions), actions


def _advance(machine: TaskMachine, event: AnyTaskEvent, *, now: UnixNano, chance: float) -> TaskStep:
    match event:
        case Note(event=note):
            return TaskStep(_noted(machine, note, now))
        case Checkpointed(at=at):
            latest = max(machine.state.checkpointed_at, at)
            return TaskStep(replace(machine, state=replace(machine.state, checkpointed_at=latest)))
        case Begin():
            return _begin(machine, now) if machine.phase == WAITING else TaskStep(machine)
        case SetupDone():
            return _setup_done(machine, now)
        case SetupFailed(event=failure, is_recoverable=is_recoverable):
            return _attempt_failed(machine, SETUP, failure, is_recoverable=is_recoverable, clock=Clock(now, chance))
        case Started():
            return _started(machine, now)
        case StartFailed(reason=reason, is_recoverable=is_recoverable):
            failure = events.driver_failure(reason)
            return _attempt_failed(machine, STARTING, failure, is_recoverable=is_recoverable, clock=Clock(now, chance))
        case Exited(run=run, result=result):
            return _exited(machine, result, Clock(now, chance)) if run == machine.run else TaskStep(machine)
        case Stopped(run=run, error=error):
            return _stopped(machine, error, Clock(now, chance)) if run == machine.run else TaskStep(machine)
        case RestartDue(run=run):
            is_due = machine.phase == BACKOFF and run == machine.run
            return _setup(machine) if is_due else TaskStep(machine)
        case Kill():
            return _kill(machine, event, now)
        case AskRestart() | Pause() | Resume() | FollowSchedule() | ScheduleEdge():
            return _wished(machine, event, now)
        case Recovered():
            return _recovered(machine, now)
        case Lost():
            return _lost(machine, Clock(now, chance))
        case _:
            assert_never(event)


class Clock(NamedTuple):
    """The external inputs of a restart decision: the time, and a random number."""

    now: UnixNano
    chance: float


def _noted(machine: TaskMachine, event: TaskEvent, now: UnixNano) -> TaskMachine:
    """The machine with one more task event."""
    kept = events.with_event(machine.state.events, events.at(event, now))
    return replace(machine, state=replace(machine.state, events=kept))


def _begin(machine: TaskMachine, now: UnixNano) -> TaskStep:
    if machine.is_paused:
        return TaskStep(replace(machine, phase=PAUSED))
    return _setup(_noted(machine, events.building_task_directory(), now))


def _setup(machine: TaskMachine) -> TaskStep:
    return TaskStep(replace(machine, phase=SETUP), (RunSetup(run=machine.run),))


def _setup_done(machine: TaskMachine, now: UnixNano) -> TaskStep:
    if machine.phase != SETUP:
        return TaskStep(machine)
    if machine.is_killed:
        return _dead(_noted(machine, events.killed(), now), now, is_failed=False)
    if machine.is_paused:
        return TaskStep(replace(machine, phase=PAUSED))
    return TaskStep(replace(machine, phase=STARTING), (StartTask(run=machine.run),))


def _attempt_failed(
    machine: TaskMachine, phase: Phase, failure: TaskEvent, *, is_recoverable: bool, clock: Clock
) -> TaskStep:
    if machine.phase != phase:
        return TaskStep(machine)
    machine = _noted(machine, failure, clock.now)
    if machine.is_killed:
        return _dead(_noted(machine, events.killed(), clock.now), clock.now, is_failed=False)
    return _ended(machine, RestartOutcome(is_recoverable=is_recoverable), clock)


def _started(machine: TaskMachine, now: UnixNano) -> TaskStep:
    if machine.phase != STARTING:
        return TaskStep(machine)
    machine = _noted(machine, events.started(), now)
    state = replace(machine.state, state=TASK_RUNNING, started_at=now)
    machine = replace(machine, state=state, phase=RUNNING)
    return _running(machine, now)


def _running(machine: TaskMachine, now: UnixNano) -> TaskStep:
    """Watch the run, or stop it at once if that was requested during its start."""
    watch = (WatchTask(run=machine.run),)
    if machine.is_killed or machine.is_paused:
        step = _stop(_noted(machine, events.killing(machine.policy.kill_timeout), now))
        return TaskStep(step.machine, watch + step.actions)
    return TaskStep(machine, watch)


def _exited(machine: TaskMachine, result: ExitResult, clock: Clock) -> TaskStep:
    if machine.phase == RUNNING:
        machine = _noted(machine, events.terminated(result), clock.now)
        step = _ended(machine, RestartOutcome(is_success=result.is_success), clock)
        return TaskStep(step.machine, (DestroyTask(run=machine.run), *step.actions))
    if machine.phase == STOPPING and not machine.has_exited:
        machine = replace(_noted(machine, events.terminated(result), clock.now), has_exited=True)
        return _after_stop(machine, clock) if machine.has_stopped else TaskStep(machine)
    return TaskStep(machine)


def _stopped(machine: TaskMachine, error: str, clock: Clock) -> TaskStep:
    if machine.phase != STOPPING or machine.has_stopped:
        return TaskStep(machine)
    if error:
        machine = _noted(machine, events.killed(error), clock.now)
    machine = replace(machine, has_stopped=True, has_exited=machine.has_exited or bool(error))
    return _after_stop(machine, clock) if machine.has_exited else TaskStep(machine)


def _after_stop(machine: TaskMachine, clock: Clock) -> TaskStep:
    destroy = DestroyTask(run=machine.run)
    if machine.is_killed:
        step = _dead(_noted(machine, events.killed(), clock.now), clock.now, is_failed=False)
    elif machine.is_paused:
        step = _run_paused(machine, clock.now)
    elif machine.is_found_bad:
        step = _ended(machine, RestartOutcome(is_success=False), clock)
    else:
        step = _again_now(machine, clock.now)
    return TaskStep(step.machine, (destroy, *step.actions))


def _again_now(machine: TaskMachine, now: UnixNano) -> TaskStep:
    """Restart by request, at once or when the group's order allows it; it is not counted in the restart window."""
    is_from_start = machine.is_from_start
    machine = _noted(machine, events.restarting("", Duration(0)), now)
    machine = replace(_next_run(machine, now), is_from_start=False)
    if not is_from_start:
        return _setup(machine)
    return TaskStep(replace(machine, phase=WAITING, state=replace(machine.state, started_at=0)))


def _run_paused(machine: TaskMachine, now: UnixNano) -> TaskStep:
    """The pause has ended the run; the next run continues the task, so it does not count as a restart."""
    old = machine.state
    machine = _next_run(_noted(machine, events.paused(), now), now)
    state = replace(machine.state, restarts=old.restarts, last_restart=old.last_restart)
    return TaskStep(replace(machine, state=state, phase=PAUSED, is_from_start=False))


def _next_run(machine: TaskMachine, now: UnixNano) -> TaskMachine:
    old = machine.state
    state = replace(old, state=TASK_PENDING, failed=False, finished_at=0, restarts=old.restarts + 1, last_restart=now)
    return replace(
        machine,
        state=state,
        run=machine.run + 1,
        is_restart_asked=False,
        is_found_bad=False,
        has_exited=False,
        has_stopped=False,
    )


def _ended(machine: TaskMachine, outcome: RestartOutcome, clock: Clock) -> TaskStep:
    """Process the end of a run without a request to end it."""
    choice = decide(
        machine.window,
        machine.policy.restart,
        outcome=outcome,
        on_success=machine.policy.restart_on_success,
        now=clock.now,
        chance=clock.chance,
    )
    machine = replace(machine, window=choice.window)
    if isinstance(choice, NoRestart):
        if choice.is_failed:
            machine = _noted(machine, events.not_restarting(choice.reason), clock.now)
        return _dead(machine, clock.now, is_failed=choice.is_failed)
    machine = _next_run(_noted(machine, events.restarting(choice.reason, choice.delay), clock.now), clock.now)
    if machine.is_paused:
        return TaskStep(replace(machine, phase=PAUSED))
    return TaskStep(replace(machine, phase=BACKOFF), (SetTimer(run=machine.run, delay=choice.delay),))


def _dead(machine: TaskMachine, now: UnixNano, *, is_failed: bool) -> TaskStep:
    is_failed = machine.state.failed or is_failed
    state = replace(machine.state, state=TASK_DEAD, failed=is_failed, finished_at=now, paused="")
    return TaskStep(replace(machine, state=state, phase=DEAD))


def _kill(machine: TaskMachine, kill: Kill, now: UnixNano) -> TaskStep:
    if machine.phase == DEAD or machine.is_killed:
        return TaskStep(machine)
    if kill.reason is not None:
        machine = _noted(machine, kill.reason, now)
    machine = replace(machine, is_killed=True, is_restart_asked=False)
    if kill.is_failure:
        machine = replace(machine, state=replace(machine.state, failed=True))
    match machine.phase:
        case "waiting" | "backoff" | "paused":
            return _dead(_noted(machine, events.killed(), now), now, is_failed=False)
        case "running":
            return _stop(_noted(machine, events.killing(machine.policy.kill_timeout), now))
        case "setup" | "starting" | "stopping" | "dead":
            # The driver or a hook is at work and cannot be interrupted: the event of its end looks at `is_killed`.
            return TaskStep(machine)
        case _:
            assert_never(machine.phase)


def _stop(machine: TaskMachine) -> TaskStep:
    machine = replace(machine, phase=STOPPING, has_exited=False, has_stopped=False)
    return TaskStep(machine, (StopTask(run=machine.run),))


def _wished(machine: TaskMachine, wish: UserWish, now: UnixNano) -> TaskStep:
    match wish:
        case AskRestart():
            return _ask_restart(machine, wish, now)
        case Pause():
            return _pause(machine, now)
        case Resume():
            return _resume(machine, now, RUN_BY_USER if machine.policy.has_schedule else "")
        case FollowSchedule():
            if machine.state.paused == RUN_BY_USER:
                machine = replace(machine, state=replace(machine.state, paused=""))
            return _hold(machine, now) if machine.is_outside_schedule else _resume(machine, now, "")
        case ScheduleEdge(is_open=is_open):
            return _window(machine, is_open=is_open, now=now)
        case _:
            assert_never(wish)


def _pause(machine: TaskMachine, now: UnixNano) -> TaskStep:
    if machine.phase == DEAD or machine.is_killed or machine.state.paused == PAUSED_BY_USER:
        return TaskStep(machine)
    return _paused_by(_noted(machine, events.pausing(), now), PAUSED_BY_USER)


def _hold(machine: TaskMachine, now: UnixNano) -> TaskStep:
    """The schedule ends the run or prevents the next one."""
    if machine.phase == DEAD or machine.is_killed or machine.state.paused == PAUSED_BY_SCHEDULE:
        return TaskStep(machine)
    return _paused_by(_noted(machine, events.outside_schedule(), now), PAUSED_BY_SCHEDULE)


def _paused_by(machine: TaskMachine, who: str) -> TaskStep:
    machine = replace(machine, state=replace(machine.state, paused=who))
    if machine.phase == RUNNING:
        return _stop(machine)
    # What else is under way comes to its end first: the event of that looks at `is_paused`.
    return TaskStep(replace(machine, phase=PAUSED) if machine.phase == BACKOFF else machine)


def _resume(machine: TaskMachine, now: UnixNano, who: str) -> TaskStep:
    """The task may run; `who` decides about it from now on."""
    if machine.phase == DEAD or machine.state.paused == who:
        return TaskStep(machine)
    if not machine.is_paused:
        return TaskStep(replace(machine, state=replace(machine.state, paused=who)))
    is_scheduled = machine.state.paused == PAUSED_BY_SCHEDULE and not who
    machine = _noted(machine, events.inside_schedule() if is_scheduled else events.resuming(), now)
    machine = replace(machine, state=replace(machine.state, paused=who))
    return _setup(machine) if machine.phase == PAUSED else TaskStep(machine)


def _window(machine: TaskMachine, *, is_open: bool, now: UnixNano) -> TaskStep:
    """The scheduled hours begin or end; a user's decision takes precedence."""
    machine = machine if machine.is_outside_schedule != is_open else replace(machine, is_outside_schedule=not is_open)
    if machine.state.paused in (PAUSED_BY_USER, RUN_BY_USER):
        return TaskStep(machine)
    return _resume(machine, now, "") if is_open else _hold(machine, now)


def _ask_restart(machine: TaskMachine, ask: AskRestart, now: UnixNano) -> TaskStep:
    if machine.is_killed and not (machine.phase == DEAD and ask.from_start):
        return TaskStep(machine)
    noted = replace(_noted(machine, events.restart_signaled(ask.reason), now), is_from_start=ask.from_start)
    match machine.phase:
        case "running":
            return _stop(replace(noted, is_restart_asked=True, is_found_bad=ask.is_failure))
        case "backoff" | "dead" if ask.is_failure:
            # A check that failed is about a run that has ended: the restart policy has decided on it already.
            return TaskStep(machine)
        case "backoff":
            return _again_now(noted, now) if ask.from_start else _setup(noted)
        case "dead":
            return _again_now(replace(noted, is_killed=False), now) if ask.from_start else TaskStep(machine)
        case "waiting" | "setup" | "starting" | "stopping" | "paused":
            return TaskStep(machine)
        case _:
            assert_never(machine.phase)


def _recovered(machine: TaskMachine, now: UnixNano) -> TaskStep:
    if machine.phase != WAITING:
        return TaskStep(machine)
    state = machine.state
    if state.state != TASK_RUNNING:
        machine = _noted(machine, events.started(), now)
        state = replace(machine.state, state=TASK_RUNNING, started_at=now)
    return _running(replace(machine, state=state, phase=RUNNING), now)


def _lost(machine: TaskMachine, clock: Clock) -> TaskStep:
    if machine.phase != WAITING:
        return TaskStep(machine)
    machine = _noted(machine, events.terminated(ExitResult(error=LOST_MESSAGE)), clock.now)
    if machine.is_paused:
        # The agent ended while it stopped the run: that the run is gone is what the user wanted.
        return _run_paused(machine, clock.now)
    return _ended(machine, RestartOutcome(), clock)
