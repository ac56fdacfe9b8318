"""Calls the task hooks of a node, in the order and by the contract of `yurt.sdk.hooks`.

Only hooks that do something at a step are called there, so a step at which no hook does anything takes no time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, ParamSpec, TypeVar

from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.client.timed_waits import finish_unless, finish_within, value_unless
from yurt.lifecycle import events
from yurt.runtime.env import Env
from yurt.runtime.metrics import Metrics
from yurt.runtime.supervise import outcome_of, outcome_of_call
from yurt.sdk.driver import ExitResult, TaskHandle
from yurt.sdk.errors import Invalid, RecoverableError, YurtError
from yurt.sdk.hooks import TASK_HOOKS, Additions, TaskHookOf
from yurt.structs.alloc import Allocation

EXITED_LIMIT_S: Final = 10.0
"""The time limit for hooks to free the resources of an ended run."""
RECOVER_LIMIT_S: Final = 10.0
"""The time limit for a package's hook to recover a run."""

log = logging.getLogger(__name__)

H = TypeVar("H")
T = TypeVar("T")
P = ParamSpec("P")


def overriding(hooks: Sequence[H], step: str, base: type) -> tuple[H, ...]:
    """The hooks that implement a step."""
    return tuple(hook for hook in hooks if getattr(type(hook), step) is not getattr(base, step))


def failure_text(name: str, error: Exception) -> str:
    """The failure of a hook in one line; unexpected exceptions are logged with a traceback."""
    if isinstance(error, YurtError):
        return f'hook "{name}": {error}'
    log.error("hook %s failed", name, exc_info=error)
    return f'hook "{name}" failed unexpectedly: {type(error).__name__}: {error}'


def count_hook(metrics: Metrics, step: str, hook: str, seconds: float, *, is_well: bool) -> None:
    """Count and time one call of a hook."""
    labels = (("hook_name", hook),)
    metrics.count(f"{step}.success" if is_well else f"{step}.failed", labels=labels)
    metrics.time(f"{step}.elapsed", seconds, labels=labels)


async def called(step: Callable[P, Awaitable[T]], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call and await a step; a step that is not a coroutine function is reported as its failure."""
    return await step(*args, **kwargs)


class TaskHookCalls:
    """Calls all task hooks of a node for each step of a task."""

    def __init__(self, hooks: Sequence[TaskHookOf[ClientTask]], env: Env, *, metrics: Metrics | None = None) -> None:
        self._env = env
        self._metrics = metrics or Metrics()
        self._preparing = overriding(hooks, "prepare", TaskHookOf)
        self._starting = overriding(hooks, "started", TaskHookOf)
        self._exiting = overriding(hooks, "exited", TaskHookOf)
        self._recovering = overriding(hooks, "recover", TaskHookOf)
        self._updating = overriding(hooks, "update", TaskHookOf)
        self._finishing = overriding(hooks, "finish", TaskHookOf)
        self._in_finish: set[tuple[str, str]] = set()

    async def prepare(self, task: ClientTask) -> None:
        """Have every hook prepare the next run; raises SetupProblem.

        Yurt's own hooks end by themselves when the task is killed; one of a package is given up.
        """
        for hook in self._preparing:
            is_added = hook.name not in TASK_HOOKS
            if is_added and task.killed.is_set():
                continue
            work = (
                value_unless(task.killed, additions_of(called(hook.prepare, task))) if is_added else hook.prepare(task)
            )
            began = self._env.monotonic()
            outcome = await outcome_of(work)
            took_s, is_well = self._env.monotonic() - began, not isinstance(outcome, Exception)
            count_hook(self._metrics, "task_hook.prestart", hook.name, took_s, is_well=is_well)
            if isinstance(outcome, SetupProblem):
                raise outcome
            if isinstance(outcome, Exception):
                failure = events.setup_failure(failure_text(hook.name, outcome))
                raise SetupProblem(failure, is_recoverable=isinstance(outcome, RecoverableError)) from outcome
            if outcome is not None:
                task.give(outcome)

    @property
    def has_started(self) -> bool:
        """Whether any hook implements `started`."""
        return bool(self._starting)

    async def started(self, task: ClientTask, handle: TaskHandle, *, ended: asyncio.Event) -> None:
        """Notify every hook that the run has started; its end cuts this short."""

        async def notify() -> None:
            await asyncio.gather(
                *(_noted(task, hook.name, partial(hook.started, task, handle)) for hook in self._starting)
            )

        await finish_unless(ended, notify())

    async def exited(self, task: ClientTask, result: ExitResult) -> None:
        """Notify every hook that the run has ended; returns when they are done, or at the time limit."""
        if self._exiting and not await finish_within(self._env, self._exit(task, result), EXITED_LIMIT_S):
            task.note(events.hook_failed(f"hooks of the run's end were not done within {EXITED_LIMIT_S:g} s"))

    async def _exit(self, task: ClientTask, result: ExitResult) -> None:
        for hook in self._exiting:
            await _noted(task, hook.name, partial(hook.exited, task, result))

    async def recover(self, task: ClientTask) -> None:
        """Have every hook recover a run of an earlier agent.

        Those of packages come first, each within a bound: Yurt's own wait for the servers, as long as it takes, and
        templates need the variables that packages give.
        """
        for hook in sorted(self._recovering, key=lambda each: each.name in TASK_HOOKS):
            work = self._recover_added(hook, task) if hook.name not in TASK_HOOKS else hook.recover(task)
            outcome = await outcome_of(work)
            if isinstance(outcome, Additions):
                task.give(outcome)
            elif outcome is not None:
                task.note(events.hook_failed(failure_text(hook.name, outcome)))

    async def _recover_added(self, hook: TaskHookOf[ClientTask], task: ClientTask) -> Additions | None:
        given: list[Additions | None] = []

        async def recover() -> None:
            given.append(await additions_of(called(hook.recover, task)))

        if not await finish_within(self._env, recover(), RECOVER_LIMIT_S):
            raise RecoverableError(f"not done within {RECOVER_LIMIT_S:g} s")
        return given[0]

    def update(self, task: ClientTask, alloc: Allocation) -> None:
        """Adopt the changed allocation, and call every hook's `update` if its job was updated in place."""
        before = task.spec
        if before.alloc is alloc:
            return
        task.change(alloc)
        if before.job is task.spec.job or before.job == task.spec.job:
            return
        for hook in self._updating:
            error = outcome_of_call(partial(hook.update, task))
            if error is not None:
                task.note(events.hook_failed(failure_text(hook.name, error)))

    def finish(self, task: ClientTask) -> None:
        """Notify every hook that the task is killed or dead; their requests are ignored meanwhile."""
        if self.is_finishing(task):
            return
        self._in_finish.add(task.key)
        task.stop_following()
        for hook in self._finishing:
            error = outcome_of_call(partial(hook.finish, task))
            if error is not None:
                log.warning("hook failed: task=%s reason=%s", "/".join(task.key), failure_text(hook.name, error))
        task.stop_following()  # and what a hook has begun in spite of that
        self._in_finish.discard(task.key)

    def is_finishing(self, task: ClientTask) -> bool:
        """Whether hooks are being notified of the task's end; their requests are then ignored, to avoid a loop."""
        return task.key in self._in_finish


async def additions_of(work: Awaitable[Additions | None]) -> Additions | None:
    """The additions of a package's hook to a run; raises Invalid for another type."""
    given = await work
    if given is not None and not isinstance(given, Additions):
        raise Invalid(f"gives a {type(given).__name__}; it must give Additions or None")
    return given


async def _noted(task: ClientTask, name: str, step: Callable[[], Awaitable[None]]) -> None:
    """Run a step and note its failure; a step that is cancelled before its turn has not created a coroutine."""
    error = await outcome_of(called(step))
    if error is not None:
        task.note(events.hook_failed(failure_text(name, error)))
