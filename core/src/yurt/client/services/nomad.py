"""The service provider `nomad`, which keeps services in the servers' state."""

from __future__ import annotations

from collections.abc import Callable

from yurt.client.ports import ServerPort
from yurt.sdk.services import NOMAD, ServiceInstance
from yurt.structs.node import Node
from yurt.structs.service import ServiceRegistration


class NomadServices:
    """Yurt's own provider."""

    name = NOMAD

    def __init__(self, server: ServerPort, node: Callable[[], Node]) -> None:
        self._server = server
        self._node = node

    async def register(self, services: tuple[ServiceInstance, ...]) -> None:
        """Write them into the state."""
        await self._server.register_services(self._node().id, tuple(map(_row, services)))

    async def deregister(self, ids: tuple[str, ...]) -> None:
        """Remove them from the state."""
        await self._server.deregister_services(self._node().id, ids)

    async def close(self) -> None:
        """No effect: there is nothing to close."""


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
