"""Registrations, heartbeats and shutdown drains at the leader: one agent and one identity per node."""

from __future__ import annotations

from yurt.server.clients.agent_processes import AgentProcesses
from yurt.server.clients.node_identities import NodeIdentities
from yurt.server.clients.node_service import NodeService
from yurt.server.resources.nodes import Nodes
from yurt.structs.node import DrainSpec
from yurt.structs.rpc import HeldIdentity, NodeReply, RegisterNodeRequest


class NodeRegistrations:
    """Serves registrations and heartbeats of the nodes' own agents."""

    def __init__(
        self,
        node_service: NodeService,
        node_identities: NodeIdentities,
        agent_processes: AgentProcesses,
        *,
        nodes: Nodes,
    ) -> None:
        self._node_service = node_service
        self._nodes = nodes
        self._node_identities = node_identities
        self._agent_processes = agent_processes

    async def register(self, request: RegisterNodeRequest) -> NodeReply:
        """Register or re-register a node; raises PermissionDenied while another agent runs as the node."""
        await self._agent_processes.registers(request.node.id, request.identity)
        reply = await self._node_service.register_node(request)
        return await self._node_identities.with_identity(reply, request.node.id, request.identity)

    async def heartbeat(self, node_id: str, status: str, identity: HeldIdentity | None) -> NodeReply:
        """Record a heartbeat; raises PermissionDenied when another agent has replaced this one."""
        await self._agent_processes.beats(node_id, identity)
        known_loss = None if identity is None else identity.known_loss
        reply = await self._node_service.heartbeat(node_id, status, known_loss=known_loss)
        return await self._node_identities.with_identity(reply, node_id, identity)

    async def drain(self, node_id: str, spec: DrainSpec | None) -> None:
        """Begin the drain of a node whose agent shuts down, or without a spec end it."""
        if spec is None:
            await self._nodes.end_shutdown_drain(node_id)
        else:
            await self._nodes.begin_shutdown_drain(node_id, spec)
