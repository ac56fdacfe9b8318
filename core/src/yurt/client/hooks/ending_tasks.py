"""Waits until other tasks, which are being stopped, have left what a task is to use: a device, a host volume."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.client.timed_waits import wait_or_sleep
from yurt.lifecycle import events
from yurt.runtime.env import Env
from yurt.structs.alloc import Allocation, TaskEvent

HOLDER_LIMIT_S: Final = 600.0
HOLDER_LOOK_S: Final = 0.25


class EndingTask(Protocol):
    """A task that is to end."""

    @property
    def name(self) -> str:
        """Its name in the job."""
        ...

    @property
    def alloc(self) -> Allocation:
        """Its allocation."""
        ...


async def wait_left(
    task: ClientTask,
    env: Env,
    find: Callable[[], tuple[EndingTask, str] | None],
    *,
    event: Callable[[str], TaskEvent],
) -> None:
    """Wait while `find` names another task and what it still uses; the end of a wait is the task's kill, too.

    The task's first such event says what it waits for. Raises SetupProblem after `HOLDER_LIMIT_S`.
    """
    limit, is_noted = env.monotonic() + HOLDER_LIMIT_S, False
    while (found := find()) and not task.killed.is_set():
        other, used = found
        where = f"task {other.name} of allocation {other.alloc.id[:8]}"
        if env.monotonic() >= limit:
            failure = events.setup_failure(f"{used} is still used by {where} after {HOLDER_LIMIT_S:g} s")
            raise SetupProblem(failure, is_recoverable=True)
        if not is_noted:
            task.note(event(f"Waiting for {used}: {where} has not ended yet"))
            is_noted = True
        await wait_or_sleep(env, task.killed, HOLDER_LOOK_S)
