"""Commands on service registrations."""

from __future__ import annotations

from yurt.structs.commands.base import Command, EventType
from yurt.structs.service import ServiceRegistration


class RegisterServices(Command, tag=True):
    """Register service instances; those of ended or deleted allocations are skipped.

    Rejected when one names a node, namespace, job or id that is not its allocation's.
    """

    event_type = EventType("ServiceRegistration")

    services: tuple[ServiceRegistration, ...]


class DeregisterServices(Command, tag=True):
    """Deregister service instances; those of nodes other than `node_id` are kept.

    With a `name`, at least one of them must be an instance of that service.
    """

    event_type = EventType("ServiceDeregistration", publishes_deletion=True)

    ids: tuple[str, ...]
    node_id: str = ""
    namespace: str = ""
    name: str = ""


ServiceCommand = RegisterServices | DeregisterServices
