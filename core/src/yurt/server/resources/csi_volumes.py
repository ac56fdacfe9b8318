"""CSI volumes: registration, claims and deregistration."""

from __future__ import annotations

import re
from collections.abc import Iterator

from yurt.rules.problems import near_hint
from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied, Reason, Unavailable
from yurt.server.log.replica import Replica
from yurt.state.claims import Claim, claims_of_volume, conflict_of
from yurt.state.csi_plugins import csi_plugin
from yurt.state.store import Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.commands import DeleteVolumes, UpsertVolumes
from yurt.structs.predicates import CSI, alloc_index, is_client_terminal
from yurt.structs.volumes.csi import ACCESS_MODES, ATTACHMENT_MODES, CSIClaimed, CSIClaimQuery, CSIVolume
from yurt.structs.volumes.request import source_of

ID = re.compile(r"[^\s\x00-\x1f\x7f/]{1,128}")
VOLUMES_MAX = 100
"""Volumes of one request."""
ENTRIES_MAX = 256


class CsiVolumes:
    """Operations on CSI volumes."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    async def register(self, volumes: tuple[CSIVolume, ...]) -> int:
        """Register or change volumes that exist at their storage providers; returns the index."""
        if not volumes:
            raise Invalid("missing volume definition")
        if len(volumes) > VOLUMES_MAX:
            raise Invalid(f"at most {VOLUMES_MAX} volumes may be registered at once")
        for volume in volumes:
            check(volume)
        command = UpsertVolumes(volumes=volumes, now=self._replica.env.now(), needs_plugins=True)
        return (await self._replica.propose(command)).index

    async def deregister(self, namespace: str, volume_id: str, *, force: bool = False) -> int:
        """Deregister an unused volume, or by force any; its data stays at the storage provider."""
        return (await self._replica.propose(DeleteVolumes(keys=((namespace, volume_id),), is_forced=force))).index

    def detach(self, namespace: str, volume_id: str, node_id: str) -> int:
        """The index at which no allocation on a node uses the volume; raises Conflict while one does.

        An allocation has its volumes until it has ended and they are unmounted, so there is nothing else to undo.
        """
        state = self._replica.state
        self.find(state, namespace, volume_id)
        if node_id not in state.nodes:
            raise NotFound(f"Unknown node {node_id[:36]}", reason=Reason.UNKNOWN_NODE)
        users = [each.alloc_id for each in claims_of_volume(state, namespace, volume_id) if each.node_id == node_id]
        if users:
            raise Conflict(f"volume in use: {volume_id}, on node {node_id} by allocations {', '.join(sorted(users))}")
        return state.index

    def claim(self, query: CSIClaimQuery) -> CSIClaimed:
        """Claim a volume for an allocation on its node; returns what the plugin needs.

        Raises Unavailable while earlier allocations that are not over leave no room for it.
        """
        state = self._replica.state
        alloc = state.allocs.get(query.alloc_id)
        if alloc is None or alloc.job is None:
            raise NotFound(f"allocation {query.alloc_id[:36]} not found")
        if alloc.node_id != query.node_id or is_client_terminal(alloc):
            raise PermissionDenied(f"allocation {alloc.id} does not run on node {query.node_id[:36]}")
        group = alloc.job.group(alloc.task_group)
        request = group.volumes.get(query.volume) if group is not None else None
        if request is None or request.type != CSI:
            raise NotFound(f"allocation {alloc.id} asks for no CSI volume {query.volume[:128]!r}")
        source = source_of(request, alloc_index(alloc.name))
        volume = self.find(state, alloc.namespace, source)
        if _is_attached(state, volume.plugin_id):
            raise Invalid(
                f"CSI plugin {volume.plugin_id} attaches volumes to nodes by its controller, "
                "which is not available in this version"
            )
        earlier = [
            other for other in claims_of_volume(state, alloc.namespace, source) if _is_before(state, other, alloc)
        ]
        reason = conflict_of(request, source, earlier)
        if reason:
            holders = ", ".join(sorted(other.alloc_id[:8] for other in earlier))
            raise Unavailable(f"{reason}; it is waited for until allocations {holders} have let go")
        return CSIClaimed(
            id=volume.id,
            namespace=volume.namespace,
            external_id=volume.external_id,
            plugin_id=volume.plugin_id,
            access_mode=request.access_mode,
            attachment_mode=request.attachment_mode,
            read_only=request.read_only,
            mount_options=request.mount_options or volume.mount_options,
            secrets=volume.secrets,
            context=volume.context,
        )

    @staticmethod
    def find(state: Snapshot, namespace: str, volume_id: str) -> CSIVolume:
        """A volume by its id; raises NotFound."""
        volume: CSIVolume | None = state.csi_volumes.get((namespace, volume_id))
        if volume is None:
            raise NotFound(f"volume not found: {volume_id}")
        return volume


def _is_attached(state: Snapshot, plugin_id: str) -> bool:
    """Whether the plugin must attach its volumes to a node before they are mounted."""
    plugin = csi_plugin(state, plugin_id)
    infos = plugin.controllers.values() if plugin is not None else ()
    return any(info.controller_info is not None and info.controller_info.supports_attach_detach for info in infos)


def _is_before(state: Snapshot, claim: Claim, alloc: Allocation) -> bool:
    """Whether another allocation's claim is older: of two, the older never waits for the younger."""
    other = state.allocs[claim.alloc_id]
    return (other.create_index, other.id) < (alloc.create_index, alloc.id)


def check(volume: CSIVolume) -> None:
    """Raises Invalid for an invalid volume."""
    problems = tuple(_problems(volume))
    if problems:
        raise Invalid("; ".join(problems))


def _problems(volume: CSIVolume) -> Iterator[str]:
    if not ID.fullmatch(volume.id):
        yield f'id "{volume.id[:64]}" must be of 1 to 128 characters, without spaces and slashes'
    if not volume.external_id:
        yield "missing external_id: the name of the volume in its plugin's storage"
    if not volume.plugin_id:
        yield "missing plugin_id"
    least, most = volume.requested_capacity_min, volume.requested_capacity_max
    if least < 0 or most < 0 or 0 < most < least:
        yield f"capacity_max ({most}) must be larger than capacity_min ({least})"
    if not volume.requested_capabilities:
        yield "must include at least one capability block"
    for capability in volume.requested_capabilities:
        if capability.access_mode not in ACCESS_MODES:
            word, hint = capability.access_mode[:64], near_hint(capability.access_mode, ACCESS_MODES)
            yield f'access_mode "{word}" must be one of {", ".join(ACCESS_MODES)}{hint}'
        if capability.attachment_mode not in ATTACHMENT_MODES:
            word, hint = capability.attachment_mode[:64], near_hint(capability.attachment_mode, ATTACHMENT_MODES)
            yield f'attachment_mode "{word}" must be one of {", ".join(ATTACHMENT_MODES)}{hint}'
    if max(len(volume.parameters), len(volume.context), len(volume.secrets)) > ENTRIES_MAX:
        yield f"at most {ENTRIES_MAX} parameters, secrets or context entries may be given"
