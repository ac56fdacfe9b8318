"""The shell around one allocation: it keeps its task runners in order, stores their records and reports them.

A single loop looks at the present task states after each change (`yurt.lifecycle.allocation`): what may begin begins,
what must end is told to, the hooks look at what runs (`yurt.client.hooks`), then the states are written to the client's
database, and only then are they reported. An agent that dies anywhere in between therefore never told the servers
something that it does not know any more.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from yurt.client.allocations.alloc_saver import AllocSaver
from yurt.client.allocations.alloc_stop import StopOrder
from yurt.client.allocations.client_alloc import ClientAlloc
from yurt.client.context import ClientContext
from yurt.client.files import alloc_dir
from yurt.client.files.link_owners import TaskUser, task_users
from yurt.client.files.secrets_dir import unmount_secrets
from yurt.client.hooks.alloc_hooks import AllocHooks
from yurt.client.hooks.client_hooks import ClientHooks
from yurt.client.tasks.task_recovery import rebuild, restore
from yurt.client.tasks.task_runner import TaskRunner
from yurt.client.timed_waits import LightEvent, wait_or_sleep
from yurt.lifecycle import allocation, events
from yurt.lifecycle import task as machine
from yurt.runtime.supervise import supervised
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.storage.client_db import AllocRecord, TaskRecord
from yurt.structs.alloc import Allocation, TaskEvent, TaskState
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
"""How long to wait until drivers have freed what ended runs used."""


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
        self.hooked = ClientAlloc(alloc, context, runner=weakref.proxy(self), group=group)
        self.tasks = self.hooked.tasks
        self.roles = allocation.roles(self.task_group)
        self._hooks = hooks
        self._report = report
        self.saver = AllocSaver(self.hooked, context.store, context.activity)
        self._stop = StopOrder(context.env)
        self.over = LightEvent()
        self._checks: tuple[AllocCheckStatus, ...] = ()
        """What the checks said last, once the allocation is over."""
        self._final: AllocUpdate | None = None
        for task in self.task_group.tasks:
            self.tasks[task.name] = TaskRunner(
                alloc, task.name, context, setup=hooks.setup, owner=self.saver, group=group
            )

    @property
    def alloc(self) -> Allocation:
        """The allocation as it is now."""
        return self.hooked.alloc

    @property
    def id(self) -> str:
        """The allocation's id."""
        return self.hooked.id

    @property
    def users(self) -> tuple[TaskUser, ...]:
        """Its tasks, by the users who may own their files."""
        return task_users(self.alloc)

    @property
    def task_group(self) -> TaskGroup:
        """The allocation's group at the version that it runs."""
        return self.hooked.group

    @property
    def is_live(self) -> bool:
        """Whether it runs and was not told to stop."""
        return not self.is_over and self._stop.order is None

    @property
    def states(self) -> Mapping[str, TaskState]:
        """The present state of every task."""
        return self.hooked.states

    async def run(
        self,
        record: AllocRecord | None = None,
        *,
        after: Sequence[weakref.ref[AllocRunner]] = (),
        is_rebuilt: bool = False,
    ) -> None:
        """Run the allocation to its end; a record continues one of an earlier agent; `after` must be over first.

        They are held weakly: otherwise they would stay in memory, ended, as long as this one runs.

        `is_rebuilt`: an earlier agent may have run it, and its record is lost.
        """
        await self._take_up(record)
        if is_rebuilt:
            async with asyncio.TaskGroup() as group:
                for runner in self.tasks.values():
                    group.create_task(rebuild(runner, self.context.env))
        self.hooked.is_predecessor_over = await _are_over(after, self.alloc.previous_allocation)
        # Hooks after predecessors: volumes, ports and devices of a replaced allocation are free only when it has ended.
        await _make_ready(self, self._hooks.alloc)
        await self._follow()
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
            if not record.tasks:  # an agent that was killed may have made some of it, or nothing
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

    async def _follow(self) -> None:
        """Look at the allocation after each change until it is over, and that is written down and reported."""
        has_exited = False
        while True:
            # Cleared first: what changes while this round looks begins another one.
            self.saver.changed.clear()
            self._obey()
            wake_at = self._hooks.alloc.update(self.hooked)
            # Saved before it is reported: servers never hear of what an agent that is killed now would have forgotten.
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

    def _obey(self) -> None:
        """Start and stop tasks until the machine's state requires nothing more."""
        stop = self._stop.order
        # A round that changes something begins or ends a task, and each task does either once: hence the bound.
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
        """The report to the servers; a terminal status never changes again (invariant E7), task states still may."""
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
            known = self._final.accounting if self._final is not None else self.context.activity.totals(self.id)
            update = replace(update, accounting=known)
            self._final = self._final or update
        return update

    def on_change(self) -> None:
        """Something has changed."""
        self.saver.on_change()

    def report_still_running(self, description: str) -> None:
        """Tell the servers why the allocation is not over, although its tasks are."""
        self._report(replace(self._update(), client_status=CLIENT_RUNNING, client_description=description))

    # Its end.

    def end(self) -> None:
        """Nothing of the allocation runs any more."""
        self.is_over = True
        self._checks = self._hooks.services.statuses(self.id)
        self._hooks.alloc.finish(self.hooked)
        self.context.activity.forget(self.id)
        self.finished_at = self.context.env.now()
        self.reported.set()
        self.over.set()

    async def wait_over(self) -> None:
        """Wait until nothing of the allocation runs any more."""
        await self.over.wait()

    async def wait_stopped(self) -> None:
        """Wait for the end of an allocation that is being stopped; return at once for any other."""
        if self._stop.order is not None:
            await self.over.wait()

    async def wait_cleaned(self) -> bool:
        """Wait, within a bound, until drivers have freed what ended runs used; returns whether nothing writes."""
        cleaning = {work for task in self.tasks.values() for work in task.cleaning}
        return not cleaning or not (await asyncio.wait(cleaning, timeout=CLEANING_LIMIT_S))[1]

    def release(self) -> None:
        """Break the reference cycles through a runner that is no longer used."""
        for task in self.tasks.values():
            task.release()
        self.tasks.clear()

    # What the servers want.

    def take_over(self, alloc: Allocation) -> None:
        """Take over the allocation as the servers changed it."""
        old = self.alloc
        self.hooked.take_over(alloc)
        if alloc.deployment_id != old.deployment_id:
            self.hooked.health_status = alloc.deployment_status
        if old.client_status != CLIENT_UNKNOWN and alloc.client_status == CLIENT_UNKNOWN:
            self.note(events.reconnected())
        if is_server_terminal(alloc):
            self.stop(_stop_of(alloc))
        self.saver.changed.set()

    def note(self, event: TaskEvent) -> None:
        """Tell the user of every task that has not ended."""
        self.hooked.note(event)

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
        """The providers may have forgotten the services."""
        self._hooks.services.resend(self.id)

    def check_statuses(self) -> tuple[AllocCheckStatus, ...]:
        """The last results of the checks."""
        return self._checks if self.is_over else self._hooks.services.statuses(self.id)


def _note_shutdown_delay(runner: AllocRunner) -> None:
    event = events.waiting_for_shutdown_delay(runner.task_group.shutdown_delay)
    for task in runner.tasks.values():
        if task.machine.phase != machine.DEAD:
            task.note(event)


async def _make_ready(runner: AllocRunner, hooks: AllocHooks) -> None:
    """Have hooks recover what has begun, or prepare what will begin; an allocation that ends before needs neither."""
    if runner.hooked.has_begun:
        await hooks.recover(runner.hooked)
    elif runner.is_live and not runner.hooked.is_dead:
        runner.reported.set()  # it is pending, as the servers know: however long hooks take, the node may become ready
        failure = await hooks.prepare(runner.hooked)
        if failure is not None:
            runner.stop(allocation.Stop(reason=failure, is_failure=True))


def _stop_of(alloc: Allocation) -> allocation.Stop:
    """The stop that servers want; the tasks of a preempted allocation are told why, and their end counts as that."""
    is_preempted = alloc.desired_status == DESIRED_EVICT
    return allocation.Stop(reason=events.preempting(alloc.desired_description) if is_preempted else None)


async def _expire(runner: AllocRunner) -> None:
    """End an allocation when it has run as long as its group allows."""
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
    """Wait for those that are meant to end; whether the replaced one is over, if it is among them."""
    is_over = True
    for each in after:
        runner = each()
        if runner is not None:
            await runner.wait_stopped()
            is_over = is_over and (runner.is_over or runner.id != replaced)
    return is_over
