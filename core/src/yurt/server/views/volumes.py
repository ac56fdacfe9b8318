"""Volumes of both types, with data derived from their allocations and plugin nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from yurt.access import Access, Capability, Scope, needs
from yurt.server.views.rows import Listing, NamespacedRow
from yurt.state.claims import Claim, claims
from yurt.state.csi_plugins import csi_plugin, csi_plugins, plugin_allocs
from yurt.state.host_volumes import users
from yurt.state.store import Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.volumes.csi import CSIPlugin, CSIVolume
from yurt.structs.volumes.host import HostVolume, TaskGroupHostVolumeClaim

__all__ = ["Claim", "CsiVolumeRows", "HostVolumeClaimRows", "HostVolumeRows"]

LIST_HOST_VOLUMES: Final = needs.namespace(Capability.HOST_VOLUME_READ)
LIST_CSI_VOLUMES: Final = needs.namespace(
    Capability.CSI_LIST_VOLUME, Capability.CSI_READ_VOLUME, Capability.CSI_MOUNT_VOLUME, Capability.LIST_JOBS
)
READ_JOB: Final = needs.namespace(Capability.READ_JOB)


class HostVolumeRows(NamespacedRow[str, HostVolume]):
    """Dynamic host volumes; indexed by `node` and `name`."""

    __slots__ = ()
    name = "host_volumes"

    def listed(self, namespace: str) -> Listing[HostVolume]:
        """The rows of a namespace in the list of both types, whose need does not say which type it permits."""
        return HostVolumeRows(self._state, self._access.narrowed(LIST_HOST_VOLUMES)).of_namespace(namespace)

    def allocations(self, volume: HostVolume) -> list[Allocation]:
        """The allocations that use a volume, which share its namespace."""
        return list({alloc.id: alloc for alloc, _ in users(self._state, volume)}.values())


class HostVolumeClaimRows(NamespacedRow[str, TaskGroupHostVolumeClaim]):
    """Claims of sticky host volumes."""

    __slots__ = ()
    name = "host_volume_claims"


class CsiVolumeRows(NamespacedRow[tuple[str, str], CSIVolume]):
    """CSI volumes by namespace and id, with derived claims and plugins."""

    __slots__ = ("_claims",)
    name = "csi_volumes"

    def __init__(self, state: Snapshot, access: Access) -> None:
        super().__init__(state, access)
        self._claims: dict[str, dict[str, list[Claim]]] = {}

    def listed(self, namespace: str) -> Listing[CSIVolume]:
        """The rows of a namespace in the list of both types, whose need does not say which type it permits."""
        return CsiVolumeRows(self._state, self._access.narrowed(LIST_CSI_VOLUMES)).of_namespace(namespace)

    def claims(self, volume: CSIVolume) -> list[Claim]:
        """The claims of a volume; computed once per namespace."""
        namespace = volume.namespace
        if namespace not in self._claims:
            self._claims[namespace] = claims(self._state, namespace)
        return self._claims[namespace].get(volume.id, [])

    def allocations(self, volume_claims: Sequence[Claim]) -> list[Allocation]:
        """The allocations of claims, each once, which share the volume's namespace."""
        return [self._state.allocs[alloc_id] for alloc_id in dict.fromkeys(claim.alloc_id for claim in volume_claims)]

    def plugins(self) -> Mapping[str, CSIPlugin]:
        """All plugins by id; they have no namespace."""
        return csi_plugins(self._state)

    def plugin(self, plugin_id: str) -> CSIPlugin | None:
        """A plugin that a node or a job refers to."""
        return csi_plugin(self._state, plugin_id)

    def plugin_allocations(self, plugin_id: str) -> list[Allocation]:
        """The allocations that run a plugin, in the namespaces whose jobs the caller may read."""
        access = self._access.narrowed(READ_JOB)
        return [
            alloc for alloc in plugin_allocs(self._state, plugin_id) if access.allows(Scope(namespace=alloc.namespace))
        ]
