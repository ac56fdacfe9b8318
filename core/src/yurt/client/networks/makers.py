"""Finds and calls drivers that make the namespaces of their groups themselves (`must_create_network`)."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.driver import Driver, NetworkDriver
from yurt.sdk.errors import DriverError, RecoverableError, YurtError
from yurt.structs.job import TaskGroup
from yurt.structs.network import NetworkResource


class NamespaceMakers:
    """Finds the driver that must make a namespace, and calls it."""

    def __init__(self, drivers: Mapping[str, Driver]) -> None:
        self._drivers = drivers

    def name_for(self, group: TaskGroup) -> str:
        """The driver that must make the group's namespace, or ""; raises DriverError."""
        named = {task.driver for task in group.tasks}
        makers = sorted(
            name for name in named if name in self._drivers and self._drivers[name].capabilities.must_create_network
        )
        if len(makers) > 1:
            raise DriverError(
                f"tasks of {' and '.join(makers)} cannot share a network: each of these drivers joins only what it made"
            )
        if makers and self.get(makers[0]) is None:
            raise DriverError(f'driver "{makers[0]}" has to make the network of its group, and this version cannot')
        return makers[0] if makers else ""

    def get(self, name: str) -> NetworkDriver | None:
        """The driver of that name; None unless it makes networks."""
        found: object = self._drivers.get(name)
        return found if name and isinstance(found, NetworkDriver) else None

    async def destroy(self, name: str, alloc_id: str) -> str:
        """Have the driver remove the namespace that it made; returns the reason of a failure, or ""."""
        maker = self.get(name)
        if maker is None:
            return f"driver {name}, which made the network of allocation {alloc_id}, is gone"
        try:
            await maker.destroy_network(alloc_id)
        except YurtError as error:
            return f"driver {name} keeps the network of allocation {alloc_id}: {error}"
        return ""


async def namespace_of(maker: NetworkDriver, alloc_id: str, network: NetworkResource) -> str:
    """The namespace of an allocation, which the driver creates when it is missing."""
    try:
        return await maker.create_network(alloc_id, hostname=network.hostname)
    except DriverError:
        raise
    except YurtError as error:
        raise RecoverableError(str(error)) from None
