"""What a server carries out for the other servers of its region."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

from yurt.broker import Delivery
from yurt.sdk.errors import Conflict, Reason
from yurt.server.failures import no_leader
from yurt.server.log.catch_up import send_snapshot
from yurt.server.peers import PeerStatus, PlanReply, RootKey, SnapshotPart
from yurt.server.scheduling.work_sources import OTHER_SCHEDULER, POLL_S, SCHEDULER_VERSION, LeaderWork
from yurt.structs.evaluation import Evaluation
from yurt.structs.packed import unpacked
from yurt.structs.plan import Outcome, Plan

if TYPE_CHECKING:
    from yurt.server.server import Server


class PeerCalls:
    """The `PeerPort` of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    async def status(self) -> PeerStatus:
        """How this server fares."""
        server = self._server
        return PeerStatus(index=server.state.index, is_leader=server.is_leader, room=server.command_log.room)

    async def snapshot(self, after: int) -> AsyncGenerator[SnapshotPart]:
        """The present state."""
        self._server.need_state()
        async for part in send_snapshot(self._server.state, after):
            yield part

    async def root_key(self, key_id: str) -> RootKey:
        """A root key that is here."""
        return await asyncio.to_thread(self._server.keyring.get, key_id)

    async def take_root_key(self, key: RootKey) -> None:
        """Keep a root key."""
        await asyncio.to_thread(self._server.keyring.add, key)

    async def drop_root_key(self, key_id: str) -> None:
        """Forget a root key that is not used."""
        if key_id not in self._server.state.root_keys:
            await asyncio.to_thread(self._server.keyring.remove, key_id)

    async def has_node(self, node_id: str) -> bool:
        """Whether a client is connected here."""
        return self._server.node_ports.has(node_id)

    async def take_work(self, *, timeout_s: float, scheduler: int = 0) -> tuple[Delivery, ...]:
        """Evaluations that this server has to spare while it leads."""
        if scheduler != SCHEDULER_VERSION:
            text = f"{OTHER_SCHEDULER}: the leader's is {SCHEDULER_VERSION}, the caller's {scheduler}"
            raise Conflict(text, reason=Reason.SCHEDULER_MISMATCH)
        return tuple(await self._work().take_spare(min(timeout_s, POLL_S)))

    async def finish_work(self, delivery: Delivery, *, is_done: bool) -> None:
        """The answer to a delivery."""
        work = self._work()
        await (work.ack(delivery) if is_done else work.nack(delivery))

    async def submit_plan(self, delivery: Delivery, plan: Plan, outcome: Outcome) -> PlanReply:
        """Check and store a plan."""
        return await self._work().submit(delivery, unpacked(plan), outcome)

    async def store_evaluations(self, delivery: Delivery, evaluations: tuple[Evaluation, ...]) -> None:
        """Store the end of an evaluation."""
        await self._work().store(delivery, evaluations)

    def _work(self) -> LeaderWork:
        term = self._server.term
        if term is None or not self._server.is_leader:
            raise no_leader()
        return term.work
