"""Calls that only the leader serves, accepted by any server.

A call is carried out here while this server leads, and at the leader otherwise. While nobody leads, the leader cannot
be reached or says that it leads no more, the call waits for another one, for a bounded time: such calls bear being
made again. Calls from other servers are served here or refused, so that no call is forwarded in circles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from yurt.rpc.proxy import NoAnswer
from yurt.sdk.errors import Invalid, Unavailable
from yurt.server.clients.node_service import NodeService
from yurt.server.clients.registrations import NodeRegistrations
from yurt.server.failures import LeaderMoved, is_passing, no_leader
from yurt.server.keys.keys import Keys
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.peers import LeaderPort, Peers
from yurt.server.resources.resources import ServerResources
from yurt.structs.node import DrainSpec
from yurt.structs.queueing.gang import GangAnswer, GangQuery
from yurt.structs.rpc import (
    CallerRights,
    HeldIdentity,
    IdentityQuery,
    NodeEventsRequest,
    NodeReply,
    RegisterNodeRequest,
    ShownCredential,
    SignedIdentity,
    UpdateAllocsRequest,
)
from yurt.structs.service import ServiceRegistration
from yurt.structs.volumes.csi import CSIClaimed, CSIClaimQuery

T = TypeVar("T")

SWITCHED_OFF: Final = (
    "access control is on for this agent and off for its servers: set acl { enabled } alike on all agents"
)

LEADER_WAIT_S: Final = 5.0
"""The time in seconds for which a call waits for a leader."""
LOOK_S: Final = 0.1
"""The interval in seconds after which a leader that is not ready is tried again."""


class LocalCalls:
    """The calls served by this server, which refuses them unless it leads."""

    def __init__(
        self,
        leader: CurrentLeader,
        node_service: NodeService,
        registrations: NodeRegistrations,
        *,
        keys: Keys,
        resources: ServerResources,
    ) -> None:
        self._leader = leader
        self._node_service = node_service
        self._registrations = registrations
        self._identities = keys.identities
        self._caller_rights = keys.caller_rights
        self._services = resources.services
        self._csi_volumes = resources.csi_volumes
        self._gangs = resources.gangs

    def _lead(self) -> None:
        if not self._leader.is_local:
            raise no_leader()

    async def register_node(self, request: RegisterNodeRequest) -> NodeReply:
        """Register or re-register a node."""
        self._lead()
        return await self._registrations.register(request)

    async def heartbeat(self, node_id: str, status: str, identity: HeldIdentity | None = None) -> NodeReply:
        """Record a heartbeat of a node."""
        self._lead()
        return await self._registrations.heartbeat(node_id, status, identity)

    async def update_allocs(self, request: UpdateAllocsRequest) -> int:
        """Store a node's reports."""
        self._lead()
        return await self._node_service.update_allocs(request)

    async def register_services(self, node_id: str, services: tuple[ServiceRegistration, ...]) -> int:
        """Register services that run on a node."""
        self._lead()
        return await self._services.register(node_id, services)

    async def deregister_services(self, node_id: str, ids: tuple[str, ...]) -> int:
        """Deregister services that no longer run on a node."""
        self._lead()
        return await self._services.deregister(node_id, ids)

    async def drain_node(self, node_id: str, spec: DrainSpec | None) -> None:
        """Begin or end the drain of a node whose agent shuts down."""
        self._lead()
        await self._registrations.drain(node_id, spec)

    async def emit_events(self, request: NodeEventsRequest) -> None:
        """Add events to a node."""
        self._lead()
        await self._node_service.emit_events(request)

    async def claim_csi_volume(self, query: CSIClaimQuery) -> CSIClaimed:
        """Claim a CSI volume for an allocation."""
        self._lead()
        return self._csi_volumes.claim(query)

    async def follow_gang(self, query: GangQuery) -> GangAnswer:
        """Wait at the rendezvous of a gang for an allocation."""
        self._lead()
        return await self._gangs.get().follow(query)

    async def caller_rights(self, shown: ShownCredential) -> CallerRights:
        """The rights of a caller on a node's agent."""
        self._lead()
        if self._caller_rights is None:
            raise Invalid(SWITCHED_OFF)
        return await self._caller_rights.read(shown)

    async def sign_identity(self, query: IdentityQuery) -> SignedIdentity:
        """Sign the identity of a task."""
        self._lead()
        return await self._identities.sign(query)


class LeaderCalls:
    """Routes a call to the leader."""

    def __init__(self, leader: CurrentLeader, peers: Peers, here: LeaderPort) -> None:
        self._leader = leader
        self._peers = peers
        self._here = here

    @property
    def is_local(self) -> bool:
        """Whether this server leads and serves the calls itself."""
        return self._leader.is_local

    async def make(self, call: Callable[[LeaderPort], Awaitable[T]]) -> T:
        """Make a call at the leader; raises Unavailable ("No cluster leader") if there is none in time."""
        leader, loop = self._leader, asyncio.get_running_loop()
        end_s = loop.time() + LEADER_WAIT_S
        while True:
            seen = leader.report_count
            try:
                return await self._make_once(call)
            except Unavailable as error:
                if not is_passing(error):
                    raise
            remaining_s = end_s - loop.time()
            if remaining_s <= 0:
                raise no_leader()
            await leader.wait_change(seen, min(remaining_s, LOOK_S) if leader.name else remaining_s)

    async def _make_once(self, call: Callable[[LeaderPort], Awaitable[T]]) -> T:
        leader = self._leader
        if leader.is_local:
            return await call(self._here)
        name = leader.name
        if not name or name == leader.own_name:
            raise no_leader()
        try:
            async with leader.while_led_by(name):
                return await call(self._peers.leader(name))
        except LeaderMoved:
            raise NoAnswer(f"server {name} did not answer while it led") from None
