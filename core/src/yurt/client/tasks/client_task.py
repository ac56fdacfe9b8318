"""The task as hooks see it: its state, their additions to its run, and the operations they may call.

`yurt.sdk.hooks.HookedTask` is the part that packages see. It lives as long as the task's runner; `begin` starts a run
with the allocation as it is then, so that a change in the middle of a preparation counts from the next run on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol

from yurt.client.context import ClientContext
from yurt.client.files import alloc_dir
from yurt.client.files.dynamic_users import DynamicUsers
from yurt.client.files.link_owners import link_owners, task_users
from yurt.client.files.safe_files import Owners
from yurt.client.task_env import EnvInputs, build_env, lookup_in, merged_meta, visible_dirs
from yurt.client.tasks.identities import handed_out
from yurt.client.timed_waits import LightEvent
from yurt.lifecycle import events
from yurt.lifecycle.task import RUNNING, AnyTaskEvent, AskRestart, Kill, Note, TaskMachine
from yurt.runtime.supervise import supervised
from yurt.sdk.driver import Driver, ExecResult, TaskDirs, TaskRequest
from yurt.sdk.dynamic_users import dynamic_user_name
from yurt.sdk.errors import Invalid
from yurt.sdk.hooks import Additions, TaskFacts
from yurt.sdk.value import Duration, Value, replace
from yurt.structs.alloc import Allocation, AllocNetworkStatus, TaskEvent
from yurt.structs.job import Job, TaskGroup
from yurt.structs.task import Task


class SetupProblem(Exception):
    """A run cannot be prepared; `event` has the reason."""

    def __init__(self, event: TaskEvent, *, is_recoverable: bool = False) -> None:
        super().__init__(event.display_message)
        self.event = event
        self.is_recoverable = is_recoverable


class TaskSpec(Value):
    """A task with its allocation, at the job version that it runs."""

    alloc: Allocation
    job: Job
    group: TaskGroup
    task: Task


def task_spec(alloc: Allocation, task_name: str) -> TaskSpec:
    """The task of an allocation, which must have it."""
    assert alloc.job is not None, alloc.id
    group = alloc.job.group(alloc.task_group)
    assert group is not None, alloc.task_group
    task = group.task(task_name)
    assert task is not None, task_name
    return TaskSpec(alloc=alloc, job=alloc.job, group=group, task=task)


def spec_as_user(alloc: Allocation, task_name: str, users: DynamicUsers) -> TaskSpec:
    """The task as it is started: as its dynamic user when it has one."""
    spec, uid = task_spec(alloc, task_name), users.uid_of(alloc.id, task_name)
    return replace(spec, task=replace(spec.task, user=dynamic_user_name(uid))) if uid else spec


def run_id(alloc: Allocation, task_name: str, run: int) -> str:
    """The name of one run of a task for its driver."""
    return f"{alloc.id}/{task_name}/{run}"


class TaskRunnerPort(Protocol):
    """The part of the task's runner that hooks need."""

    machine: TaskMachine

    def post(self, event: AnyTaskEvent) -> None:
        """Send an event to the task's machine."""
        ...

    async def signal(self, signal: str, reason: str = "") -> None:
        """Send a signal to the running task."""
        ...


class ClientTask:
    """One task of an allocation on this node."""

    def __init__(
        self, alloc: Allocation, name: str, context: ClientContext, *, runner: TaskRunnerPort, group: asyncio.TaskGroup
    ) -> None:
        self.name = name
        self.spec = spec_as_user(alloc, name, context.users)
        self.run = 0
        self.request: TaskRequest | None = None
        """The driver's request for the run, made by the hook `configuration`."""
        self.fetched: set[str] = set()
        """Digests of the downloaded artifacts; they are stored, so that a restarted agent does not download again."""
        self.csi_folders: Mapping[str, str] = {}
        """The mount paths of the group's CSI volumes, by their names in the group."""
        self.lacks_devices = False
        """Whether its devices, and so its environment, are unknown after a restart of the agent."""
        self.killed = LightEvent()
        self.running = LightEvent()
        self._context = context
        self.runner = runner
        self._group = group
        self._given = Additions()
        self._env: dict[str, str] | None = None
        self._followed: set[asyncio.Task[None]] = set()

    # Facts.

    @property
    def facts(self) -> TaskFacts:
        """Its identity, for packages."""
        spec, inputs = self.spec, self._env_inputs()
        return TaskFacts(
            alloc_id=spec.alloc.id,
            task_name=self.name,
            job_id=spec.job.id,
            group_name=spec.group.name,
            namespace=spec.alloc.namespace,
            node_id=inputs.node.id,
            driver=spec.task.driver,
            user=spec.task.user,
            meta=merged_meta(inputs),
        )

    @property
    def key(self) -> tuple[str, str]:
        """The allocation's id and the task's name."""
        return self.spec.alloc.id, self.name

    @property
    def driver(self) -> Driver:
        """Its driver, which must exist on this node."""
        return self._context.drivers[self.spec.task.driver]

    @property
    def dirs(self) -> TaskDirs:
        """Its directories on the host."""
        return alloc_dir.task_dirs(self._context.config.alloc_dir, self.spec.alloc.id, self.name)

    @property
    def is_env_asked_for(self) -> bool:
        """Whether the environment is needed during a run: for templates, actions, or tokens that are renewed."""
        task = self.spec.task
        return bool(task.templates or task.actions or handed_out(task))

    # The run.

    def begin(self, alloc: Allocation, run: int) -> None:
        """Start preparing a run, or continue a recovered one."""
        self.spec, self.run = spec_as_user(alloc, self.name, self._context.users), run
        self.request, self.csi_folders, self.lacks_devices = None, {}, False
        self._given, self._env = Additions(), None

    def change(self, alloc: Allocation) -> None:
        """Adopt the allocation that the servers changed in place; the run keeps the network that it has joined."""
        joined = self.spec.alloc.network_status
        self.spec = spec_as_user(alloc, self.name, self._context.users)
        if alloc.network_status is None and joined is not None:
            self.spec = replace(self.spec, alloc=replace(alloc, network_status=joined))

    def see_network(self, status: AllocNetworkStatus) -> None:
        """Record the network that the allocation has joined."""
        self.spec = replace(self.spec, alloc=replace(self.spec.alloc, network_status=status))
        self._env = None

    @property
    def given(self) -> Additions:
        """All additions of hooks to the run so far."""
        return self._given

    def give(self, additions: Additions) -> None:
        """Add a hook's additions to the run."""
        self._given = combined((self._given, additions))
        if additions.env or additions.fixed_env:
            self._env = None

    @property
    def env(self) -> dict[str, str]:
        """The environment of the run; the same object until a hook adds to it."""
        if self._env is None:
            self._env = build_env(self._env_inputs())
        return self._env

    @property
    def lookup(self) -> Callable[[str], str | None]:
        """Resolves `${name}` for the run."""
        return lookup_in(self._context.node(), self._context.config.region, self.env)

    async def link_owners(self) -> Owners:
        """The users who may own a hard-linked file in the allocation."""
        return await asyncio.to_thread(link_owners, task_users(self.spec.alloc), self._context.drivers)

    def _env_inputs(self) -> EnvInputs:
        context, driver = self._context, self._context.drivers.get(self.spec.task.driver)
        isolation = driver.capabilities.fs_isolation if driver is not None else "none"
        shared, local, secrets = visible_dirs(self.dirs, isolation)
        return EnvInputs(
            node=context.node(),
            region=context.config.region,
            alloc=self.spec.alloc,
            job=self.spec.job,
            group=self.spec.group,
            task=self.spec.task,
            alloc_dir=shared,
            task_dir=local,
            secrets_dir=secrets,
            host_env=context.host_env if isolation != "image" else {},
            template_env=self._given.env,
            device_env=self._given.fixed_env,
        )

    # Operations.

    def note(self, event: TaskEvent | str) -> None:
        """Add an event without a change of state."""
        self.runner.post(Note(event=events.hook_message(event) if isinstance(event, str) else event))

    def restart(self, reason: str) -> None:
        """End the run and start another."""
        self.runner.post(AskRestart(reason=reason))

    def fail(self, event: TaskEvent) -> None:
        """End the task permanently, as failed."""
        self.runner.post(Kill(reason=event, is_failure=True))

    def fail_task(self, reason: str) -> None:
        """End the task permanently, as failed, for the reason that a package's hook gives."""
        self.fail(events.hook_failed(reason))

    async def signal(self, signal: str, reason: str = "") -> None:
        """Send a signal to the running task."""
        await self.runner.signal(signal, reason)

    async def exec(self, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command inside the running task."""
        driver = self._context.drivers.get(self.spec.task.driver)
        if self.runner.machine.phase != RUNNING or driver is None:
            raise Invalid(f"task {self.name!r} is not running; only in a running task can a command be run")
        task_id = run_id(self.spec.alloc, self.name, self.runner.machine.run)
        return await driver.exec_task(task_id, command, timeout=timeout)

    def follow(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` alongside the task, until the task is killed or dead."""
        self._keep(work, lambda error: self.note(events.hook_failed(f"{type(error).__name__}: {error}")))

    def spawn(self, work: Coroutine[Any, Any, None], on_error: Callable[[Exception], None]) -> asyncio.Task[None]:
        """Like `follow`, for work that its hook may cancel, and whose failure is passed to `on_error`."""
        return self._keep(work, on_error)

    def _keep(self, work: Coroutine[Any, Any, None], on_error: Callable[[Exception], None]) -> asyncio.Task[None]:
        label = f"work alongside task {self.name} of {self.spec.alloc.id[:8]}"
        done = supervised(self._group, label, work, on_error=on_error)
        self._followed.add(done)
        done.add_done_callback(self._followed.discard)
        return done

    def stop_following(self) -> None:
        """Cancel the work of hooks: the task is killed or dead."""
        for work in tuple(self._followed):
            work.cancel()


def combined(parts: Sequence[Additions]) -> Additions:
    """Merge additions of hooks, given in their order; see `Additions` for the precedence."""
    return Additions(
        env={name: value for each in parts for name, value in each.env.items()},
        fixed_env={name: value for each in parts for name, value in each.fixed_env.items()},
        mounts=tuple(mount for each in reversed(parts) for mount in each.mounts),
        devices=tuple(device for each in parts for device in each.devices),
        cdi_devices=tuple(device for each in parts for device in each.cdi_devices),
        engine_devices=tuple(device for each in parts for device in each.engine_devices),
        memory_nodes=tuple(node for each in parts for node in each.memory_nodes),
        network_namespace=next((each.network_namespace for each in reversed(parts) if each.network_namespace), ""),
        logs=next((each.logs for each in reversed(parts) if each.logs is not None), None),
    )
