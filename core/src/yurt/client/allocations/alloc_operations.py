"""Operations of the API on allocations, except on their files (`yurt.server.ports.NodePort`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Final

from yurt.client.allocations.alloc_runner import AllocRunner
from yurt.client.allocations.alloc_table import AllocTable, EndedAlloc
from yurt.client.allocations.usage import UsageMeter
from yurt.client.context import ClientContext
from yurt.client.files.link_owners import link_owners
from yurt.client.task_env import replace_in_words
from yurt.client.tasks.exec_sessions import ExecSessions
from yurt.client.tasks.task_runner import TaskRunner
from yurt.lifecycle import task as machine
from yurt.lifecycle.allocation import POSTSTOP
from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied
from yurt.sdk.value import replace
from yurt.structs.exec import ExecFrame, ExecInput, ExecRequest
from yurt.structs.rpc import AllocCheckStatus, AllocResourceUsage
from yurt.structs.status import TASK_DEAD

END_LIMIT_S = 30.0
"""Time limit for an allocation to end before its data is packed."""

_WISHES: Final[Mapping[str, machine.AnyTaskEvent]] = {
    machine.PAUSED_BY_USER: machine.Pause(),
    machine.RUN_BY_USER: machine.Resume(),
    "scheduled": machine.FollowSchedule(),
}


class AllocOperations:
    """Operations on single allocations; they raise NotFound, or Unavailable while the client restores allocations."""

    def __init__(
        self,
        table: AllocTable,
        context: ClientContext,
        *,
        meter: UsageMeter,
        execs: ExecSessions,
    ) -> None:
        self._table = table
        self._config = context.config
        self._drivers = context.drivers
        self._activity = context.activity
        self._meter = meter
        self._execs = execs

    async def alloc_stats(self, alloc_id: str, task: str) -> AllocResourceUsage:
        """Resource usage of an allocation, or of one task when `task` is not empty.

        Does not wait for drivers that recover tasks, so that a view of many allocations is not delayed.
        """
        usage = await self._meter.alloc_usage(await self._table.find(alloc_id), task)
        return replace(usage, accounting=self._activity.totals(alloc_id))

    async def alloc_checks(self, alloc_id: str) -> tuple[AllocCheckStatus, ...]:
        """The last results of the checks of an allocation's services."""
        return (await self._table.find(alloc_id)).check_statuses()

    async def restart_alloc(self, alloc_id: str, *, task: str, all_tasks: bool) -> None:
        """Restart one task, the running tasks, or all tasks."""
        alloc = await self._table.find_recovered(alloc_id)
        if not isinstance(alloc, AllocRunner) or not alloc.is_live:
            raise Conflict(f"allocation {alloc_id} is stopping or has ended; it cannot be restarted")
        if task:
            _need_task(alloc, task)
            runner = alloc.tasks[task]
            if runner.machine.phase not in (machine.RUNNING, machine.BACKOFF):
                raise Invalid(f"Task not running: {task!r} is {runner.machine.state.state}")
            runner.post(machine.AskRestart(reason="User requested task to restart"))
            return
        which = "all" if all_tasks else "running"
        ask = machine.AskRestart(reason=f"User requested {which} tasks to restart", from_start=all_tasks)
        for role in alloc.roles:
            if role.hook != POSTSTOP:
                alloc.tasks[role.name].post(ask)

    async def signal_alloc(self, alloc_id: str, *, task: str, signal: str) -> None:
        """Send a signal to one task, or to all when `task` is empty."""
        alloc = await self._table.find_recovered(alloc_id)
        tasks = _tasks_of(alloc)
        if task:
            _need_task(alloc, task)
            if task not in tasks:
                raise Invalid(f"task {task!r} is not running; only a running task can be sent a signal")
            await tasks[task].signal(signal)
            return
        live = [runner for runner in tasks.values() if runner.is_live]
        if not live:
            raise Invalid(f"no task of allocation {alloc_id} is running")
        for runner in live:
            await runner.signal(signal)

    async def pause_task(self, alloc_id: str, *, task: str, wish: str) -> None:
        """Pause a task, run it, or return it to its schedule (`wish` is pause, run or scheduled).

        Durable once this returns, so that this agent's successor follows it.
        """
        alloc = await self._table.find_recovered(alloc_id)
        name = _one_task(alloc, task)
        runner = _tasks_of(alloc).get(name)
        if runner is None or runner.machine.phase == machine.DEAD or runner.machine.is_killed:
            raise Conflict(f"task {name!r} of allocation {alloc_id} has ended, so it can neither be paused nor resumed")
        runner.post(_WISHES[wish])
        if isinstance(alloc, AllocRunner):
            await alloc.saver.save()  # by itself: nothing stores changes before the allocation has been prepared

    async def schedule_state(self, alloc_id: str, *, task: str) -> str:
        """The state of a task's schedule: pause, scheduled_pause or run."""
        alloc = await self._table.find_recovered(alloc_id)
        runner = _tasks_of(alloc).get(_one_task(alloc, task))
        return (runner.machine.state.paused if runner is not None else "") or machine.RUN_BY_USER

    async def exec_task(self, request: ExecRequest, inputs: AsyncIterator[ExecInput]) -> AsyncGenerator[ExecFrame]:
        """Run a command in a running task. Every remote command, including actions, passes through here."""
        if self._config.disable_remote_exec:
            raise PermissionDenied(
                "Permission denied: this node runs no commands in its tasks for others "
                "(client { disable_remote_exec = true })"
            )
        runner = _running_task(await self._table.find_recovered(request.alloc_id), request.task)
        assert runner.driver is not None, request.task
        if request.is_action:
            request = replace(request, command=replace_in_words(request.command, runner.hooked.lookup))
        task_id = runner.task_id(runner.machine.run)
        async with aclosing(self._execs.run(runner.driver, task_id, request, inputs)) as frames:
            async for frame in frames:
                yield frame

    async def pack_disk(self, alloc_id: str) -> AsyncGenerator[bytes]:
        """Stream the data of an ended allocation as a tar archive, for its successor on another node.

        The servers may know of its end a moment before its runner has put everything away.
        """
        alloc = await self._table.find_recovered(alloc_id)
        users = alloc.users
        if isinstance(alloc, AllocRunner):
            try:
                async with asyncio.timeout(END_LIMIT_S):
                    await alloc.wait_over()
            except TimeoutError:
                raise Conflict(f"allocation {alloc_id} still runs; its data moves when it has ended") from None
        from yurt.client.allocations.migration import pack

        root, names = self._config.alloc_dir, tuple(task.name for task in users)
        owners = await asyncio.to_thread(link_owners, users, self._drivers)
        async with aclosing(pack(root, alloc_id, names, owners=owners)) as pieces:
            async for piece in pieces:
                yield piece


def _tasks_of(alloc: AllocRunner | EndedAlloc) -> Mapping[str, TaskRunner]:
    """The tasks of an allocation that is not over."""
    return alloc.tasks if isinstance(alloc, AllocRunner) else {}


def _need_task(alloc: AllocRunner | EndedAlloc, name: str) -> None:
    """Check that the allocation has the task; raises NotFound."""
    names = [user.name for user in alloc.users]
    if name not in names:
        raise NotFound(f"Could not find task {name!r} in allocation {alloc.id}; it has {', '.join(names)}")


def _one_task(alloc: AllocRunner | EndedAlloc, name: str) -> str:
    """The task of that name; without a name the only one. Raises NotFound or Invalid."""
    if name:
        _need_task(alloc, name)
        return name
    names = [user.name for user in alloc.users]
    if len(names) != 1:
        raise Invalid(f"allocation {alloc.id} has several tasks: name one of {', '.join(names)}")
    return names[0]


def _running_task(alloc: AllocRunner | EndedAlloc, name: str) -> TaskRunner:
    """The running task of that name; raises NotFound or Invalid."""
    _need_task(alloc, name)
    runner = _tasks_of(alloc).get(name)
    if runner is None or not runner.is_live:
        state = TASK_DEAD if runner is None else runner.machine.state.state
        raise Invalid(f'Task "{name}" is not running: it is {state}')
    return runner
