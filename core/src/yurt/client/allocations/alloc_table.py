"""The allocations of a client: runners of live allocations, records of ended ones.

A runner is retired when its allocation has ended and the drivers have freed what its tasks held. Nothing refers to it
from then on, and no cycle of references leads through it, so it is freed at once: a garbage collection that came later
would find the memory around it taken by objects that stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator

from yurt.client.allocations.alloc_runner import AllocRunner
from yurt.client.files.link_owners import TaskUser
from yurt.client.tasks.task_runner import TaskRunner
from yurt.client.timed_waits import wait_or_sleep
from yurt.lifecycle.task import DEAD
from yurt.runtime.env import Env
from yurt.sdk.driver import TaskHandle
from yurt.sdk.errors import NotFound, Reason, Unavailable
from yurt.sdk.value import UnixNano, Value
from yurt.structs.rpc import AllocCheckStatus

RESTORE_LIMIT_S = 30.0
"""Time limit for operations that wait until the client has restored its allocations."""


class EndedAlloc(Value):
    """An ended allocation; its directory may still exist.

    A runner with its tasks takes some ten kilobytes, a record a few hundred bytes, and batch jobs leave thousands of
    ended allocations behind.
    """

    id: str
    namespace: str
    finished_at: UnixNano
    users: tuple[TaskUser, ...]
    """Its tasks with the users who may own their files."""
    checks: tuple[AllocCheckStatus, ...] = ()
    """The last results of its services' checks."""

    def check_statuses(self) -> tuple[AllocCheckStatus, ...]:
        """The last results of the checks."""
        return self.checks


class AllocTable:
    """Every allocation that the servers have assigned to the client and still list."""

    def __init__(self, env: Env) -> None:
        self.live: dict[str, AllocRunner] = {}
        """Runners by allocation id; a runner remains until drivers have freed the resources of its ended tasks."""
        self.ended: dict[str, EndedAlloc] = {}
        self.has_changed = asyncio.Event()
        """Set when an allocation begins or the servers have changed one."""
        self._env = env
        self._restored = asyncio.Event()

    def __contains__(self, alloc_id: str) -> bool:
        return alloc_id in self.live or alloc_id in self.ended

    def namespace_of(self, alloc_id: str) -> str | None:
        """The namespace of an allocation; None for one that is not in the table."""
        runner = self.live.get(alloc_id)
        if runner is not None:
            return runner.alloc.namespace
        ended = self.ended.get(alloc_id)
        return None if ended is None else ended.namespace

    def begin(self, runner: AllocRunner) -> None:
        """Add an allocation that begins."""
        self.live[runner.alloc.id] = runner
        self.has_changed.set()

    def set_restored(self) -> None:
        """Declare the allocations of an earlier agent restored; `find` then answers."""
        self._restored.set()

    async def find(self, alloc_id: str) -> AllocRunner | EndedAlloc:
        """An allocation; waits while the client restores. Raises NotFound or Unavailable."""
        if alloc_id not in self and not await wait_or_sleep(self._env, self._restored, RESTORE_LIMIT_S):
            raise Unavailable("this node is still restoring its allocations; try again in a moment")
        found = self.live.get(alloc_id) or self.ended.get(alloc_id)
        if found is None:
            text = f"Unknown allocation {alloc_id!r}: this node does not run it"
            raise NotFound(text, reason=Reason.UNKNOWN_ALLOCATION)
        return found

    async def find_recovered(self, alloc_id: str) -> AllocRunner | EndedAlloc:
        """An allocation whose tasks of an earlier agent are recovered, so that their states are true.

        Waits as `find` does, then for the drivers. Raises NotFound or Unavailable.
        """
        found = await self.find(alloc_id)
        if isinstance(found, EndedAlloc):
            return found
        if not await wait_or_sleep(self._env, found.recovered, RESTORE_LIMIT_S):
            raise Unavailable(
                f"this node is still recovering the tasks of allocation {alloc_id}; try again in a moment"
            )
        return self.ended.get(alloc_id, found)

    def awaiting_replacement(self, alloc_id: str) -> str:
        """The live allocation that has yet to take the data of this one, which it replaces; "" for none."""
        runner = self._replacement(alloc_id)
        return "" if runner is None else runner.id

    async def wait_data_taken(self, alloc_id: str) -> None:
        """Wait until no live allocation has yet to take the data of this one."""
        while (runner := self._replacement(alloc_id)) is not None:
            await runner.saver.wait_change()

    def _replacement(self, alloc_id: str) -> AllocRunner | None:
        for runner in self.live.values():
            if runner.alloc.previous_allocation == alloc_id and not runner.is_over and runner.hooked.awaited_data:
                return runner
        return None

    def is_task_dead(self, alloc_id: str, task: str) -> bool:
        """Whether the task has ended and will not start again."""
        runner = self.live.get(alloc_id)
        return runner is None or runner.tasks[task].machine.phase == DEAD

    def unfinished_tasks(self) -> Iterator[TaskRunner]:
        """Every task that runs or may run again."""
        for runner in self.live.values():
            for task in runner.tasks.values():
                if not runner.is_over and task.machine.phase != DEAD:
                    yield task

    def save(self, alloc_ids: Iterable[str]) -> None:
        """Store the states of these allocations."""
        for alloc_id in alloc_ids:
            if (runner := self.live.get(alloc_id)) is not None and not runner.is_over:
                runner.on_change()

    def live_handles(self) -> dict[str, list[TaskHandle]]:
        """The handles of tasks, by driver."""
        found: dict[str, list[TaskHandle]] = {}
        for runner in self.live.values():
            for task in runner.tasks.values():
                if task.live_handle is not None:
                    found.setdefault(task.task.driver, []).append(task.live_handle)
        return found

    def over(self) -> Iterator[EndedAlloc]:
        """Records of all ended allocations, including those whose drivers still free resources."""
        yield from self.ended.values()
        yield from (_record_of(runner) for runner in self.live.values() if runner.is_over)

    def retire(self, runner: AllocRunner) -> None:
        """Replace the runner of an ended allocation by a record."""
        assert runner.is_over, runner.alloc.id
        if self.live.get(runner.alloc.id) is runner:
            del self.live[runner.alloc.id]
            self.ended[runner.alloc.id] = _record_of(runner)
        runner.release()

    def forget(self, alloc_id: str) -> None:
        """Remove an allocation that the servers no longer list."""
        runner = self.live.pop(alloc_id, None)
        if runner is not None:
            runner.release()
        self.ended.pop(alloc_id, None)
        if not self.ended:
            self.ended = {}  # a dict keeps the room that it once needed
        if not self.live:
            self.live = {}


def _record_of(runner: AllocRunner) -> EndedAlloc:
    """The record of an ended allocation."""
    return EndedAlloc(
        id=runner.id,
        namespace=runner.alloc.namespace,
        finished_at=runner.finished_at,
        users=runner.users,
        checks=runner.check_statuses(),
    )
