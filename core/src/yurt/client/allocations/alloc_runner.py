"""The shell around one allocation: it keeps its task runners in order, remembers them on disk and reports them.

A single loop looks at the present task states after each change (`yurt.lifecycle.allocation`): what may begin begins,
what must end is told to, then the states are written to the client's database, and only then are they reported. An
agent that dies anywhere in between therefore never told the servers something that it does not know any more.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing

from yurt.client.allocations.migration import unpack
from yurt.client.context import ClientContext
from yurt.client.files import alloc_dir
from yurt.client.files.link_owners import TaskUser, task_users
from yurt.client.files.secrets_dir import unmount_secrets
from yurt.client.services.service_hook import ServiceHook
from yurt.client.tasks.task_runner import TaskRunner
from yurt.client.waiting import LightEvent, finish_unless, wait_or_sleep
from yurt.lifecycle import allocation, events, health
from yurt.lifecycle import task as machine
from yurt.lifecycle.checks import CheckSpec
from yurt.lifecycle.services import has_services
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import YurtError
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.storage.client_db import AllocRecord, TaskRecord
from yurt.structs.alloc import Allocation, AllocDeploymentStatus, TaskEvent, TaskState
from yurt.structs.commands import AllocUpdate
from yurt.structs.job import TaskGroup
from yurt.structs.questions import is_server_terminal
from yurt.structs.rpc import AllocCheckStatus
from yurt.structs.status import (
    CLIENT_RUNNING,
    CLIENT_TERMINAL,
    CLIENT_UNKNOWN,
    JOB_BATCH,
    JOB_SYSBATCH,
    TASK_DEAD,
    TASK_RUNNING,
)

log = logging.getLogger(__name__)

MIB = 1024 * 1024
CLEANING_LIMIT_S = 20.0
"""How long is waited until drivers have freed what ended runs held."""
UNMOUNTING = "Tasks have ended, volumes are being unmounted"


class AllocRunner:
    """One allocation on this node, from its arrival until its directory is removed."""

    def __init__(
        self,
        alloc: Allocation,
        context: ClientContext,
        *,
        group: asyncio.TaskGroup,
        report: Callable[[AllocUpdate], None],
    ) -> None:
        assert alloc.job is not None, alloc.id
        self.alloc = alloc
        self.context = context
        self.is_over = False
        self.finished_at = UnixNano(0)
        self._group = group
        self._report = report
        self._changed = LightEvent()
        self._is_alloc_dirty = False
        self._over = LightEvent()
        self.reported = LightEvent()
        self._saved_version = 0
        self._version = 1
        self._saved = asyncio.Condition()
        self._stop: allocation.Stop | None = None
        self._delay_over = LightEvent()
        self._stopping = LightEvent()
        self.roles = allocation.roles(self.task_group)
        self._services: ServiceHook | None = None
        self._health: health.HealthMachine | None = None
        self._health_status = alloc.deployment_status
        self._final: AllocUpdate | None = None
        self.tasks = {task.name: self._new_runner(task.name) for task in self.task_group.tasks}
        self._watch_health()

    def _new_runner(self, name: str) -> TaskRunner:
        return TaskRunner(self.alloc, name, self.context, group=self._group, owner=self)

    @property
    def id(self) -> str:
        """The allocation's id."""
        return self.alloc.id

    @property
    def users(self) -> tuple[TaskUser, ...]:
        """Its tasks, by who may own their files."""
        return task_users(self.alloc)

    @property
    def task_group(self) -> TaskGroup:
        """The allocation's group at the version that it runs."""
        assert self.alloc.job is not None, self.alloc.id
        group = self.alloc.job.group(self.alloc.task_group)
        assert group is not None, self.alloc.task_group
        return group

    @property
    def is_live(self) -> bool:
        """It runs, and nobody has asked for its end."""
        return not self.is_over and self._stop is None

    @property
    def states(self) -> Mapping[str, TaskState]:
        """The present state of every task."""
        return {name: runner.machine.state for name, runner in self.tasks.items()}

    def on_change(self) -> None:
        """A task has changed."""
        self._version += 1
        self._changed.set()

    async def wait_saved(self) -> None:
        """Wait until everything that has happened so far is on disk."""
        wanted = self._version
        async with self._saved:
            await self._saved.wait_for(lambda: self._saved_version >= wanted)

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
        await self._prepare(record)
        if is_rebuilt:
            async with asyncio.TaskGroup() as group:
                for runner in self.tasks.values():
                    group.create_task(runner.rebuild())
        if await _are_over(after, self.alloc.previous_allocation):
            await self._carry_over()
        while True:
            self._changed.clear()
            self._obey()
            self._take_address()
            self._follow_services()
            self._follow_plugins()
            wake_at = self._advance_health()
            await self.save()
            update = self._keep_final(self.update())
            is_over = allocation.is_over(self.states)
            if is_over:
                await self.context.networks.release(self.alloc.id)
                await self._unmount_volumes(update)
            self._report(update)
            self.reported.set()
            if is_over and self._saved_version == self._version:
                break
            await self._wait_change(wake_at)
        folder = alloc_dir.alloc_path(self.context.config.alloc_dir, self.alloc.id)
        await asyncio.to_thread(unmount_secrets, str(folder))
        self.end()

    def end(self) -> None:
        """Nothing of the allocation runs any more."""
        self.is_over = True
        if self._services is not None:
            self._services.close()
        self.context.csi.plugins.follow(self.alloc, self.task_group, {}, self._restart_plugin)
        self.finished_at = self.context.env.now()
        self.reported.set()
        self._over.set()

    async def wait_over(self) -> None:
        """Wait until nothing of the allocation runs any more."""
        await self._over.wait()

    async def wait_cleaned(self) -> bool:
        """Wait, within a bound, until the drivers have freed what ended runs held; whether nothing writes any more."""
        cleaning = {work for task in self.tasks.values() for work in task.cleaning}
        return not cleaning or not (await asyncio.wait(cleaning, timeout=CLEANING_LIMIT_S))[1]

    def release(self) -> None:
        """Nobody asks for the runner any more: break the cycles of references that lead through it."""
        self.tasks = {}
        self._services = None

    async def wait_stopped(self) -> None:
        """Wait for the end of an allocation that is meant to end; of another there is nothing to wait for."""
        if self._stop is not None:
            await self._over.wait()

    async def _prepare(self, record: AllocRecord | None) -> None:
        if record is None:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.context.store.put_alloc(self.alloc))
                group.create_task(self._build_dir())
        else:
            if not record.tasks:  # an agent that was killed may have made some of it, or nothing
                await self._build_dir()
            self._health_status = record.deployment_status or self._health_status
            async with asyncio.TaskGroup() as group:
                for name, runner in self.tasks.items():
                    group.create_task(runner.restore(record.tasks.get(name, TaskRecord())))
        if is_server_terminal(self.alloc):
            self.stop()
        self._schedule_expiry()

    async def _build_dir(self) -> None:
        await asyncio.to_thread(alloc_dir.build_alloc_dir, self.context.config.alloc_dir, self.alloc.id)

    async def _carry_over(self) -> None:
        """Take the sticky data of the allocation that this one replaces, before anything of this one runs."""
        disk, previous, config = self.task_group.ephemeral_disk, self.alloc.previous_allocation, self.context.config
        has_begun = any(runner.machine.run or runner.machine.state.started_at for runner in self.tasks.values())
        if not previous or has_begun or not (disk.sticky or disk.migrate):
            return
        if await asyncio.to_thread(alloc_dir.alloc_path(config.alloc_dir, previous).is_dir):
            await asyncio.to_thread(alloc_dir.carry_over, config.alloc_dir, previous, self.alloc.id, tuple(self.tasks))
        elif disk.migrate:
            await finish_unless(self._stopping, self._migrate(previous))

    async def _migrate(self, previous: str) -> None:
        """Fetch the data of a predecessor on another node; without it the allocation begins empty, as a first one."""
        config, names = self.context.config, tuple(self.tasks)
        limit = self.task_group.ephemeral_disk.size_mb * MIB
        self.note(events.task_setup(f"Copying the data of allocation {previous[:8]} from its node"))
        try:
            async with aclosing(self.context.server.fetch_disk(self.alloc.node_id, self.alloc.id)) as pieces:
                await unpack(pieces, config.alloc_dir, self.alloc.id, tasks=names, limit=limit)
        except YurtError as error:
            self.note(events.task_setup(f"The data of allocation {previous[:8]} is not here: {error}"))

    async def _wait_change(self, wake_at: UnixNano) -> None:
        if wake_at:
            left_s = (wake_at - self.context.env.now()) / NANOSECONDS
            await wait_or_sleep(self.context.env, self._changed, max(left_s, 0.001))
        else:
            await self._changed.wait()

    def _obey(self) -> None:
        """Begin and end tasks until the present states ask for nothing more."""
        for _ in range(len(self.tasks) * 2 + 2):
            before = self._version
            orders = allocation.decide(self.roles, self.states, stop=self._stop)
            for name in orders.begin:
                self.tasks[name].post(machine.Begin())
            if self._stop is None or self._delay_over.is_set():
                is_failure = self._stop is not None and self._stop.is_failure
                for name, reason in orders.kill:
                    self.tasks[name].post(machine.Kill(reason=reason, is_failure=is_failure))
            if self._version == before:
                return

    async def save(self) -> None:
        """Write down how all tasks fare."""
        version = self._version
        if self._is_alloc_dirty:
            self._is_alloc_dirty = False
            await self.context.store.put_alloc(self.alloc)
        records = {name: runner.record for name, runner in self.tasks.items()}
        await self.context.store.put_tasks(self.alloc.id, records, self._health_status)
        async with self._saved:
            self._saved_version = version
            self._saved.notify_all()

    def update(self) -> AllocUpdate:
        """What the servers are told at present."""
        states = self.states
        status, description = allocation.client_status(self.roles, states)
        return AllocUpdate(
            id=self.alloc.id,
            node_id=self.alloc.node_id,
            client_status=status,
            client_description=description,
            task_states=states,
            deployment_status=self._health_status,
            network_status=self.alloc.network_status,
        )

    def _keep_final(self, update: AllocUpdate) -> AllocUpdate:
        """A terminal status never changes again (invariant E7); the task states behind it still may."""
        if self._final is not None:
            update = replace(
                update,
                client_status=self._final.client_status,
                client_description=self._final.client_description,
            )
        elif update.client_status in CLIENT_TERMINAL:
            self._final = update
        return update

    # What the servers want.

    def take_over(self, alloc: Allocation) -> None:
        """Take over the allocation as the servers changed it."""
        old, self.alloc = self.alloc, alloc
        if alloc.job is None or alloc.job.group(alloc.task_group) is None:
            self.alloc = replace(alloc, job=old.job)
        known = self.alloc
        if {task.name for task in self.task_group.tasks} != set(self.tasks):
            self.alloc = replace(known, job=old.job)
        for runner in self.tasks.values():
            runner.update(self.alloc)
        if self.alloc.deployment_id != old.deployment_id:
            self._health_status = alloc.deployment_status
            self._watch_health()
        if old.client_status != CLIENT_UNKNOWN and alloc.client_status == CLIENT_UNKNOWN:
            self.note(events.reconnected())
        if is_server_terminal(alloc):
            self.stop()
        self._is_alloc_dirty = True
        self._changed.set()

    def note(self, event: TaskEvent) -> None:
        """Tell the user of every task that has not ended."""
        for runner in self.tasks.values():
            if runner.machine.phase != machine.DEAD:
                runner.post(machine.Note(event=event))

    def stop_at_once(self) -> None:
        """End the allocation without its shutdown delays."""
        hurried = replace(self.alloc.desired_transition, no_shutdown_delay=True)
        self.alloc = replace(self.alloc, desired_transition=hurried)
        for runner in self.tasks.values():
            runner.update(self.alloc)
        self._delay_over.set()
        self.stop()

    def stop(self, stop: allocation.Stop | None = None) -> None:
        """End the allocation, by the order of its tasks; the group's shutdown delay comes first."""
        if self._stop is None:
            self._stop = stop or allocation.Stop()
            self._stopping.set()
            self._begin_stop()
            self._changed.set()

    def _begin_stop(self) -> None:
        delay_s = self.task_group.shutdown_delay / NANOSECONDS
        is_hurried = self.alloc.desired_transition.no_shutdown_delay or self.is_over
        is_dead = all(state.state == TASK_DEAD for state in self.states.values())
        if self._services is None and (delay_s <= 0 or is_hurried or is_dead):
            self._delay_over.set()
        else:
            wait_s = 0.0 if is_hurried or is_dead else delay_s
            supervised(self._group, f"shutdown delay of {self.alloc.id[:8]}", self._after_shutdown_delay(wait_s))

    async def _after_shutdown_delay(self, delay_s: float) -> None:
        """Services go first, so that nobody is sent to tasks that end."""
        if self._services is not None:
            await self._services.withdraw()
        if delay_s > 0:
            await self.context.env.sleep(delay_s)
        self._delay_over.set()
        self._changed.set()

    def _schedule_expiry(self) -> None:
        limit = self.task_group.max_run_duration
        job = self.alloc.job
        if limit > 0 and job is not None and job.type in (JOB_BATCH, JOB_SYSBATCH):
            supervised(self._group, f"max_run_duration of {self.alloc.id[:8]}", self._expire())

    async def _expire(self) -> None:
        """End the allocation when it has run as long as its group allows."""
        limit = self.task_group.max_run_duration
        while not self.is_over:
            since = allocation.running_since(self.states)
            left = since + limit - self.context.env.now() if since else limit
            if since and left <= 0:
                reason = events.max_run_duration_exceeded(limit)
                self.stop(allocation.Stop(reason=reason, is_expired=True, is_failure=True))
                return
            await wait_or_sleep(self.context.env, self._over, max(left / NANOSECONDS, 0.01))

    # Network.

    def _take_address(self) -> None:
        """Tell the address of the allocation's own network, once it has one."""
        status = self.context.networks.status(self.alloc.id)
        if status is not None and status != self.alloc.network_status:
            self.alloc = replace(self.alloc, network_status=status)
            self._is_alloc_dirty = True
            for runner in self.tasks.values():
                runner.update(self.alloc)

    # Services.

    def _follow_services(self) -> None:
        """Register what runs now, and check it."""
        group = self.task_group
        if self._services is None:
            if self._stop is not None or not has_services(group):
                return
            self._services = ServiceHook(
                self.context, group=self._group, on_change=self.on_change, restart=self._restart_unhealthy
            )
        running = self.states.items()
        starts = {name: int(state.started_at) for name, state in running if state.state == TASK_RUNNING}
        handles = {name: self.tasks[name].handle for name in starts}
        addresses = {name: handle.address if handle is not None else "" for name, handle in handles.items()}
        for problem in self._services.follow(self.alloc, group, starts, addresses):
            self.note(events.task_setup(problem))

    def _restart_unhealthy(self, spec: CheckSpec) -> None:
        if self._stop is not None:
            return
        ask = machine.AskRestart(reason=f'healthcheck: check "{spec.name}" unhealthy', is_failure=True)
        for name in [spec.task] if spec.task in self.tasks else list(self.tasks):
            self.tasks[name].post(ask)

    def resend_services(self) -> None:
        """The servers may have forgotten the services."""
        if self._services is not None:
            self._services.resend()

    def check_statuses(self) -> tuple[AllocCheckStatus, ...]:
        """What the checks said last."""
        return self._services.statuses() if self._services is not None else ()

    # CSI volumes and plugins.

    async def _unmount_volumes(self, update: AllocUpdate) -> None:
        """Let go of CSI volumes; the servers free them when they hear of the end, so that is told afterwards."""
        volumes = self.context.csi.volumes
        if volumes.has(self.alloc.id):
            self._report(replace(update, client_status=CLIENT_RUNNING, client_description=UNMOUNTING))
            await volumes.release(self.alloc.id)

    def _follow_plugins(self) -> None:
        """Look after the tasks that are CSI plugins and run."""
        starts = {name: int(each.started_at) for name, each in self.states.items() if each.state == TASK_RUNNING}
        self.context.csi.plugins.follow(self.alloc, self.task_group, starts, self._restart_plugin)

    def _restart_plugin(self, task: str, reason: str) -> None:
        if self._stop is None:
            self.tasks[task].post(machine.AskRestart(reason=reason, is_failure=True))

    # Health.

    def _watch_health(self) -> None:
        """Watch for the deployment's policy, or for the migration's when the allocation belongs to none."""
        group = self.task_group
        policy = group.update if self.alloc.deployment_id else group.migrate
        decided = self._health_status is not None and self._health_status.healthy is not None
        if policy is None or decided:
            self._health = None
            return
        self._health = health.watch(
            policy.health_check,
            min_healthy_time=policy.min_healthy_time,
            healthy_deadline=policy.healthy_deadline,
            started=self.context.env.now(),
        )

    def _advance_health(self) -> UnixNano:
        """Ask the health machine; when to ask again."""
        if self._health is None or self._stop is not None:
            return UnixNano(0)
        now = self.context.env.now()
        passes = self._services is None or self._services.checks_pass
        step = health.advance(self._health, self.roles, self.states, checks_pass=passes, now=now)
        self._health = step.machine
        if step.machine.is_healthy is not None:
            self._decide_health(step.machine, now)
        return step.wake_at

    def _decide_health(self, decided: health.HealthMachine, now: UnixNano) -> None:
        old = self._health_status or AllocDeploymentStatus()
        self._health_status = replace(old, healthy=decided.is_healthy, timestamp=now)
        self._health = None
        self._version += 1
        for name, reason in decided.reasons.items():
            if self.tasks[name].machine.phase != machine.DEAD:
                self.tasks[name].post(machine.Note(event=events.alloc_unhealthy(reason)))


async def _are_over(after: Sequence[weakref.ref[AllocRunner]], replaced: str) -> bool:
    """Wait for those that are meant to end; whether the replaced one is over, if it is among them."""
    is_over = True
    for each in after:
        runner = each()
        if runner is not None:
            await runner.wait_stopped()
            is_over = is_over and (runner.is_over or runner.id != replaced)
    return is_over
