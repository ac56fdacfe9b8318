"""Commands on service registrations."""

from __future__ import annotations

from yurt.structs.commands.base import Command
from yurt.structs.service import ServiceRegistration


class RegisterServices(Command, tag=True):
    """Service instances of live allocations; those of allocations that are gone or ended are left out.

    Rejected when one names a node, namespace, job or id that is not its allocation's.
    """

    services: tuple[ServiceRegistration, ...]


class DeregisterServices(Command, tag=True):
    """Forget service instances; unknown ids are nothing to forget."""

    ids: tuple[str, ...]


ServiceCommand = RegisterServices | DeregisterServices
