"""Hooks: steps that prepare an allocation or a task on a node and follow it to its end.

A hook handles one concern: devices, templates, a proxy next to the task. One object on a node serves all allocations or
tasks, and stores their data by their ids. Yurt's own hooks and those of packages have the same interface and are called
in one order: `TASK_HOOKS` and `ALLOC_HOOKS`, with added hooks between them (`after`, `before`).

The calls for a task, in this order:

    prepare(...)            every hook, one after the other, before each start; returns additions to the run
    started(run)            all at once, when the driver has started the run; cancelled when the run ends first
    exited(run)             every hook, one after the other, before the run's end is reported
    prepare(...)            ... the next run, when the task is restarted
    finish()                when the task is killed or dead: stop following it

After a restart of the agent, a run that its driver recovers gets `recover` instead of `prepare` and `started`; a run
that is lost gets neither, and no `exited`, but `prepare` when it is started again. So every call may be repeated for
work that is already done, and must then be harmless.

The effects of exceptions:

- `prepare`: after RecoverableError the restart policy decides about another attempt; any other error fails the task.
  The following hooks are not called. The event `Setup Failure` names the hook and the reason.
- `started`, `exited`, `recover`, `update`: the error becomes the event `Task hook failed` of the task, which continues.
- `prepare` of an allocation: the allocation fails before any of its tasks has begun.
- `recover`, `update`, `stopping` of an allocation: the error becomes the event `Task hook failed` of its tasks.
- `exited` of an allocation, and `finish` of both: the error is logged, and the end continues. Requests of a task's
  `finish` to the task (`note`, `restart`, `fail_task`) are ignored.

A call that returns a wrong type, or awaits work that is cancelled by other code, counts as failed. A call that exceeds
its time limit is cancelled and counts as failed: `recover`, `stopping` and `exited` have 10 s each (`exited` of a task:
10 s for all hooks). `prepare` has no time limit; a kill or stop cancels it. Work that does not end within 10 s of its
cancellation is abandoned.

A call may be cancelled: `prepare` when the task is killed or the allocation stops, `started` when the run ends, any
call when the agent ends. A hook must let the cancellation pass through. All calls run on the client's event loop, so
none may block. A hook that does nothing at a step does not override the method, which then costs nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar

from yurt.sdk.driver import (
    DeviceNode,
    EngineDevices,
    ExecResult,
    ExitResult,
    LogRotation,
    Mount,
    TaskDirs,
    TaskHandle,
)
from yurt.sdk.errors import Invalid
from yurt.sdk.value import Duration, UnixNano, Value, no_entries

CONFIGURATION: Final = "configuration"
"""The step that decodes the `config` block; hooks after it see the task's complete environment."""
TASK_HOOKS: Final = (
    "devices", "identities", "task_api", "network", "csi_plugin", "csi_volumes", "logs", CONFIGURATION,
    "volumes", "checkpoint", "artifacts", "templates", "gang",
)  # fmt: skip
"""Yurt's own hooks of a task, in their order."""
ALLOC_HOOKS: Final = ("disk", "network", "services", "csi_plugins", "csi_volumes", "health")
"""Yurt's own hooks of an allocation, in their order."""


class TaskFacts(Value):
    """A task's identity and resources. `meta` merges job, group and task; the innermost wins."""

    alloc_id: str
    task_name: str
    job_id: str
    group_name: str
    namespace: str
    node_id: str
    driver: str
    user: str = ""
    meta: Mapping[str, str] = no_entries()


class AllocFacts(Value):
    """An allocation's identity and resources. `meta` merges job and group; `tasks` are the names of its tasks."""

    alloc_id: str
    name: str
    job_id: str
    group_name: str
    namespace: str
    node_id: str
    tasks: tuple[str, ...]
    meta: Mapping[str, str] = no_entries()


class Additions(Value):
    """The additions of a hook to a run.

    `env` overrides what the job says; no hook, template or job overrides `fixed_env`. The mounts of a hook are made
    after those of the hooks behind it, so that no volume of a job hides them.
    """

    env: Mapping[str, str] = no_entries()
    fixed_env: Mapping[str, str] = no_entries()
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    engine_devices: tuple[EngineDevices, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    network_namespace: str = ""
    logs: LogRotation | None = None


class HookedTask(Protocol):
    """A task as hooks see it; the same object for its whole life on one agent."""

    @property
    def facts(self) -> TaskFacts:
        """The task's facts."""
        ...

    @property
    def dirs(self) -> TaskDirs:
        """Its directories on the host, which exist when `prepare` is called."""
        ...

    @property
    def run(self) -> int:
        """The number of the present run, from 0."""
        ...

    @property
    def env(self) -> Mapping[str, str]:
        """The environment of the run, with the additions of earlier hooks."""
        ...

    def note(self, text: str) -> None:
        """Add an event without a change of state."""
        ...

    def restart(self, reason: str) -> None:
        """End the run and start another, regardless of the restart policy."""
        ...

    def fail_task(self, reason: str) -> None:
        """Fail the task permanently."""
        ...

    async def signal(self, signal: str, reason: str = "") -> None:
        """Send a signal by name to the running task; raises Invalid when it is not running."""
        ...

    async def exec(self, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command inside the running task; raises Invalid when it is not running."""
        ...

    def follow(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` alongside the task, across its runs, until it is killed or dead.

        `prepare` is called for each run: a hook that follows from there does so only where `run` is 0, or ends the
        earlier work itself.
        """
        ...


class HookedAlloc(Protocol):
    """An allocation as hooks see it; the same object for its whole life on one agent."""

    @property
    def facts(self) -> AllocFacts:
        """The allocation's facts."""
        ...

    @property
    def folder(self) -> str:
        """Its directory on the host, which exists when `prepare` is called."""
        ...

    @property
    def address(self) -> str:
        """Its address in its own network; empty without one, or until it is known."""
        ...

    @property
    def running(self) -> Mapping[str, UnixNano]:
        """The running tasks with the times of their starts."""
        ...

    def note(self, text: str) -> None:
        """Add an event to every task that has not ended."""
        ...

    def restart(self, task: str, reason: str) -> None:
        """Count the task's run as failed; the restart policy decides what follows."""
        ...

    def fail_alloc(self, reason: str) -> None:
        """Fail the allocation."""
        ...

    def changed(self) -> None:
        """Request a call of every hook's `update` soon."""
        ...

    def follow(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` alongside the allocation, until it is over."""
        ...


T_contra = TypeVar("T_contra", contravariant=True)


class TaskHookOf(Generic[T_contra]):
    """A hook of tasks of type `T`; packages derive from `TaskHook`."""

    name: str
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    """With neither, the hook runs right before `configuration`. Unknown names are ignored."""

    async def prepare(self, task: T_contra) -> Additions | None:
        """Prepare the next run; None adds nothing."""
        return None

    async def started(self, task: T_contra, handle: TaskHandle) -> None:
        """The run has started."""

    async def exited(self, task: T_contra, result: ExitResult) -> None:
        """The run has ended: free its resources. The end is reported once all hooks have returned, or after 10 s."""

    async def recover(self, task: T_contra) -> Additions | None:
        """Recover a run of an earlier agent; returns the additions of `prepare` as far as they are known.

        Called before Yurt's own hooks recover the run, because these may wait for the servers: `env` may lack what they
        add, such as tokens.
        """
        return None

    def update(self, task: T_contra) -> None:
        """The job was updated in place, and `task` shows it; called only while the task runs.

        An update during the preparation or start of a run is reported when the run has started.
        """

    def finish(self, task: T_contra) -> None:
        """Forget the task; called at least once, for a killed task already before its last run ends."""

    async def close(self) -> None:
        """Free the hook's own resources: the agent stops, tasks continue."""


class AllocHookOf(Generic[T_contra]):
    """A hook of allocations of type `T`; packages derive from `AllocHook`."""

    name: str
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    """With neither, the hook runs after all built-in ones. Unknown names are ignored."""

    async def prepare(self, alloc: T_contra) -> None:
        """Prepare what the tasks need. Allocations that are replaced by this one on the node have ended."""

    async def recover(self, alloc: T_contra) -> None:
        """Called instead of `prepare` for an allocation whose tasks an earlier agent has started."""

    def update(self, alloc: T_contra) -> UnixNano | None:
        """A task's state changed, or the job was updated in place. Returns the time of the next call, or None.

        The time is in nanoseconds since 1970. Without a change, the next call comes after 0.5 s at the earliest.
        """
        return None

    def stopping(self, alloc: T_contra) -> Awaitable[None] | None:
        """The allocation is about to stop: work to do before its tasks are killed, for at most 10 s; None for none.

        A coroutine function does as well. It is called once, and not where all tasks end by themselves.
        """
        return None

    async def exited(self, alloc: T_contra) -> None:
        """Every task has ended; the servers are informed when all hooks have returned, each within 10 s."""

    def finish(self, alloc: T_contra) -> None:
        """Forget the allocation: it is over."""

    async def close(self) -> None:
        """Free the hook's own resources: the agent stops, allocations continue."""


TaskHook = TaskHookOf[HookedTask]
"""The base of a package's hook of tasks, with methods that do nothing."""
AllocHook = AllocHookOf[HookedAlloc]
"""The base of a package's hook of allocations, with methods that do nothing."""


class OrderedHook(Protocol):
    """The names that determine a hook's position in the order."""

    @property
    def name(self) -> str:
        """The name by which other hooks refer to it."""
        ...

    @property
    def after(self) -> tuple[str, ...]:
        """The hooks that come before it."""
        ...

    @property
    def before(self) -> tuple[str, ...]:
        """The hooks that come after it."""
        ...


def order(built_in: Sequence[str], added: Sequence[OrderedHook]) -> tuple[str, ...]:
    """The names of all hooks in their order; raises Invalid for contradictory `after` and `before`.

    An added hook comes right behind those that it names in `after`, else right before those in `before`, else before
    `configuration`, or last where there is none. Hooks at the same place are in the order of their names.
    """
    placed, waiting = list(built_in), sorted(added, key=lambda each: each.name)
    while waiting:
        left = {each.name for each in waiting}
        free = next((each for each in waiting if not left.intersection((*each.after, *each.before))), None)
        if free is None:
            names = " and ".join(sorted(left))
            raise Invalid(f"the hooks {names} cannot be ordered: each is to come after or before another of them")
        placed.insert(_place(placed, free, is_built_in=frozenset(built_in).__contains__), free.name)
        waiting.remove(free)
    return tuple(placed)


def _place(placed: Sequence[str], hook: OrderedHook, *, is_built_in: Callable[[str], bool]) -> int:
    behind = [placed.index(name) + 1 for name in hook.after if name in placed]
    ahead = [placed.index(name) for name in hook.before if name in placed]
    low, high = max(behind, default=0), min(ahead, default=len(placed))
    if low > high:
        places = f"after {' and '.join(hook.after)} and before {' and '.join(hook.before)}"
        raise Invalid(f'the hook "{hook.name}" cannot come {places}: they stand in the opposite order')
    if not behind:
        return high if ahead or CONFIGURATION not in placed else placed.index(CONFIGURATION)
    while low < high and not is_built_in(placed[low]):
        low += 1
    return low
