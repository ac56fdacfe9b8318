"""Calls that only the leader carries out, made at any server.

A call is carried out here while this server leads, and at the leader otherwise. While nobody leads, the leader cannot
be reached or says that it leads no more, the call waits for another one, for a bounded time: such calls bear being
made again. What is offered to other servers is carried out here or not at all, so no call goes round in circles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from yurt.rpc.proxy import NoAnswer
from yurt.sdk.errors import Unavailable
from yurt.server.clients.agent_processes import AgentProcesses
from yurt.server.failures import LeaderMoved, is_passing, no_leader
from yurt.server.peers import LeaderPort
from yurt.server.resources.csi_volumes import CsiVolumes
from yurt.structs.rpc import (
    HeldIdentity,
    IdentityQuery,
    NodeEventsRequest,
    NodeReply,
    RegisterNodeRequest,
    SignedIdentity,
    UpdateAllocsRequest,
)
from yurt.structs.service import ServiceRegistration
from yurt.structs.volumes.csi import CSIClaimed, CSIClaimQuery

if TYPE_CHECKING:
    from yurt.server.server import Server

T = TypeVar("T")

LEADER_WAIT_S: Final = 5.0
"""How long a call waits for a leader."""
LOOK_S: Final = 0.1
"""A leader that was found but does not lead yet is asked again after this."""


class LocalCalls:
    """The calls carried out by this server, which leads or refuses."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._processes = AgentProcesses(server)

    def _lead(self) -> Server:
        if not self._server.is_leader:
            raise no_leader()
        return self._server

    async def register_node(self, request: RegisterNodeRequest) -> NodeReply:
        """Register or re-register a node."""
        server = self._lead()
        await self._processes.registers(request.node.id, request.identity)
        reply = await server.node_service.register_node(request)
        return await server.node_identities.handed(reply, request.node.id, request.identity)

    async def heartbeat(self, node_id: str, status: str, identity: HeldIdentity | None = None) -> NodeReply:
        """A node lives."""
        server = self._lead()
        await self._processes.beats(node_id, identity)
        reply = await server.node_service.heartbeat(node_id, status)
        return await server.node_identities.handed(reply, node_id, identity)

    async def update_allocs(self, request: UpdateAllocsRequest) -> int:
        """A node's reports."""
        return await self._lead().node_service.update_allocs(request)

    async def register_services(self, node_id: str, services: tuple[ServiceRegistration, ...]) -> int:
        """Services that run on a node."""
        return await self._lead().services.register(node_id, services)

    async def deregister_services(self, node_id: str, ids: tuple[str, ...]) -> int:
        """Services that no longer run on a node."""
        return await self._lead().services.deregister(node_id, ids)

    async def emit_events(self, request: NodeEventsRequest) -> None:
        """Events of a node."""
        await self._lead().node_service.emit_events(request)

    async def claim_csi_volume(self, query: CSIClaimQuery) -> CSIClaimed:
        """A CSI volume for an allocation."""
        return CsiVolumes(self._lead()).claim(query)

    async def sign_identity(self, query: IdentityQuery) -> SignedIdentity:
        """The token of a task."""
        return await self._lead().identities.sign(query)


class LeaderCalls:
    """Finds the leader for a call."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.here = LocalCalls(server)

    async def make(self, call: Callable[[LeaderPort], Awaitable[T]]) -> T:
        """Carry a call out at the leader; raises Unavailable ("No cluster leader") when there is none in time."""
        roles, loop = self._server.roles, asyncio.get_running_loop()
        end_s = loop.time() + LEADER_WAIT_S
        while True:
            seen = roles.news
            try:
                return await self._make_once(call)
            except Unavailable as error:
                if not is_passing(error):
                    raise
            left_s = end_s - loop.time()
            if left_s <= 0:
                raise no_leader()
            await roles.wait_news(seen, min(left_s, LOOK_S) if roles.leader_name else left_s)

    async def _make_once(self, call: Callable[[LeaderPort], Awaitable[T]]) -> T:
        server = self._server
        if server.is_leader:
            return await call(self.here)
        name = server.leader_name
        if not name or name == server.config.name:
            raise no_leader()
        try:
            async with server.roles.while_led_by(name):
                return await call(server.peers.leader(name))
        except LeaderMoved:
            raise NoAnswer(f"server {name} did not answer while it led") from None
