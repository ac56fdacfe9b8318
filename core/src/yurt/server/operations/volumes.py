"""Changes to volumes of both types. Each decides about the namespace of the volume."""

from __future__ import annotations

from yurt.access import Access, Scope
from yurt.server.resources.csi_volumes import CsiVolumes
from yurt.server.resources.host_volumes import HostVolumes
from yurt.structs.volumes.csi import CSIVolume
from yurt.structs.volumes.host import HostVolume


class HostVolumeOperations:
    """Operations on dynamic host volumes for one caller."""

    __slots__ = ("_access", "_volumes")

    def __init__(self, volumes: HostVolumes, access: Access) -> None:
        self._volumes = volumes
        self._access = access

    async def create(self, asked: HostVolume) -> tuple[HostVolume, int]:
        """Have a node make a volume, or change the one with that id; the volume and the index at which it is stored."""
        self._access.require(Scope(namespace=asked.namespace))
        return await self._volumes.create(asked)

    async def register(self, asked: HostVolume) -> tuple[HostVolume, int]:
        """Take over a folder that is on a node; the volume and the index at which it is stored."""
        self._access.require(Scope(namespace=asked.namespace))
        return await self._volumes.register(asked)

    async def delete(self, namespace: str, volume_id: str, *, force: bool) -> int:
        """Remove a volume of that namespace that nobody uses, with what is in it; the index."""
        self._access.require(Scope(namespace=namespace))
        return await self._volumes.delete(namespace, volume_id, force=force)

    async def delete_claim(self, namespace: str, claim_id: str) -> int:
        """Forget a sticky claim of that namespace; raises NotFound."""
        self._access.require(Scope(namespace=namespace))
        return await self._volumes.delete_claim(namespace, claim_id)


class CsiVolumeOperations:
    """Operations on CSI volumes for one caller."""

    __slots__ = ("_access", "_volumes")

    def __init__(self, volumes: CsiVolumes, access: Access) -> None:
        self._volumes = volumes
        self._access = access

    async def register(self, asked: tuple[CSIVolume, ...]) -> int:
        """Store volumes that exist in their plugins' storage, or change what is known of them; the index."""
        for volume in asked:
            self._access.require(Scope(namespace=volume.namespace))
        return await self._volumes.register(asked)

    async def deregister(self, namespace: str, volume_id: str, *, force: bool) -> int:
        """Forget a volume that nobody uses, by force any; what is in it stays in the plugin's storage."""
        self._access.require(Scope(namespace=namespace))
        return await self._volumes.deregister(namespace, volume_id, force=force)

    async def detach(self, namespace: str, volume_id: str, node_id: str) -> None:
        """Make sure that no allocation on a node has the volume any more; raises Conflict while one has."""
        self._access.require(Scope(namespace=namespace))
        self._volumes.detach(namespace, volume_id, node_id)
