"""What outlives an allocation: its sticky data, moved to the allocation that replaces it, and its checkpoints."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from yurt.client.allocations.client_alloc import ClientAlloc
from yurt.client.allocations.migration import unpack
from yurt.client.files import alloc_dir
from yurt.client.ports import ServerPort
from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.client.timed_waits import finish_unless
from yurt.lifecycle import events
from yurt.lifecycle.task import Checkpointed
from yurt.runtime.env import Env
from yurt.sdk.driver import ExitResult, TaskHandle
from yurt.sdk.errors import Invalid, YurtError
from yurt.sdk.hooks import AllocHookOf, TaskHookOf
from yurt.sdk.value import NANOSECONDS, UnixNano
from yurt.structs.policies import Checkpoint

MIB = 1024 * 1024
LOOK_MIN_S = 5.0
LOOK_MAX_S = 60.0
LOOKS_PER_INTERVAL = 10
OVERDUE = 2
"""Intervals without a checkpoint after which an event tells so."""


class DiskHook(AllocHookOf[ClientAlloc]):
    """Reads the group's `ephemeral_disk` block: `sticky` and `migrate`."""

    name = "disk"

    def __init__(self, root: str, server: ServerPort) -> None:
        self._root = root
        self._server = server

    async def prepare(self, alloc: ClientAlloc) -> None:
        """Take the data of the allocation that this one replaces, before anything of this one runs."""
        disk, previous = alloc.group.ephemeral_disk, alloc.alloc.previous_allocation
        if not alloc.is_predecessor_over or not previous or not (disk.sticky or disk.migrate):
            return
        if await asyncio.to_thread(alloc_dir.alloc_path(self._root, previous).is_dir):
            await asyncio.to_thread(alloc_dir.carry_over, self._root, previous, alloc.id, tuple(alloc.tasks))
        elif disk.migrate:
            await finish_unless(alloc.stopping, self._migrate(alloc, previous))

    async def _migrate(self, alloc: ClientAlloc, previous: str) -> None:
        """Fetch the data of a predecessor on another node; without it the allocation starts empty, like a first one."""
        limit = alloc.group.ephemeral_disk.size_mb * MIB
        alloc.note(events.task_setup(f"Copying the data of allocation {previous[:8]} from its node"))
        try:
            async with aclosing(self._server.fetch_disk(alloc.alloc.node_id, alloc.id)) as pieces:
                await unpack(pieces, self._root, alloc.id, tasks=tuple(alloc.tasks), limit=limit)
        except YurtError as error:
            alloc.note(events.task_setup(f"The data of allocation {previous[:8]} is not here: {error}"))


class CheckpointHook(TaskHookOf[ClientTask]):
    """Handles the group's `checkpoint` block: creates the directory, and reports the time of a task's last checkpoint.

    They choose whom to preempt by what would be lost, and say what was.
    """

    name = "checkpoint"

    def __init__(self, env: Env) -> None:
        self._env = env
        self._watched: set[tuple[str, str]] = set()

    async def prepare(self, task: ClientTask) -> None:
        """Make the directory."""
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
        from yurt.client.tasks.checkpoints import last_saved

        saved = (await self._env.in_thread(last_saved, task, checkpoint)).at
        at = UnixNano(min(saved, self._env.now()))
        if at > task.runner.machine.state.checkpointed_at:
            task.runner.post(Checkpointed(at=at))
        return saved
