"""The network namespaces of groups, made by a driver that is served."""

from __future__ import annotations

from collections.abc import Callable

from yurt.goplugin import convert
from yurt.goplugin.messages import Message, driver_message
from yurt.sdk.driver import Driver, NetworkDriver
from yurt.sdk.errors import DriverError


class NetworkService:
    """The methods of the driver service about networks; `driver` raises DriverError until it is configured."""

    def __init__(self, driver: Callable[[], Driver]) -> None:
        self._driver = driver

    def _network_driver(self) -> NetworkDriver:
        driver: object = self._driver()
        if not isinstance(driver, NetworkDriver):
            raise DriverError("this driver makes no networks; the host makes them")
        return driver

    async def create(self, request: Message) -> Message:
        """Make the namespace of a group."""
        path = await self._network_driver().create_network(request.alloc_id, hostname=request.hostname)
        spec = {"mode": convert.GROUP_NETWORK, "path": path}
        return driver_message("CreateNetworkResponse", isolation_spec=spec, created=True)

    async def destroy(self, request: Message) -> Message:
        """Remove the namespace of a group."""
        await self._network_driver().destroy_network(request.alloc_id)
        return driver_message("DestroyNetworkResponse")
