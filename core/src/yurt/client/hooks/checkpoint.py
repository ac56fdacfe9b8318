"""Checkpoints: the hook that makes a task's checkpoint directory and tells the servers when it saved last.

The servers choose whom to preempt by what would be lost, and say what was.
"""

from __future__ import annotations

import asyncio

from yurt.client.tasks.checkpoints import last_saved, make_folder
from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.lifecycle import events
from yurt.runtime.env import Env
from yurt.sdk.driver import ExitResult, TaskHandle
from yurt.sdk.errors import Invalid
from yurt.sdk.hooks import TaskHookOf
from yurt.sdk.value import NANOSECONDS
from yurt.structs.policies import Checkpoint

LOOK_MIN_S = 5.0
LOOK_MAX_S = 60.0
LOOKS_PER_INTERVAL = 10
OVERDUE = 2
"""Intervals without a checkpoint after which an event tells so."""


class CheckpointHook(TaskHookOf[ClientTask]):
    """Reads the group's `checkpoint` block."""

    name = "checkpoint"

    def __init__(self, env: Env) -> None:
        self._env = env
        self._watched: set[tuple[str, str]] = set()

    async def prepare(self, task: ClientTask) -> None:
        """Make the directory."""
        checkpoint = task.spec.group.checkpoint
        if checkpoint is None:
            return
        try:
            await asyncio.to_thread(make_folder, task, checkpoint)
        except (OSError, Invalid) as error:
            text = f"the checkpoint directory {checkpoint.path!r} cannot be made: {error}"
            raise SetupProblem(events.setup_failure(text)) from None

    async def started(self, task: ClientTask, handle: TaskHandle) -> None:
        """Watch the directory."""
        self._follow(task)

    async def recover(self, task: ClientTask) -> None:
        """Watch the directory."""
        self._follow(task)

    async def exited(self, task: ClientTask, result: ExitResult) -> None:
        """Note what was saved last: after a warning the watch has ended before the task."""
        checkpoint = task.spec.group.checkpoint
        if checkpoint is not None:
            await self._look(task, checkpoint)

    def finish(self, task: ClientTask) -> None:
        """Stop watching."""
        self._watched.discard(task.key)

    def _follow(self, task: ClientTask) -> None:
        checkpoint = task.spec.group.checkpoint
        if checkpoint is not None and task.key not in self._watched:
            self._watched.add(task.key)
            task.follow(self._watch(task))

    async def _watch(self, task: ClientTask) -> None:
        began, warned_for = self._env.now(), 0
        while (checkpoint := task.spec.group.checkpoint) is not None:
            period = checkpoint.interval / NANOSECONDS / LOOKS_PER_INTERVAL or LOOK_MIN_S
            await self._env.sleep(min(max(period, LOOK_MIN_S), LOOK_MAX_S))
            saved = await self._look(task, checkpoint)
            since = max(saved, began)
            is_overdue = 0 < checkpoint.interval * OVERDUE < self._env.now() - since
            if is_overdue and warned_for != since:
                warned_for = since
                task.note(events.checkpoint_overdue(checkpoint.interval))

    async def _look(self, task: ClientTask, checkpoint: Checkpoint) -> int:
        saved = (await asyncio.to_thread(last_saved, task, checkpoint)).at
        if saved:
            task.saved(min(saved, self._env.now()))
        return saved
