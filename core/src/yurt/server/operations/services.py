"""Changes to service registrations."""

from __future__ import annotations

from yurt.access import Access, Scope
from yurt.server.resources.services import Services


class ServiceOperations:
    """Operations on service registrations for one caller."""

    __slots__ = ("_access", "_services")

    def __init__(self, services: Services, access: Access) -> None:
        self._services = services
        self._access = access

    async def delete(self, namespace: str, name: str, service_id: str) -> int:
        """Delete a service instance in a namespace; raises NotFound, also for one of another namespace."""
        self._access.require(Scope(namespace=namespace))
        return await self._services.delete(namespace, name, service_id)
