"""The shell around one allocation: it starts and stops its tasks in order, stores their states and reports them.

After each change, one loop decides on the current task states (`yurt.lifecycle.allocation`): it starts the tasks that
may begin, kills those that must end, updates the hooks (`yurt.client.hooks`), stores the states in the client's
database, and only then reports them. So an agent that dies at any point has never reported a state that it did not
store.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from yurt.client.allocations.alloc_saver import AllocSaver
from yurt.client.allocations.alloc_stop import StopOrder
from yurt.client.allocations.client_alloc import ClientAlloc
from yurt.client.allocations.start_slots import StartSlots
from yurt.client.context import ClientContext
from yurt.client.files import alloc_dir
from yurt.client.files.link_owners import TaskUser, task_users
from yurt.client.files.secrets_dir import unmount_secrets
from yurt.client.hooks.alloc_hook_calls import AllocHookCalls
from yurt.client.hooks.client_hooks import ClientHooks
from yurt.client.tasks.task_recovery import rebuild, restore
from yurt.client.tasks.task_runner import TaskRunner
from yurt.client.timed_waits import LightEvent, wait_or_sleep
from yurt.lifecycle import allocation, events
from yurt.lifecycle import task as machine
from yurt.runtime.supervise import supervised
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.storage.client_db import AllocRecord, TaskRecord
from yurt.structs.alloc import Allocation, TaskState
from yurt.structs.commands import AllocUpdate
from yurt.structs.job import TaskGroup
from yurt.structs.predicates import is_server_terminal
from yurt.structs.rpc import AllocCheckStatus
from yurt.structs.status import (
    CLIENT_RUNNING,
    CLIENT_TERMINAL,
    CLIENT_UNKNOWN,
    DESIRED_EVICT,
    JOB_BATCH,
    JOB_SYSBATCH,
)

CLEANING_LIMIT_S = 20.0
"""The longest wait for drivers to free the resources of ended runs."""


class AllocRunner:
    """One allocation on this node, from its arrival until its directory is removed."""

    def __init__(
        self,
        alloc: Allocation,
        context: ClientContext,
        *,
        hooks: ClientHooks,
        group: asyncio.TaskGroup,
        report: Callable[[AllocUpdate], None],
    ) -> None:
        assert alloc.job is not None, alloc.id
        self.context = context
        self.is_over = False
        self.finished_at = UnixNano(0)
        self.reported = LightEvent()
        self.recovered = LightEvent()
        """Its tasks of an earlier agent have been recovered, if there are any."""
        self.hooked = ClientAlloc(alloc, context, runner=weakref.proxy(self), group=group)
        self.tasks = self.hooked.tasks
        self.roles = allocation.roles(self.task_group)
        self._hooks = hooks
        self._report = report
        self.saver = AllocSaver(self.hooked, context.store, context.activity)
        self._stop = StopOrder(context.env)
        self.over = LightEvent()
        self._checks: tuple[AllocCheckStatus, ...] = ()
        """The last results of the checks, once the allocation is over."""
        self._final: AllocUpdate | None = None
        for task in self.task_group.tasks:
            self.tasks[task.name] = TaskRunner(
                alloc, task.name, context, setup=hooks.setup, owner=self.saver, group=group
            )

    @property
    def alloc(self) -> Allocation:
        """The current allocation."""
        return self.hooked.alloc

    @property
    def id(self) -> str:
        """The allocation's id."""
        return self.hooked.id

    @property
    def users(self) -> tuple[TaskUser, ...]:
        """Its tasks with the users who may own their files."""
        return task_users(self.alloc)

    @property
    def task_group(self) -> TaskGroup:
        """The allocation's group at the job version that it runs."""
        return self.hooked.group

    @property
    def is_live(self) -> bool:
        """Whether it is not over and not stopping."""
        return not self.is_over and self._stop.order is None

    @property
    def states(self) -> Mapping[str, TaskState]:
        """The current state of every task."""
        return self.hooked.states

    async def run(
        self,
        record: AllocRecord | None = None,
        *,
        slots: StartSlots,
        after: Sequence[weakref.ref[AllocRunner]] = (),
        is_rebuilt: bool = False,
    ) -> None:
        """Run the allocation to its end; `record` continues an allocation of an earlier agent.

        The stopping allocations in `after` must end first; weak references do not keep them in memory once they are
        over. `slots` bounds how many start at the same time. `is_rebuilt`: an earlier agent may have run this
        allocation, and its record is lost.
        """
        try:
            await self._take_up(record)
            if is_rebuilt:
                await _rebuild_tasks(self)
        finally:
            self.recovered.set()
        self.hooked.is_predecessor_over = await _are_over(after, self.alloc.previous_allocation)
        await _wait_for_turn(self, slots)
        # Hooks after predecessors: volumes, ports and devices of a replaced allocation are free only when it has ended.
        await _make_ready(self, self._hooks.alloc)
        await self._follow(slots)
        folder = alloc_dir.alloc_path(self.context.config.alloc_dir, self.id)
        await asyncio.to_thread(unmount_secrets, str(folder))
        self.end()

    async def _take_up(self, record: AllocRecord | None) -> None:
        build = partial(asyncio.to_thread, alloc_dir.build_alloc_dir, self.context.config.alloc_dir, self.id)
        if record is None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.context.store.put_alloc(self.alloc))
                group.create_task(build())
        else:
            if not record.tasks:  # an agent that was killed may have made a part of the directory, or nothing
                await build()
            self.hooked.health_status = record.deployment_status or self.hooked.health_status
            if record.accounting is not None:
                self.context.activity.restore(self.id, record.accounting)
            async with asyncio.TaskGroup() as group:
                for name, runner in self.tasks.items():
                    group.create_task(restore(runner, record.tasks.get(name, TaskRecord()), self.context.env))
        if is_server_terminal(self.alloc):
            self.stop(_stop_of(self.alloc))
        job, limit = self.alloc.job, self.task_group.max_run_duration
        if limit > 0 and job is not None and job.type in (JOB_BATCH, JOB_SYSBATCH):
            supervised(self.hooked.work, f"max_run_duration of {self.id[:8]}", _expire(self))

    async def _follow(self, slots: StartSlots) -> None:
        """Process each change of the allocation until its end is stored and reported."""
        has_ended = has_exited = False
        while True:
            # Cleared first, so that a change during this round causes another one.
            self.saver.changed.clear()
            self._carry_out_orders()
            if not has_ended and allocation.is_over(self.states):
                has_ended = True
                slots.take(self.id)
            wake_at = self._hooks.alloc.update(self.hooked)
            # Stored before reported: servers never see a state that an agent killed now would have forgotten.
            await self.saver.save()
            update = self._update()
            is_over = allocation.is_over(self.states)
            if is_over and not has_exited:
                await self._hooks.alloc.exited(self.hooked)
            has_exited = is_over
            self._report(update)
            self.reported.set()
            if is_over and self.saver.is_saved:
                return
            if wake_at:
                left_s = (wake_at - self.context.env.now()) / NANOSECONDS
                await wait_or_sleep(self.context.env, self.saver.changed, max(left_s, 0.001))
            else:
                await self.saver.changed.wait()

    def _carry_out_orders(self) -> None:
        """Start and kill tasks until the decision requires nothing more."""
        stop = self._stop.order
        # Each round that changes anything begins or ends a task, and each task begins and ends once: hence the bound.
        for _ in range(len(self.tasks) * 2 + 2):
            before = self.saver.version
            orders = allocation.decide(self.roles, self.states, stop=stop)
            for name in orders.begin:
                self.tasks[name].post(machine.Begin())
            if stop is None or self._stop.is_due.is_set():
                for name, reason in orders.kill:
                    kill = machine.Kill(reason=reason, is_failure=stop is not None and stop.is_failure)
                    self.tasks[name].post(kill)
            if self.saver.version == before:
                return

    def _update(self) -> AllocUpdate:
        """The report to the servers; a terminal status never changes again (invariant E7), but task states may."""
        states = self.states
        status, description = allocation.client_status(self.roles, states)
        if self._final is not None:
            status, description = self._final.client_status, self._final.client_description
        update = AllocUpdate(
            id=self.id,
            node_id=self.alloc.node_id,
            client_status=status,
            client_description=description,
            task_states=states,
            deployment_status=self.hooked.health_status,
            network_status=self.alloc.network_status,
            idle=self.hooked.idle_report,
            accounting=self.context.activity.reported(self.id),
        )
        if status in CLIENT_TERMINAL:
            totals = self._final.accounting if self._final is not None else self.context.activity.totals(self.id)
            update = replace(update, accounting=totals)
            self._final = self._final or update
        return update

    def on_change(self) -> None:
        """Note a change, which the runner's loop then processes."""
        self.saver.on_change()

    def report_unbegun(self) -> None:
        """Let the node become ready without waiting for the start of an allocation that has not begun.

        The servers know it as pending; if they have marked it unknown, they learn first that it is not.
        """
        if self.alloc.client_status == CLIENT_UNKNOWN:
            self._report(self._update())
        self.reported.set()

    def report_still_running(self, description: str) -> None:
        """Report to the servers why the allocation is not over although its tasks have ended."""
        self._report(replace(self._update(), client_status=CLIENT_RUNNING, client_description=description))
        # A restarted agent's node need not wait for the end: the next task of a plugin may come once it is ready.
        self.reported.set()

    # Its end.

    def end(self) -> None:
        """Mark the allocation as over: all tasks have ended, and hooks have freed their resources."""
        self.is_over = True
        self._checks = self._hooks.services.statuses(self.id)
        self._hooks.alloc.finish(self.hooked)
        self.context.activity.forget(self.id)
        self.finished_at = self.context.env.now()
        self.reported.set()
        self.over.set()
        self.saver.wake()

    async def wait_over(self) -> None:
        """Wait until the allocation is over."""
        await self.over.wait()

    async def wait_stopped(self) -> None:
        """Wait for the end of an allocation that is being stopped; return at once for any other."""
        if self._stop.order is not None:
            await self.over.wait()

    async def wait_cleaned(self) -> bool:
        """Wait, within a bound, for drivers to free the resources of ended runs; returns whether they have."""
        cleaning = {work for task in self.tasks.values() for work in task.cleaning}
        return not cleaning or not (await asyncio.wait(cleaning, timeout=CLEANING_LIMIT_S))[1]

    def release(self) -> None:
        """Break the reference cycles through an unused runner."""
        for task in self.tasks.values():
            task.release()
        self.tasks.clear()

    # Requests of the servers.

    def take_over(self, alloc: Allocation) -> None:
        """Adopt the allocation as the servers changed it."""
        old = self.alloc
        self.hooked.take_over(alloc)
        if alloc.deployment_id != old.deployment_id:
            self.hooked.health_status = alloc.deployment_status
        if old.client_status != CLIENT_UNKNOWN and alloc.client_status == CLIENT_UNKNOWN:
            self.hooked.note(events.reconnected())
        if is_server_terminal(alloc):
            self.stop(_stop_of(alloc))
        self.saver.wake()

    def stop_at_once(self) -> None:
        """End the allocation without its shutdown delays."""
        self.hooked.hurry()
        self._stop.is_due.set()
        self.stop()
        self.saver.changed.set()  # an earlier order may be waiting out its delay

    def stop(self, stop: allocation.Stop | None = None) -> None:
        """Stop the allocation in the order of its tasks; hooks and the group's shutdown delay come first."""
        if self._stop.order is not None:
            return
        self.hooked.stopping.set()
        self.hooked.may_start.set()
        runs_nothing = self.is_over or self.hooked.is_dead or not self.hooked.has_begun
        is_hurried = self.alloc.desired_transition.no_shutdown_delay or runs_nothing
        delay_s = 0.0 if is_hurried else self.task_group.shutdown_delay / NANOSECONDS
        self._stop.give(stop or allocation.Stop())  # first: a hook that ends the allocation now adds no order
        first = self._hooks.alloc.stopping(self.hooked)
        if first is None and delay_s <= 0:
            self._stop.is_due.set()
        else:
            if delay_s > 0:
                _note_shutdown_delay(self)
            name = f"shutdown delay of {self.id[:8]}"
            supervised(self.hooked.work, name, self._stop.delay(first, delay_s, self.saver.changed))
        self.saver.changed.set()

    # Services.

    def resend_services(self) -> None:
        """Register the services again, because their providers may have lost them."""
        self._hooks.services.resend(self.id)

    def check_statuses(self) -> tuple[AllocCheckStatus, ...]:
        """The last results of the checks."""
        return self._checks if self.is_over else self._hooks.services.statuses(self.id)


def _note_shutdown_delay(runner: AllocRunner) -> None:
    event = events.waiting_for_shutdown_delay(runner.task_group.shutdown_delay)
    for task in runner.tasks.values():
        if task.machine.phase != machine.DEAD:
            task.note(event)


async def _rebuild_tasks(runner: AllocRunner) -> None:
    """Find the runs of an allocation whose record is lost."""
    async with asyncio.TaskGroup() as group:
        for task in runner.tasks.values():
            group.create_task(rebuild(task, runner.context.env))


async def _wait_for_turn(runner: AllocRunner, slots: StartSlots) -> None:
    """Wait until an allocation that has not begun may start, or is to stop.

    Members of a gang do not wait: the time of their barrier runs from the first member that is set up.
    """
    alloc, gang = runner.hooked, runner.task_group.gang
    is_member = gang is not None and gang.rendezvous is not None
    if is_member or alloc.has_begun or alloc.is_dead or not runner.is_live:
        return
    slots.request(runner.id, alloc.may_start)
    if not alloc.may_start.is_set():
        runner.report_unbegun()
        await alloc.may_start.wait()
        alloc.turn_at = runner.context.env.now()


async def _make_ready(runner: AllocRunner, hooks: AllocHookCalls) -> None:
    """Have hooks recover an allocation that has begun, or prepare one that will begin; one that ends needs neither."""
    if runner.hooked.has_begun:
        await hooks.recover(runner.hooked)
    elif runner.is_live and not runner.hooked.is_dead:
        runner.report_unbegun()  # hooks may take long
        failure = await hooks.prepare(runner.hooked)
        if failure is not None:
            runner.stop(allocation.Stop(reason=failure, is_failure=True))


def _stop_of(alloc: Allocation) -> allocation.Stop:
    """The stop that the servers ordered; tasks of a preempted allocation get an event with the reason."""
    is_preempted = alloc.desired_status == DESIRED_EVICT
    return allocation.Stop(reason=events.preempting(alloc.desired_description) if is_preempted else None)


async def _expire(runner: AllocRunner) -> None:
    """Stop an allocation when it has run for its group's `max_run_duration`."""
    env, limit = runner.context.env, runner.task_group.max_run_duration
    while not runner.is_over:
        since = allocation.running_since(runner.states)
        left = since + limit - env.now() if since else limit
        if since and left <= 0:
            reason = events.max_run_duration_exceeded(limit)
            runner.stop(allocation.Stop(reason=reason, is_expired=True, is_failure=True))
            return
        await wait_or_sleep(env, runner.over, max(left / NANOSECONDS, 0.01))


async def _are_over(after: Sequence[weakref.ref[AllocRunner]], replaced: str) -> bool:
    """Wait for the stopping allocations; returns whether the replaced one is over, if it is among them."""
    is_over = True
    for each in after:
        runner = each()
        if runner is not None:
            await runner.wait_stopped()
            is_over = is_over and (runner.is_over or runner.id != replaced)
    return is_over
