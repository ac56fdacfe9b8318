"""Service registrations."""

from __future__ import annotations

from yurt.server.views.rows import NamespacedRow
from yurt.structs.service import ServiceRegistration


class ServiceRows(NamespacedRow[str, ServiceRegistration]):
    """Registered instances of services; indexed by `name`, `job`, `alloc` and `node`."""

    __slots__ = ()
    name = "services"
