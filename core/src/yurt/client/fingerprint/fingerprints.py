"""All that is found out about this node before it registers for the first time, and followed from then on."""

from __future__ import annotations

import asyncio

from yurt.client.devices.manager import DeviceManager
from yurt.client.drivers.driver_manager import DriverManager
from yurt.client.networks.offers import Offers
from yurt.client.volumes.host_volumes import HostVolumes


class Fingerprints:
    """The parts that describe the node, each of which changes it by itself whenever it finds out something new."""

    def __init__(
        self, *, drivers: DriverManager, devices: DeviceManager, offers: Offers, host_volumes: HostVolumes
    ) -> None:
        self._drivers = drivers
        self._devices = devices
        self._offers = offers
        self._host_volumes = host_volumes

    async def begin(self) -> None:
        """Begin all of them; returns when the first registration can be complete, or after a bound."""
        self._drivers.begin()
        self._devices.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._offers.open(), name="networks")
            await self._host_volumes.open()
            await self._drivers.wait_first()
            await self._devices.wait_first()
