"""The calls that a server serves for the other servers of its region."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from yurt.broker import Delivery
from yurt.sdk.errors import Conflict, Reason
from yurt.server.clients.node_ports import NodePorts
from yurt.server.failures import no_leader
from yurt.server.keys.keyring import Keyring
from yurt.server.leadership.roles import Roles
from yurt.server.log.catch_up import send_snapshot
from yurt.server.log.replica import Replica
from yurt.server.log.state_loader import StateLoader
from yurt.server.peers import PeerStatus, PlanReply, RootKey, SnapshotPart
from yurt.server.scheduling.work_sources import OTHER_SCHEDULER, POLL_S, SCHEDULER_VERSION, LeaderWork
from yurt.storage.log import CommandLog
from yurt.structs.commands.packed import unpacked
from yurt.structs.evaluation import Evaluation
from yurt.structs.plan import Outcome, Plan
from yurt.structs.status import JOB_TYPES


class PeerCalls:
    """The `PeerPort` of one server."""

    def __init__(
        self,
        replica: Replica,
        roles: Roles,
        command_log: CommandLog,
        *,
        loader: StateLoader,
        keyring: Keyring,
        node_ports: NodePorts,
    ) -> None:
        self._replica = replica
        self._roles = roles
        self._log = command_log
        self._loader = loader
        self._keyring = keyring
        self._node_ports = node_ports

    async def status(self) -> PeerStatus:
        """The status of this server."""
        return PeerStatus(index=self._replica.state.index, is_leader=self._leads, room=self._log.database_size)

    async def confirmed_index(self) -> int:
        """The index of the state here, which nothing acknowledged before the call exceeds."""
        await self._roles.confirm()
        return self._replica.state.index

    async def snapshot(self, after: int) -> AsyncGenerator[SnapshotPart]:
        """The present state."""
        self._loader.need_state()
        async for part in send_snapshot(self._replica.state, after):
            yield part

    async def root_key(self, key_id: str) -> RootKey:
        """A root key of this server."""
        return await asyncio.to_thread(self._keyring.get, key_id)

    async def take_root_key(self, key: RootKey) -> None:
        """Store a root key."""
        await asyncio.to_thread(self._keyring.add, key)

    async def drop_root_key(self, key_id: str) -> None:
        """Delete an unused root key."""
        if key_id not in self._replica.state.root_keys:
            await asyncio.to_thread(self._keyring.remove, key_id)

    async def has_node(self, node_id: str) -> bool:
        """Whether a client is connected to this server."""
        return self._node_ports.has(node_id)

    async def take_work(
        self, *, timeout_s: float, scheduler: int = 0, queues: tuple[str, ...] = JOB_TYPES
    ) -> tuple[Delivery, ...]:
        """Evaluations that this leader delegates."""
        if scheduler != SCHEDULER_VERSION:
            text = f"{OTHER_SCHEDULER}: the leader's is {SCHEDULER_VERSION}, the caller's {scheduler}"
            raise Conflict(text, reason=Reason.SCHEDULER_MISMATCH)
        return tuple(await self._work().take_spare(min(timeout_s, POLL_S), queues))

    async def finish_work(self, delivery: Delivery, *, is_done: bool) -> None:
        """Acknowledge a delivery."""
        work = self._work()
        await (work.ack(delivery) if is_done else work.nack(delivery))

    async def submit_plan(self, delivery: Delivery, plan: Plan, outcome: Outcome) -> PlanReply:
        """Check and store a plan."""
        return await self._work().submit(delivery, unpacked(plan), outcome)

    async def store_evaluations(self, delivery: Delivery, evaluations: tuple[Evaluation, ...]) -> None:
        """Store the end of an evaluation."""
        await self._work().store(delivery, evaluations)

    def _work(self) -> LeaderWork:
        term = self._roles.term
        if term is None or not self._replica.writer.is_open:
            raise no_leader()
        return term.work

    @property
    def _leads(self) -> bool:
        return self._roles.term is not None and self._replica.writer.is_open
