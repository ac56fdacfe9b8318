"""The checkpoint hook: provides the directory in which a task saves its work, and reports when it saved last."""

from __future__ import annotations

from typing import Final

from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.lifecycle import events
from yurt.lifecycle.task import Checkpointed
from yurt.runtime.env import Env
from yurt.sdk.driver import ExitResult, TaskHandle
from yurt.sdk.errors import Invalid
from yurt.sdk.hooks import TaskHookOf
from yurt.sdk.value import NANOSECONDS, UnixNano
from yurt.structs.policies import Checkpoint

LOOK_MIN_S: Final = 5.0
LOOK_MAX_S: Final = 60.0
LOOKS_PER_INTERVAL: Final = 10
OVERDUE: Final = 2
"""The number of intervals without a checkpoint after which an event warns of it."""


class CheckpointHook(TaskHookOf[ClientTask]):
    """Handles the group's `checkpoint` block: creates the directory and reports each task's last checkpoint.

    By these times the servers choose which allocations to preempt, and tell how much work was lost.
    """

    name = "checkpoint"

    def __init__(self, env: Env) -> None:
        self._env = env
        self._watched: set[tuple[str, str]] = set()

    async def prepare(self, task: ClientTask) -> None:
        """Make the checkpoint directory."""
        checkpoint = task.spec.group.checkpoint
        if checkpoint is None:
            return
        from yurt.client.tasks.checkpoints import make_folder

        try:
            await self._env.in_thread(make_folder, task, checkpoint)
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
        """Report the last checkpoint: the watch ends when the task is killed, before its last save."""
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
        from yurt.client.tasks.checkpoints import last_saved

        saved = (await self._env.in_thread(last_saved, task, checkpoint)).at
        at = UnixNano(min(saved, self._env.now()))
        if at > task.runner.machine.state.checkpointed_at:
            task.runner.post(Checkpointed(at=at))
        return saved
