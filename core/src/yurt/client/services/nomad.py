"""The service provider `nomad`, which registers services in the servers' state."""

from __future__ import annotations

from collections.abc import Callable

from yurt.client.ports import ServerPort
from yurt.sdk.services import NOMAD, ServiceInstance
from yurt.structs.node import Node
from yurt.structs.service import ServiceRegistration


class NomadServices:
    """Registers services in the servers' state."""

    name = NOMAD

    def __init__(self, server: ServerPort, node: Callable[[], Node]) -> None:
        self._server = server
        self._node = node

    async def register(self, services: tuple[ServiceInstance, ...]) -> None:
        """Add or replace services in the servers' state."""
        await self._server.register_services(self._node().id, tuple(map(_row, services)))

    async def deregister(self, ids: tuple[str, ...]) -> None:
        """Remove services from the servers' state."""
        await self._server.deregister_services(self._node().id, ids)

    async def close(self) -> None:
        """Does nothing: the provider has no resources."""


def _row(service: ServiceInstance) -> ServiceRegistration:
    return ServiceRegistration(
        id=service.id,
        service_name=service.name,
        namespace=service.namespace,
        node_id=service.node_id,
        datacenter=service.datacenter,
        job_id=service.job_id,
        alloc_id=service.alloc_id,
        tags=service.tags,
        address=service.address,
        port=service.port,
    )
