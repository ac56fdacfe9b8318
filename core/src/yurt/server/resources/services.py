"""Service registrations: clients' reports on their allocations, and deletions by operators."""

from __future__ import annotations

from yurt.sdk.errors import Invalid, NotFound
from yurt.server.log.replica import Replica
from yurt.structs.commands import DeregisterServices, RegisterServices
from yurt.structs.service import ServiceRegistration

SERVICES_MAX = 1_000
"""Registrations in one call."""


class Services:
    """Operations on service registrations."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    async def register(self, node_id: str, services: tuple[ServiceRegistration, ...]) -> int:
        """Register services that run on a node; returns the index."""
        if node_id not in self._replica.state.nodes:
            raise NotFound("node not found")
        if len(services) > SERVICES_MAX:
            raise Invalid(f"at most {SERVICES_MAX} services may be registered at once, not {len(services)}")
        strange = next((service for service in services if service.node_id != node_id), None)
        if strange is not None:
            raise Invalid(f'service "{strange.id}" does not belong to node {node_id}')
        return (await self._replica.propose(RegisterServices(services=services))).index

    async def deregister(self, node_id: str, ids: tuple[str, ...]) -> int:
        """Deregister services that no longer run on a node; ids of other nodes are ignored."""
        return (await self._replica.propose(DeregisterServices(ids=ids, node_id=node_id))).index

    async def delete(self, namespace: str, name: str, service_id: str) -> int:
        """Delete a service instance; raises NotFound."""
        command = DeregisterServices(ids=(service_id,), namespace=namespace, name=name)
        return (await self._replica.propose(command)).index
