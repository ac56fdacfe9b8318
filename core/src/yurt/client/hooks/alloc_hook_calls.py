"""Calls the allocation hooks of a node, in the order and by the contract of `yurt.sdk.hooks`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine, Sequence
from functools import partial
from typing import Any, Final

from yurt.client.allocations.client_alloc import ClientAlloc
from yurt.client.hooks.task_hook_calls import called, count_hook, failure_text, overriding
from yurt.client.timed_waits import finish_unless, finish_within
from yurt.lifecycle import events
from yurt.runtime.env import Env
from yurt.runtime.metrics import Metrics
from yurt.runtime.supervise import outcome_of, outcome_of_call
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.sdk.hooks import ALLOC_HOOKS, AllocHookOf
from yurt.sdk.value import NANOSECONDS, UnixNano
from yurt.structs.alloc import TaskEvent

LIMIT_S: Final = 10.0
"""The time limit for one step of a package's hook when an allocation is recovered or ends."""
UPDATE_PAUSE_S: Final = 0.5
"""The shortest interval between two calls of an unchanged package's hook: each causes a disk write."""

log = logging.getLogger(__name__)


class AllocHookCalls:
    """Calls all allocation hooks of a node for each step of an allocation."""

    def __init__(self, hooks: Sequence[AllocHookOf[ClientAlloc]], env: Env, *, metrics: Metrics | None = None) -> None:
        self._env = env
        self._metrics = metrics or Metrics()
        self._preparing = overriding(hooks, "prepare", AllocHookOf)
        self._recovering = overriding(hooks, "recover", AllocHookOf)
        self._updating = overriding(hooks, "update", AllocHookOf)
        self._stopping = overriding(hooks, "stopping", AllocHookOf)
        self._exiting = overriding(hooks, "exited", AllocHookOf)
        self._finishing = overriding(hooks, "finish", AllocHookOf)

    async def prepare(self, alloc: ClientAlloc) -> TaskEvent | None:
        """Have every hook prepare the allocation; returns the event of a failure, or None."""
        for hook in self._preparing:
            began = self._env.monotonic()
            work = called(hook.prepare, alloc)
            error = await outcome_of(work if _is_own(hook) else finish_unless(alloc.stopping, work))
            count_hook(
                self._metrics, "alloc_hook.prerun", hook.name, self._env.monotonic() - began, is_well=error is None
            )
            if isinstance(error, Exception):
                return events.setup_failure(failure_text(hook.name, error))
        return None

    async def recover(self, alloc: ClientAlloc) -> None:
        """Have every hook recover an allocation of an earlier agent.

        The node becomes ready only after that, so one of a package is given up after a while, or when the allocation
        is to end.
        """
        for hook in self._recovering:
            work = called(hook.recover, alloc)
            error = await outcome_of(work if _is_own(hook) else self._within_limit(alloc, work))
            if isinstance(error, Exception):
                alloc.note(events.hook_failed(failure_text(hook.name, error)))

    async def _within_limit(self, alloc: ClientAlloc, work: Coroutine[Any, Any, None]) -> None:
        """Do the work unless the allocation stops first; raises RecoverableError at the time limit."""

        async def until_the_end() -> None:
            await finish_unless(alloc.stopping, work)

        if not await finish_within(self._env, until_the_end(), LIMIT_S):
            raise RecoverableError(f"not done within {LIMIT_S:g} s")

    def update(self, alloc: ClientAlloc) -> UnixNano:
        """Update every hook; returns when to call again, 0 for never."""
        wakes: list[UnixNano] = []
        for hook in self._updating:
            outcome = outcome_of_call(partial(hook.update, alloc) if _is_own(hook) else partial(self._ask, hook, alloc))
            if not isinstance(outcome, Exception):
                alloc.failing.discard(hook.name)
                wakes += [outcome] if outcome else []
            elif hook.name not in alloc.failing:  # a note is a change, and leads here again
                alloc.failing.add(hook.name)
                alloc.note(events.hook_failed(failure_text(hook.name, outcome)))
        return min(wakes, default=UnixNano(0))

    def _ask(self, hook: AllocHookOf[ClientAlloc], alloc: ClientAlloc) -> UnixNano | None:
        """Update a package's hook; returns the time of its next call, at the earliest after a pause. Raises Invalid."""
        answer: object = hook.update(alloc)
        if isinstance(answer, Coroutine):
            answer.close()
        if answer is None:
            return None
        if not isinstance(answer, int) or isinstance(answer, bool):
            raise Invalid(f"update gives a {type(answer).__name__}; it must give a time in nanoseconds or None")
        earliest = self._env.now() + round(UPDATE_PAUSE_S * NANOSECONDS)
        return UnixNano(max(answer, earliest)) if answer else None

    def stopping(self, alloc: ClientAlloc) -> Awaitable[None] | None:
        """The hooks' work before the tasks are killed; None for none."""
        asked = [(hook.name, outcome_of_call(partial(hook.stopping, alloc))) for hook in self._stopping]
        works = [self._stop_step(alloc, name, work) for name, work in asked if work is not None]
        return _all_done(works) if works else None

    async def _stop_step(self, alloc: ClientAlloc, name: str, work: Awaitable[None] | Exception) -> None:
        limited = finish_within(self._env, _done(work), LIMIT_S) if not isinstance(work, Exception) else None
        error = await outcome_of(limited) if limited is not None else work
        if isinstance(error, Exception):
            alloc.note(events.hook_failed(failure_text(name, error)))
        elif not error:
            alloc.note(events.hook_failed(f'hook "{name}" was not done within {LIMIT_S:g} s'))

    async def exited(self, alloc: ClientAlloc) -> None:
        """Notify every hook that all tasks have ended; the end is reported to the servers when this returns."""
        for hook in self._exiting:
            work = called(hook.exited, alloc)
            error = await outcome_of(work if _is_own(hook) else finish_within(self._env, work, LIMIT_S))
            if isinstance(error, Exception):
                log.warning("hook failed: allocation=%s reason=%s", alloc.id, failure_text(hook.name, error))
            elif error is False:
                log.warning('hook "%s" was not done within %g s: allocation=%s', hook.name, LIMIT_S, alloc.id)

    def finish(self, alloc: ClientAlloc) -> None:
        """Notify every hook that the allocation is over."""
        alloc.stop_following()
        for hook in self._finishing:
            error = outcome_of_call(partial(hook.finish, alloc))
            if error is not None:
                log.warning("hook failed: allocation=%s reason=%s", alloc.id, failure_text(hook.name, error))


def _is_own(hook: AllocHookOf[ClientAlloc]) -> bool:
    """Whether it is one of Yurt's own hooks, which need no time limit."""
    return hook.name in ALLOC_HOOKS


async def _done(work: Awaitable[None]) -> None:
    await work


async def _all_done(works: Sequence[Awaitable[None]]) -> None:
    await asyncio.gather(*works)
