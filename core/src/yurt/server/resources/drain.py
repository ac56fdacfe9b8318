"""Watches draining nodes whose jobs changed or whose deadline has passed, and nodes with failed devices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from yurt.duties.device_moves import device_moves, waiting_moves
from yurt.duties.drain import drain
from yurt.fsm.basis import expectation
from yurt.fsm.bookkeeping.devices import failed_devices
from yurt.fsm.eval_triggers import Mint
from yurt.queue.waiting_job import JobKey
from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict
from yurt.sdk.value import replace
from yurt.server.log.log_writer import LogWriter
from yurt.server.log.state_waits import wait_for
from yurt.state import Change, Changes, Snapshot, has_change_of
from yurt.structs import status
from yurt.structs.commands import AnyCommand
from yurt.structs.node import Node

Duty = Callable[[Snapshot, Node, Mint], AnyCommand | None]
RETRY_S: Final = 5.0
"""The interval, in seconds, at which a forced drain checks allocations that have not stopped yet."""
THREAD_COUNT: Final = 5_000
"""The number of allocations of a node's jobs from which they are counted in a thread."""


class Drainer:
    """The draining nodes with their deadlines, and the nodes with failed devices that services have yet to leave."""

    def __init__(self, *, env: Env, writer: LogWriter) -> None:
        self._env = env
        self._writer = writer
        self._deadlines: dict[str, int] = {}
        self._failing: dict[str, frozenset[JobKey]] = {}
        """The nodes with failed devices, each with the jobs whose allocations have yet to leave them."""
        self._changed = asyncio.Event()

    def restore(self, state: Snapshot) -> None:
        """Resume every drain."""
        for node in state.nodes.values():
            if node.drain_strategy is not None:
                self._deadlines[node.id] = node.drain_strategy.force_deadline
            if failed_devices(node):
                self._failing[node.id] = frozenset()
        self._changed.set()

    @property
    def follows_placements(self) -> bool:
        """Whether new allocations matter: nodes drain or have failed devices."""
        return bool(self._deadlines or self._failing)

    def observe(self, changes: Changes) -> None:
        """Follow drains and failed devices, and allocations while there are any."""
        if not has_change_of(changes, "nodes") and not self.follows_placements:
            return
        for change in changes:
            if change.table == "nodes":
                node = change.after
                if node is not None and node.node_resources.devices and failed_devices(node):
                    self._failing.setdefault(node.id, frozenset())
                    self._changed.set()
                if node is not None and node.drain_strategy is not None:
                    self._deadlines[node.id] = node.drain_strategy.force_deadline
                    self._changed.set()
                elif change.before is not None:
                    self._deadlines.pop(change.before.id, None)
            elif change.table == "allocs" and (self._deadlines or (self._failing and self._concerns(change))):
                self._changed.set()

    def _concerns(self, change: Change) -> bool:
        """Whether a change of an allocation may move one away from a failed device: it came to such a node or into
        contact, or others of its job are to leave one."""
        before, alloc = change.before, change.before if change.after is None else change.after
        assert alloc is not None
        key = (alloc.namespace, alloc.job_id)
        is_new = before is None or before.client_status == status.CLIENT_UNKNOWN
        return (is_new and alloc.node_id in self._failing) or any(key in jobs for jobs in self._failing.values())

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._changed.clear()
            for node_id in sorted(self._deadlines):
                await self._look(node_id, drain)
            for node_id in sorted(self._failing):
                await self._leave_devices(node_id)
            await wait_for(self._env, self._changed, self._until_deadline())

    async def _leave_devices(self, node_id: str) -> None:
        """Take the next step away from the failed devices of a node."""
        state = self._writer.state
        node = state.nodes.get(node_id)
        if node is None or not failed_devices(node):
            self._failing.pop(node_id, None)
            return
        # A node with failed devices is followed: a plan that was checked before the failure may be applied after it.
        # Its jobs are noted before the decision, so that no change of theirs after it is missed.
        waiting = waiting_moves(state, node)
        self._failing[node_id] = frozenset((alloc.namespace, alloc.job_id) for alloc in waiting)
        if waiting:
            await self._look(node_id, device_moves)

    async def _look(self, node_id: str, duty: Duty) -> None:
        """Take the next step of a duty for a node, if it is due."""
        node = self._writer.state.nodes.get(node_id)
        command = await self._decided(node, duty) if node is not None else None
        if command is not None:
            await self._propose(command)

    async def _decided(self, node: Node, duty: Duty) -> AnyCommand | None:
        """The next command of the node's duty, based on the node; large jobs are decided in a thread."""
        state = self._writer.state
        decide = partial(duty, state, node, Mint(self._env.now(), self._env.uuid))
        jobs = {(alloc.namespace, alloc.job_id) for alloc in state.allocs.each_where("node", node.id)}
        is_small = sum(state.allocs.count_where("job", key) for key in jobs) <= THREAD_COUNT
        command = decide() if is_small else await self._env.in_thread(decide)
        return None if command is None else replace(command, based_on=(expectation(state, "nodes", node.id),))

    async def _propose(self, command: AnyCommand) -> None:
        """Store a step; a changed basis leads to another check."""
        with suppress(Conflict):
            await self._writer.propose(command)

    def _until_deadline(self) -> float | None:
        now = self._env.now()
        waits = [(deadline - now) / 1e9 for deadline in self._deadlines.values() if deadline]
        return min((wait if wait > 0 else RETRY_S for wait in waits), default=None)
