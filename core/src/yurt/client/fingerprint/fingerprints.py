"""Begins all fingerprints of the node before its first registration."""

from __future__ import annotations

import asyncio

from yurt.client.devices.manager import DeviceManager
from yurt.client.drivers.driver_manager import DriverManager
from yurt.client.fingerprint.package_fingerprints import PackageFingerprints
from yurt.client.networks.offers import OfferedNetworks
from yurt.client.volumes.host_volumes import DynamicHostVolumes


class Fingerprints:
    """The parts that describe the node; each updates the node by itself after every change."""

    def __init__(
        self,
        *,
        drivers: DriverManager,
        devices: DeviceManager,
        offers: OfferedNetworks,
        host_volumes: DynamicHostVolumes,
        added: PackageFingerprints,
    ) -> None:
        self._drivers = drivers
        self._devices = devices
        self._offers = offers
        self._host_volumes = host_volumes
        self._added = added

    async def begin(self) -> None:
        """Begin all fingerprints; return when each has answered once, or after a bound."""
        self._drivers.begin()
        self._devices.begin()
        self._added.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._offers.open(), name="networks")
            await self._host_volumes.open()
            await self._drivers.wait_first()
            await self._devices.wait_first()
            await self._added.wait_first()
