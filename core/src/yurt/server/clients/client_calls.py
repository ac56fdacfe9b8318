"""The calls of clients, accepted by any server: `client.ports.ServerPort` by structure.

What may be answered from this server's state is answered here, and what only the leader decides is carried out there.
The client of this agent calls it directly, clients elsewhere through `remote_clients`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeAlias, TypeVar, cast

from yurt.runtime.metrics import Metrics
from yurt.sdk.errors import Unavailable
from yurt.server.clients.leader_calls import LeaderCalls
from yurt.server.clients.node_service import NODE_LOOKUP_LIMIT_S, NodeService
from yurt.server.keys.identities import Identities
from yurt.server.log.replica import Replica
from yurt.server.resources.disk_migration import DiskMigration
from yurt.server.resources.template_queries import TemplateQueries
from yurt.structs.node import DrainSpec
from yurt.structs.queueing.gang import GangAnswer, GangQuery
from yurt.structs.rpc import (
    AllocBatch,
    AllocPull,
    CallerRights,
    HeldIdentity,
    IdentityQuery,
    NodeEventsRequest,
    NodeReply,
    RegisterNodeRequest,
    ShownCredential,
    SignedIdentity,
    TemplateQuery,
    TemplateQueryAnswer,
    UpdateAllocsRequest,
)
from yurt.structs.service import ServiceRegistration
from yurt.structs.volumes.csi import CSIClaimed, CSIClaimQuery

P = ParamSpec("P")
R = TypeVar("R")
_Call: TypeAlias = Callable[Concatenate["ClientCalls", P], Coroutine[Any, Any, R]]


def timed(name: str) -> Callable[[_Call[P, R]], _Call[P, R]]:
    """Record the duration of a call, under the name of Nomad's metric."""

    def decorate(call: _Call[P, R]) -> _Call[P, R]:
        @wraps(call)
        async def recorded(self: ClientCalls, *args: P.args, **kwargs: P.kwargs) -> R:
            began = self.now()
            try:
                return await call(self, *args, **kwargs)
            finally:
                self.metrics.time(name, self.now() - began)

        return cast(_Call[P, R], recorded)

    return decorate


class ClientCalls:
    """This server's implementation of the clients' calls."""

    def __init__(
        self,
        replica: Replica,
        leader_calls: LeaderCalls,
        node_service: NodeService,
        *,
        identities: Identities,
        template_queries: TemplateQueries,
        disk_migration: DiskMigration,
    ) -> None:
        self.metrics = Metrics()
        self.now = replica.env.monotonic
        self._replica = replica
        self._leader_calls = leader_calls
        self._node_service = node_service
        self._identities = identities
        self._template_queries = template_queries
        self._disk_migration = disk_migration

    @timed("client.register")
    async def register_node(self, request: RegisterNodeRequest) -> NodeReply:
        """Register or re-register a node."""
        return await self._leader_calls.make(lambda leader: leader.register_node(request))

    @timed("client.update_status")
    async def heartbeat(self, node_id: str, status: str, identity: HeldIdentity | None = None) -> NodeReply:
        """Record a heartbeat of a node that reports `status`."""
        return await self._leader_calls.make(lambda leader: leader.heartbeat(node_id, status, identity))

    @timed("client.get_client_allocs")
    async def pull_allocs(self, node_id: str, *, min_index: int, timeout_s: float) -> AllocPull:
        """The node's allocations once they have changed after `min_index`."""
        return await self._node_service.pull_allocs(node_id, min_index=min_index, timeout_s=timeout_s)

    @timed("alloc.get_allocs")
    async def get_allocs(self, node_id: str, alloc_ids: tuple[str, ...]) -> AllocBatch:
        """Allocations of the node with their jobs."""
        return await self._node_service.get_allocs(node_id, alloc_ids)

    @timed("client.update_alloc")
    async def update_allocs(self, request: UpdateAllocsRequest) -> int:
        """Store a client's reports; returns their index."""
        return await self._leader_calls.make(lambda leader: leader.update_allocs(request))

    @timed("client.update_drain")
    async def drain_node(self, node_id: str, spec: DrainSpec | None) -> None:
        """Begin or end the drain of a node whose agent shuts down."""
        await self._leader_calls.make(lambda leader: leader.drain_node(node_id, spec))

    @timed("client.emit_events")
    async def emit_events(self, request: NodeEventsRequest) -> None:
        """Add events to a node."""
        await self._leader_calls.make(lambda leader: leader.emit_events(request))

    @timed("service_registration.upsert")
    async def register_services(self, node_id: str, services: tuple[ServiceRegistration, ...]) -> int:
        """Register services that run on the node; returns their index."""
        return await self._leader_calls.make(lambda leader: leader.register_services(node_id, services))

    @timed("service_registration.delete_by_id")
    async def deregister_services(self, node_id: str, ids: tuple[str, ...]) -> int:
        """Deregister services that no longer run on the node."""
        return await self._leader_calls.make(lambda leader: leader.deregister_services(node_id, ids))

    async def fetch_disk(self, node_id: str, alloc_id: str) -> AsyncGenerator[bytes]:
        """The disk data of an allocation's predecessor, from its node."""
        await self._wait_alloc(alloc_id)
        async with aclosing(self._disk_migration.fetch(node_id, alloc_id)) as pieces:
            async for piece in pieces:
                yield piece

    async def ask_for_template(self, query: TemplateQuery) -> TemplateQueryAnswer:
        """Answer a query of a task's template."""
        await self._wait_alloc(query.alloc_id)
        waiter, index = self._replica.waiter, query.min_index
        if not self._leader_calls.is_local and not await waiter.wait_index(index, timeout_s=query.timeout_s):
            raise Unavailable(f"this server is at index {self._replica.state.index} and has not reached {index} yet")
        return await self._template_queries.ask(query)

    @timed("volume.claim")
    async def claim_csi_volume(self, query: CSIClaimQuery) -> CSIClaimed:
        """Claim a CSI volume for an allocation of a node; served by the leader, which has all claims."""
        return await self._leader_calls.make(lambda leader: leader.claim_csi_volume(query))

    async def follow_gang(self, query: GangQuery) -> GangAnswer:
        """Wait at the rendezvous of a gang; served by the leader, where all members wait."""
        return await self._leader_calls.make(lambda leader: leader.follow_gang(query))

    async def caller_rights(self, node_id: str, shown: ShownCredential) -> CallerRights:
        """The rights of a caller on the node's agent; served by the leader, which has every revocation."""
        return await self._leader_calls.make(lambda leader: leader.caller_rights(shown))

    @timed("alloc.sign_identities")
    async def sign_identity(self, query: IdentityQuery) -> SignedIdentity:
        """Sign the identity of a task that runs on a node."""
        await self._wait_alloc(query.alloc_id)
        if self._identities.can_sign:
            return await self._identities.sign(query)
        return await self._leader_calls.make(lambda leader: leader.sign_identity(query))

    async def _wait_alloc(self, alloc_id: str) -> None:
        """Wait for an allocation, which may reach a follower slightly later than the client."""
        if not self._leader_calls.is_local and alloc_id not in self._replica.state.allocs:
            keys, limit_s = [("allocs", alloc_id)], NODE_LOOKUP_LIMIT_S
            await self._replica.wait_past(keys, lambda state: alloc_id in state.allocs, min_index=0, timeout_s=limit_s)
