"""Clients in a world without loops: the test makes their calls, and their tasks run on whatever the calls return."""

from __future__ import annotations

import contextlib
from typing import Protocol, assert_never

from yurt.lifecycle.alloc_list import AllocList
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import seconds
from yurt.state import Snapshot
from yurt.structs import commands as c
from yurt.structs import status
from yurt.structs.alloc import Allocation, AllocDeploymentStatus, TaskState
from yurt.structs.node import Node
from yurt.structs.policies import DisconnectStrategy
from yurt.structs.predicates import is_client_terminal
from yurt.structs.rpc import AllocPull
from yurt.structs.status import ClientStatus, NodeStatus, TaskStatus
from yurt.testing.cluster_models.node_life import NotKnown, ReportRefused, World


class Rules(Protocol):
    """What a client may do to its tasks (invariant E2)."""

    def may_stop(self, alloc_id: str) -> None:
        """Fails unless the servers have asked for the stop."""
        ...

    def may_forget(self, alloc_id: str) -> None:
        """Fails unless the servers have deleted the allocation."""
        ...


def _task_status(client_status: ClientStatus) -> TaskStatus:
    """The status of an allocation's only task."""
    match client_status:
        case "pending" | "running":
            return client_status
        case "complete" | "failed" | "lost" | "unknown":
            return status.TASK_DEAD
        case _:
            assert_never(client_status)


class SimulatedTask:
    """A task that runs on a client."""

    def __init__(self, alloc: Allocation, started_at: int) -> None:
        self.alloc = alloc
        self.status: ClientStatus = status.CLIENT_PENDING
        self.started_at = started_at
        self.finished_at = 0
        self.restarts = 0

    @property
    def is_over(self) -> bool:
        """Whether it has ended for good."""
        return self.status in status.CLIENT_TERMINAL

    def end(self, client_status: ClientStatus, at: int) -> None:
        """End it, at most once."""
        if not self.is_over:
            self.status, self.finished_at = client_status, at

    def update(self) -> c.AllocUpdate:
        """The client's present report on it."""
        state = TaskState(
            state=_task_status(self.status),
            failed=self.status == status.CLIENT_FAILED,
            restarts=self.restarts,
            started_at=self.started_at,
            finished_at=self.finished_at,
        )
        health = None if self.status == status.CLIENT_PENDING else AllocDeploymentStatus(healthy=True)
        return c.AllocUpdate(
            id=self.alloc.id,
            node_id=self.alloc.node_id,
            client_status=self.status,
            task_states={"web": state},
            deployment_status=health,
        )


class SimulatedClient:
    """One client; its tasks run on whatever its calls return."""

    def __init__(self, world: World, rules: Rules, node: Node, skew_s: float) -> None:
        self.world = world
        self.rules = rules
        self.node = node
        self.skew = seconds(skew_s)
        self.tasks: dict[str, SimulatedTask] = {}
        self.list = AllocList()
        self.last_ok_s = 0.0
        self.status = status.NODE_INIT

    @property
    def now(self) -> int:
        """The time of its own clock."""
        return self.world.clock.now() + self.skew

    def register(self) -> None:
        self.world.register(self.node)
        self.last_ok_s = self.world.clock.passed_s

    def beat(self, asked: NodeStatus) -> None:
        self.world.heartbeat(self.node.id, asked, self._answered)
        self.last_ok_s = self.world.clock.passed_s

    def _answered(self, node_status: str) -> None:
        self.status = node_status

    def restart(self) -> None:
        """End its process; the next process knows what the first one stored."""
        seen, stored = self.list.seen_index, {key: task.alloc.alloc_modify_index for key, task in self.tasks.items()}
        self.list = AllocList(seen_index=seen)
        self.list.restore(stored)

    def listed(self) -> AllocPull:
        """Its list of allocations as the servers have it now."""
        state = self.world.state
        allocs = state.allocs_of_node(self.node.id)
        return AllocPull(index=state.index, allocs={alloc.id: alloc.alloc_modify_index for alloc in allocs})

    def take(self, pull: AllocPull, server: Snapshot) -> None:
        """Carry out a list with the allocations that a server, perhaps another one, returns (invariant E2)."""
        if self.list.is_older(pull):
            return
        found = (server.allocs.get(alloc_id) for alloc_id in self.list.moved(pull))
        try:
            changes = self.list.changes(pull, [alloc for alloc in found if alloc is not None])
        except Unavailable:
            return
        self.list.take_over(pull, changes)
        for alloc in changes.fetched:
            task = self.tasks.get(alloc.id)
            if task is None and not is_client_terminal(alloc):
                task = self.tasks[alloc.id] = SimulatedTask(alloc, 0)
            if task is not None:
                self.follow(task, alloc)
        for alloc_id in changes.gone:
            self.rules.may_forget(alloc_id)
            self.tasks.pop(alloc_id, None)

    def follow(self, task: SimulatedTask, alloc: Allocation) -> None:
        """Handle a change of a task's allocation on the servers."""
        task.alloc = alloc
        if alloc.desired_status != status.DESIRED_RUN and not task.is_over:
            self.rules.may_stop(alloc.id)
            task.end(status.CLIENT_COMPLETE, self.now)

    def live_on(self) -> None:
        """Start pending tasks, and end tasks that may not run while disconnected."""
        for task in self.tasks.values():
            if task.status == status.CLIENT_PENDING:
                task.status, task.started_at = status.CLIENT_RUNNING, self.now
            limit_s = strategy(task.alloc).stop_on_client_after / 1e9
            if limit_s and self.world.clock.passed_s > self.last_ok_s + limit_s:
                task.end(status.CLIENT_FAILED, self.now)

    def updates(self) -> tuple[c.AllocUpdate, ...]:
        return tuple(task.update() for task in self.tasks.values())

    def keep_to_the_protocol(self) -> None:
        """One turn of a connected client: heartbeat, fetch, report, and then say that it is ready."""
        world = self.world
        try:
            self.beat(status.NODE_READY)
        except NotKnown:
            self.register()
        world.apply_all()
        self.take(self.listed(), world.state)
        self.live_on()
        with contextlib.suppress(ReportRefused):
            world.report(self.node.id, self.updates())
        world.apply_all()
        with contextlib.suppress(NotKnown):
            self.beat(status.NODE_READY)
        world.apply_all()


def strategy(alloc: Allocation) -> DisconnectStrategy:
    assert alloc.job is not None
    return alloc.job.task_groups[0].disconnect or DisconnectStrategy(replace=True)
