"""The allocation that hooks receive: its running tasks, and the operations they may call.

`yurt.sdk.hooks.HookedAlloc` is the part that packages see. It lives as long as the allocation's runner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Protocol

from yurt.client.context import ClientContext
from yurt.client.files import alloc_dir
from yurt.client.tasks.task_runner import TaskRunner
from yurt.client.timed_waits import LightEvent
from yurt.lifecycle import allocation, events
from yurt.lifecycle import task as machine
from yurt.runtime.supervise import supervised
from yurt.sdk.hooks import AllocFacts
from yurt.sdk.value import UnixNano, replace
from yurt.structs.alloc import Allocation, AllocNetworkStatus, TaskEvent, TaskState
from yurt.structs.commands import IdleReport
from yurt.structs.job import TaskGroup
from yurt.structs.queueing.idle import idle_policy_of, job_version_of
from yurt.structs.status import TASK_RUNNING


class AllocRunnerPort(Protocol):
    """The part of the allocation's runner that hooks need."""

    def on_change(self) -> None:
        """Note a change, which the runner then processes."""
        ...

    def stop(self, stop: allocation.Stop | None = None) -> None:
        """Stop the allocation in the order of its tasks."""
        ...

    def report_still_running(self, description: str) -> None:
        """Report to the servers why the allocation is not over yet."""
        ...


class ClientAlloc:
    """One allocation on this node."""

    def __init__(
        self, alloc: Allocation, context: ClientContext, *, runner: AllocRunnerPort, group: asyncio.TaskGroup
    ) -> None:
        self.alloc = alloc
        self.tasks: dict[str, TaskRunner] = {}
        self.turn_at = context.env.now()
        """When it arrived, or when its wait for its turn to start ended: its `healthy_deadline` counts from then."""
        self.health_status = alloc.deployment_status
        self.stopping = LightEvent()
        """Set when the allocation is ordered to stop."""
        self.may_start = LightEvent()
        """Set when its turn to start has come, or when it is ordered to stop before."""
        self.is_predecessor_over = True
        """Whether the allocation that it replaces is over, so that its data may be taken."""
        self.is_unsaved = False
        """Whether the stored allocation, apart from its tasks' states, is out of date."""
        # An agent that comes back knows nothing of what an earlier one measured, so nothing of that holds any more.
        self.idle_report = None if idle_policy_of(alloc) is None else IdleReport(job_version=job_version_of(alloc))
        """The last report to the servers on whether its devices are used."""
        self.failing: set[str] = set()
        """Hooks whose last `update` failed; a repeated failure is not reported again."""
        self._alloc_dir = context.config.alloc_dir
        self._runner = runner
        self.work = group
        self._followed: set[asyncio.Task[None]] = set()

    # Facts.

    @property
    def id(self) -> str:
        """The allocation's id."""
        return self.alloc.id

    @property
    def group(self) -> TaskGroup:
        """The group at the job version that it runs."""
        assert self.alloc.job is not None, self.id
        group = self.alloc.job.group(self.alloc.task_group)
        assert group is not None, self.alloc.task_group
        return group

    @property
    def facts(self) -> AllocFacts:
        """Its identity and resources, for packages."""
        alloc, group = self.alloc, self.group
        assert alloc.job is not None, self.id
        return AllocFacts(
            alloc_id=alloc.id,
            name=alloc.name,
            job_id=alloc.job_id,
            group_name=group.name,
            namespace=alloc.namespace,
            node_id=alloc.node_id,
            tasks=tuple(task.name for task in group.tasks),
            meta={**alloc.job.meta, **group.meta},
        )

    @property
    def folder(self) -> str:
        """Its directory on the host."""
        return str(alloc_dir.alloc_path(self._alloc_dir, self.id))

    @property
    def address(self) -> str:
        """Its address in its own network; empty until it has one."""
        return self.alloc.network_status.address if self.alloc.network_status is not None else ""

    @property
    def states(self) -> Mapping[str, TaskState]:
        """The current state of every task."""
        return {name: task.machine.state for name, task in self.tasks.items()}

    @property
    def running(self) -> dict[str, UnixNano]:
        """The running tasks with their start times."""
        states = self.states.items()
        return {name: UnixNano(state.started_at) for name, state in states if state.state == TASK_RUNNING}

    @property
    def has_begun(self) -> bool:
        """Whether one of its tasks was started, by this agent or an earlier one."""
        return any(task.machine.run or task.machine.state.started_at for task in self.tasks.values())

    @property
    def is_dead(self) -> bool:
        """Whether all tasks are dead."""
        return all(task.machine.phase == machine.DEAD for task in self.tasks.values())

    @property
    def awaited_data(self) -> str:
        """The replaced allocation whose data it has not taken yet; "" for none."""
        disk = self.group.ephemeral_disk
        return self.alloc.previous_allocation if (disk.sticky or disk.migrate) and not self.has_begun else ""

    # What changes it.

    def take_over(self, alloc: Allocation) -> None:
        """Adopt the allocation as the servers changed it, with the job version that the running tasks have."""
        previous, self.alloc = self.alloc, alloc
        if alloc.job is None or alloc.job.group(alloc.task_group) is None:
            self.alloc = replace(alloc, job=previous.job)
        if {task.name for task in self.group.tasks} != set(self.tasks):
            self.alloc = replace(self.alloc, job=previous.job)
        self._notify_tasks()

    def hurry(self) -> None:
        """Skip every delay of its stop."""
        hurried = replace(self.alloc.desired_transition, no_shutdown_delay=True)
        self.alloc = replace(self.alloc, desired_transition=hurried)
        self._notify_tasks()

    def see_network(self, status: AllocNetworkStatus) -> None:
        """Record the address of the network that the allocation has joined."""
        self.alloc = replace(self.alloc, network_status=status)
        self._notify_tasks()

    def _notify_tasks(self) -> None:
        self.is_unsaved = True
        for task in self.tasks.values():
            task.update(self.alloc)

    # What hooks may do to it.

    def note(self, event: TaskEvent | str) -> None:
        """Add an event, or a message of a hook, to every task that has not ended."""
        task_event = events.hook_message(event) if isinstance(event, str) else event
        for task in self.tasks.values():
            if task.machine.phase != machine.DEAD:
                task.post(machine.Note(event=task_event))

    def restart(self, task: str, reason: str) -> None:
        """Count the task's run as failed; its restart policy decides."""
        if not self.stopping.is_set():
            self.tasks[task].post(machine.AskRestart(reason=reason, is_failure=True))

    def fail_alloc(self, reason: str) -> None:
        """Stop the allocation as failed."""
        self._runner.stop(allocation.Stop(reason=events.hook_failed(reason), is_failure=True))

    def changed(self) -> None:
        """Request a call of every hook's `update` soon."""
        self._runner.on_change()

    def report_still_running(self, description: str) -> None:
        """Report to the servers why the allocation is not over although its tasks have ended."""
        self._runner.report_still_running(description)

    def follow(self, work: Coroutine[Any, Any, None]) -> None:
        """Run `work` alongside the allocation, until the allocation is over."""

        def report(error: Exception) -> None:
            self.note(events.hook_failed(f"{type(error).__name__}: {error}"))

        done = supervised(self.work, f"work alongside allocation {self.id[:8]}", work, on_error=report)
        self._followed.add(done)
        done.add_done_callback(self._followed.discard)

    def stop_following(self) -> None:
        """Cancel the work of hooks: the allocation is over."""
        for work in tuple(self._followed):
            work.cancel()
