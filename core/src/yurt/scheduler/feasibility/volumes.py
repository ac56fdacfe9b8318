"""Volume claims: CSI volumes and `per_alloc` host volumes, which differ between a group's allocations.

They are checked for every placement, since claims change with placements, and never count for a node's class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Literal

import msgspec
import numpy as np

from yurt.scheduler.feasibility.masks import BoolArray, Check, check_mask, host_volumes_check
from yurt.state.claims import claims, csi_requests, refusal
from yurt.state.columns import IS_NODE
from yurt.state.csi_plugins import csi_plugin
from yurt.state.host_volumes import NewWriter, NodeVolume, claim_of, has_other_writer, host_requests
from yurt.state.host_volumes import refusal as refusal_of_host
from yurt.state.store import Snapshot
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.predicates import alloc_index, alloc_name
from yurt.structs.status import JOB_SYSBATCH, JOB_SYSTEM
from yurt.structs.volumes.csi import CSIVolume
from yurt.structs.volumes.host import HostVolume, TaskGroupHostVolumeClaim
from yurt.structs.volumes.host_access import EXCLUSIVE_MODES, excludes
from yurt.structs.volumes.request import VolumeRequest, source_of

HAS_WRITER: Final = 'host volume "{}" has its single writer'


class VolumeReason(msgspec.Struct, frozen=True):
    """The reason why a node cannot provide an allocation's volumes: `csi`, or `volume_claim` for a host volume; and a
    text. `is_passing`: it ends with another allocation."""

    kind: Literal["csi", "volume_claim"]
    text: str
    is_passing: bool = False


class VolumeClaims:
    """The claims of one group's volumes; updated with every placement of the plan.

    `writers` are the requests of the plan's placements to write to host volumes, by the row and the volume's name;
    `is_leaving` says whether the plan stops an allocation.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        job: Job,
        group: TaskGroup,
        *,
        writers: dict[tuple[int, str], list[VolumeRequest]],
        is_leaving: Callable[[str], bool],
    ) -> None:
        self._snapshot = snapshot
        self._job = job
        self._csi = csi_requests(group)
        self._group = group.name
        self._host = tuple(request for request in host_requests(group) if self._is_special(request))
        self._of_name: dict[str, list[tuple[int, HostVolume]]] = {}
        self._without_row: dict[str, BoolArray] = {}
        self._writers = writers
        self._is_leaving = is_leaving
        self._claims = claims(snapshot, job.namespace) if self._csi else {}
        self._without_controller: dict[str, bool] = {}
        """Whether each plugin requires a controller and has no healthy one."""
        self._on_node: dict[tuple[int, str], set[str]] = {}
        """The volumes in use by row and plugin."""
        for source, present_claims in self._claims.items():
            self._note(source, (snapshot.columns.rows.get(claim.node_id) for claim in present_claims))

    @property
    def is_used(self) -> bool:
        """Whether the group has such volumes."""
        return bool(self._csi or self._host)

    def _is_special(self, request: VolumeRequest) -> bool:
        is_stored = bool(self._snapshot.host_volumes.keys_where("name", request.source))
        return request.per_alloc or is_stored or bool(self._offering(request.source).any())

    def _offering(self, source: str) -> BoolArray:
        """The nodes that offer a dynamic host volume of this name, whether or not the state has a row for it."""
        check = Check(source, ("dynamic host volume", source), lambda node: _has_dynamic(node, source), False, True)
        return check_mask(self._snapshot, check)

    def _unrecorded(self, source: str) -> BoolArray:
        """The nodes that offer such a volume without a row, which would say who owns it and may write to it."""
        if source not in self._without_row:
            mask = self._offering(source).copy()
            mask[[row for row, volume in self._dynamic(source) if self._offers(volume)]] = False
            self._without_row[source] = mask
        return self._without_row[source]

    def missing(self, index: int) -> tuple[str, ...]:
        """The unregistered CSI volumes of an allocation."""
        sources = (source_of(request, index) for request in self._csi)
        return tuple(source for source in sources if self._volume(source) is None)

    def refused(self, index: int) -> dict[VolumeReason, BoolArray]:
        """The rows that cannot take the allocation with this index, by reason."""
        host: dict[str, BoolArray] = {}
        for request in self._host:
            source = source_of(request, index)
            if request.per_alloc:
                check = host_volumes_check(((source, request.read_only),))
                host[f'missing host volume "{source}"'] = ~check_mask(self._snapshot, check)
            self._refuse_dynamic(host, request, source, index)
        csi: dict[str, BoolArray] = {}
        for request in self._csi:
            csi.update(self._refused_csi(request, source_of(request, index)))
        passing = {HAS_WRITER.format(source_of(request, index)) for request in self._host}
        refusals = {
            VolumeReason("volume_claim", text, text in passing): mask for text, mask in host.items() if mask.any()
        }
        return refusals | {VolumeReason("csi", text): mask for text, mask in csi.items() if mask.any()}

    def count(self, row: int, index: int) -> None:
        """Count a placement of the allocation with this index on the row."""
        for request in self._csi:
            self._note(source_of(request, index), (row,))
        for request in self._host:
            if not request.read_only:
                self._writers.setdefault((row, source_of(request, index)), []).append(request)

    def other_writer(self, row: int, name: str) -> str:
        """The reason why another writer keeps the allocation of this name from a row; "" for none."""
        for request in self._host:
            source = source_of(request, alloc_index(name))
            volume = next((volume for at, volume in self._dynamic(source) if at == row), None)
            is_checked = volume is not None or request.per_alloc
            if is_checked and self._has_writer(row, volume, request, name):
                return HAS_WRITER.format(source)
        return ""

    def _has_writer(self, row: int, volume: HostVolume | None, request: VolumeRequest, name: str) -> bool:
        """Whether another writer excludes the request on a row; `volume`: its dynamic volume, None without one."""
        if request.read_only:
            return False
        source = source_of(request, alloc_index(name))
        if any(excludes(volume, request, other) for other in self._writers.get((row, source), ())):
            return True
        place = NodeVolume(self._snapshot.columns.nodes.ids[row], source, volume)
        return has_other_writer(self._snapshot, place, request, NewWriter(self._job.key, name, self._is_leaving))

    def _dynamic(self, source: str) -> list[tuple[int, HostVolume]]:
        """The nodes' dynamic host volumes of this name, with their rows."""
        if source not in self._of_name:
            rows = self._snapshot.columns.rows
            volumes = self._snapshot.host_volumes.where("name", source)
            self._of_name[source] = [
                (row, volume) for volume in volumes if (row := rows.get(volume.node_id)) is not None
            ]
        return self._of_name[source]

    def _refuse_dynamic(self, refusals: dict[str, BoolArray], request: VolumeRequest, source: str, index: int) -> None:
        offered = self._snapshot.columns.nodes.offered
        name = alloc_name(self._job.id, self._group, index)
        if self._unrecorded(source).any():
            refusals[f'host volume "{source}" has no record in the cluster'] = self._unrecorded(source)
        for row, volume in self._dynamic(source):
            reason = refusal_of_host(volume, request, self._job.namespace)
            if not reason and self._has_writer(row, volume, request, name):
                reason = HAS_WRITER.format(source)
            if reason:
                refusals.setdefault(reason, np.zeros(len(offered), np.bool_))[row] = True
        if request.per_alloc and request.access_mode in EXCLUSIVE_MODES:
            self._refuse_configured(refusals, request, source, name)
        claim = self._claim_of(request, index, source)
        if claim is not None:
            away = offered[:, IS_NODE] > 0
            away[[row for row, volume in self._dynamic(source) if volume.id == claim.volume_id]] = False
            refusals[f'sticky host volume "{source}" of {name} is on another node'] = away

    def _claim_of(self, request: VolumeRequest, index: int, source: str) -> TaskGroupHostVolumeClaim | None:
        """The claim that binds the allocation to one volume; None without one."""
        # A system job has an allocation of this index on every node, each with a volume of its own.
        if not request.sticky or self._job.type in (JOB_SYSTEM, JOB_SYSBATCH):
            return None
        return claim_of(self._snapshot, self._job, self._group, index=index, source=source)

    def _refuse_configured(
        self, refusals: dict[str, BoolArray], request: VolumeRequest, source: str, name: str
    ) -> None:
        """Refuse the nodes whose configuration has the volume, and on which another allocation writes to it."""
        check = host_volumes_check(((source, request.read_only),))
        mask = check_mask(self._snapshot, check) & ~self._offering(source)
        for row in np.flatnonzero(mask & (self._snapshot.columns.nodes.offered[:, IS_NODE] > 0)).tolist():
            if self._has_writer(row, None, request, name):
                of_reason = refusals.setdefault(HAS_WRITER.format(source), np.zeros(len(mask), np.bool_))
                of_reason[row] = True

    def _refused_csi(self, request: VolumeRequest, source: str) -> dict[str, BoolArray]:
        offered = self._snapshot.columns.nodes.offered
        volume = self._volume(source)
        reason = refusal(volume, request, source, present_claims=self._claims.get(source, []), job=self._job)
        if reason or volume is None:
            return {reason: offered[:, IS_NODE] > 0}
        plugin = volume.plugin_id
        if self._lacks_controller(plugin):
            text = f"CSI volume {source} is unschedulable: no controller of CSI plugin {plugin} is healthy"
            return {text: offered[:, IS_NODE] > 0}
        refusals = {
            f"CSI plugin {plugin} is missing": ~self._passing(plugin, "found", _has_plugin),
            f"CSI plugin {plugin} is unhealthy": ~self._passing(plugin, "healthy", _is_healthy),
        }
        full = np.zeros(len(offered), np.bool_)
        for (row, of), there in self._on_node.items():
            limit = _limit(self._node(row), plugin)
            full[row] |= of == plugin and 0 < limit <= len(there) and source not in there
        refusals[f"CSI plugin {plugin} has the maximum number of volumes"] = full
        if volume.topologies:
            outside = np.zeros(len(offered), np.bool_)
            for row in np.flatnonzero(offered[:, IS_NODE]).tolist():
                outside[row] = not _is_within(self._node(row), volume)
            refusals["did not meet topology requirement"] = outside
        return refusals

    def _lacks_controller(self, plugin: str) -> bool:
        """Whether the plugin requires a controller and none is healthy."""
        if plugin not in self._without_controller:
            row = csi_plugin(self._snapshot, plugin)
            self._without_controller[plugin] = (
                row is not None and row.controller_required and not row.controllers_healthy
            )
        return self._without_controller[plugin]

    def _passing(self, plugin: str, name: str, test: Callable[[Node, str], bool]) -> BoolArray:
        check = Check(plugin, ("csi plugin", name, plugin), lambda node: test(node, plugin), False, True)
        is_free: BoolArray = self._snapshot.columns.nodes.offered[:, IS_NODE] == 0
        return check_mask(self._snapshot, check) | is_free

    def _note(self, source: str, rows: Iterable[int | None]) -> None:
        volume = self._volume(source)
        for row in rows:
            if row is not None and volume is not None:
                self._on_node.setdefault((row, volume.plugin_id), set()).add(source)

    def _volume(self, source: str) -> CSIVolume | None:
        row: CSIVolume | None = self._snapshot.csi_volumes.get((self._job.namespace, source))
        return row

    def _offers(self, volume: HostVolume) -> bool:
        node = self._snapshot.nodes.get(volume.node_id)  # The row of a volume outlives its node.
        offered = None if node is None else node.host_volumes.get(volume.name)
        return offered is not None and offered.id == volume.id

    def _node(self, row: int) -> Node:
        return self._snapshot.nodes[self._snapshot.columns.nodes.ids[row]]


def _has_dynamic(node: Node, source: str) -> bool:
    offered = node.host_volumes.get(source)
    return offered is not None and bool(offered.id)


def _has_plugin(node: Node, plugin: str) -> bool:
    return plugin in node.csi_node_plugins


def _is_healthy(node: Node, plugin: str) -> bool:
    info = node.csi_node_plugins.get(plugin)
    return info is None or info.healthy


def _limit(node: Node, plugin: str) -> int:
    """The node's limit on volumes of the plugin; 0 for none."""
    info = node.csi_node_plugins.get(plugin)
    return info.node_info.max_volumes if info is not None and info.node_info is not None else 0


def _is_within(node: Node, volume: CSIVolume) -> bool:
    """Whether the node lies in one of the volume's topologies."""
    info = node.csi_node_plugins.get(volume.plugin_id)
    topology = info.node_info.accessible_topology if info is not None and info.node_info is not None else None
    segments = topology.segments if topology is not None else {}
    return any(dict(allowed.segments).items() <= dict(segments).items() for allowed in volume.topologies)
