"""Starts all fingerprints of the node before its first registration.

Which cloud the machine is in is read from its firmware (`/sys/class/dmi/id`); an environment variable that names a
metadata address counts too. Clouds are asked in the background: the start waits for no answer of theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from yurt.client.devices.manager import DeviceManager
from yurt.client.drivers.driver_manager import DriverManager
from yurt.client.fingerprint.package_fingerprints import PackageFingerprints
from yurt.client.networks.offers import OfferedNetworks
from yurt.client.volumes.host_volumes import DynamicHostVolumes

FIRMWARE: Final = Path("/sys/class/dmi/id")
_SIGNS: Final = {
    "aws": (("sys_vendor", "amazon"), ("bios_vendor", "amazon"), ("bios_version", "amazon")),
    "azure": (("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77"),),
    "digitalocean": (("sys_vendor", "digitalocean"),),
    "gce": (("product_name", "google compute engine"),),
}
"""Firmware files, and the texts in them by which a cloud's machines are recognized."""
_VARIABLES: Final = {
    "aws": "AWS_ENV_URL", "azure": "AZURE_ENV_URL", "digitalocean": "DO_ENV_URL", "gce": "GCE_ENV_URL",
}  # fmt: skip
"""Environment variables that set another metadata address, which also selects the cloud."""


class Fingerprints:
    """The fingerprints of a node; each updates the node by itself after every change."""

    def __init__(
        self,
        *,
        drivers: DriverManager,
        devices: DeviceManager,
        offers: OfferedNetworks,
        host_volumes: DynamicHostVolumes,
        added: PackageFingerprints,
        clouds: PackageFingerprints,
    ) -> None:
        self._drivers = drivers
        self._devices = devices
        self._offers = offers
        self._host_volumes = host_volumes
        self._added = added
        self._clouds = clouds

    async def begin(self) -> None:
        """Start all fingerprints; return when each has answered once, or at a time limit."""
        self._drivers.begin()
        self._devices.begin()
        self._added.begin()
        self._clouds.begin()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._offers.open(), name="networks")
            await self._host_volumes.open()
            await self._drivers.wait_first()
            await self._devices.wait_first()
            await self._added.wait_first()


def clouds_of(environ: Mapping[str, str], firmware: Path = FIRMWARE) -> Mapping[str, str]:
    """The clouds to which the machine belongs, each with a configured metadata address or ""."""
    return {
        cloud: environ.get(_VARIABLES[cloud], "")
        for cloud, signs in _SIGNS.items()
        if environ.get(_VARIABLES[cloud]) or any(sign in _firmware_text(firmware / file) for file, sign in signs)
    }


def _firmware_text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").lower()
    except OSError:  # no firmware tables, or only root may read them
        return ""
