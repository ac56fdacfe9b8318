"""Changes to volumes of both types, each checked against the volume's namespace."""

from __future__ import annotations

from yurt.access import Access, Scope
from yurt.server.operations.job_rights import require_override
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

    async def create(self, requested: HostVolume, *, overrides_policies: bool = False) -> tuple[HostVolume, int]:
        """Create a volume on a node, or change the one with this id; returns the volume and its index."""
        self._access.require(Scope(namespace=requested.namespace))
        require_override(self._access, requested.namespace, is_requested=overrides_policies)
        return await self._volumes.create(requested, reads_nodes=self._access.reads_nodes)

    async def register(self, requested: HostVolume, *, overrides_policies: bool = False) -> tuple[HostVolume, int]:
        """Register an existing folder of a node; returns the volume and its index."""
        self._access.require(Scope(namespace=requested.namespace))
        require_override(self._access, requested.namespace, is_requested=overrides_policies)
        return await self._volumes.register(requested, reads_nodes=self._access.reads_nodes)

    async def delete(self, namespace: str, volume_id: str, *, force: bool) -> int:
        """Delete an unused volume of the namespace with its data; returns the index."""
        self._access.require(Scope(namespace=namespace))
        return await self._volumes.delete(namespace, volume_id, force=force)

    async def delete_claim(self, namespace: str, claim_id: str) -> int:
        """Delete a sticky claim of the namespace; raises NotFound."""
        self._access.require(Scope(namespace=namespace))
        return await self._volumes.delete_claim(namespace, claim_id)


class CsiVolumeOperations:
    """Operations on CSI volumes for one caller."""

    __slots__ = ("_access", "_volumes")

    def __init__(self, volumes: CsiVolumes, access: Access) -> None:
        self._volumes = volumes
        self._access = access

    async def register(self, volumes: tuple[CSIVolume, ...], *, overrides_policies: bool = False) -> int:
        """Register or change volumes that exist at their storage providers; returns the index."""
        for volume in volumes:
            self._access.require(Scope(namespace=volume.namespace))
            require_override(self._access, volume.namespace, is_requested=overrides_policies)
        return await self._volumes.register(volumes)

    async def deregister(self, namespace: str, volume_id: str, *, force: bool) -> int:
        """Deregister an unused volume, or by force any; its data stays at the storage provider."""
        self._access.require(Scope(namespace=namespace))
        return await self._volumes.deregister(namespace, volume_id, force=force)

    async def detach(self, namespace: str, volume_id: str, node_id: str) -> int:
        """The index at which no allocation on a node uses the volume; raises Conflict while one does."""
        self._access.require(Scope(namespace=namespace))
        return self._volumes.detach(namespace, volume_id, node_id)
