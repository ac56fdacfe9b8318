"""Volumes that differ from one allocation to the next, or that others claim: CSI volumes, and host volumes `per_alloc`.

They are looked at for every placement, for claims change with placements, and never counted to a node's class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from yurt.scheduler.feasible import BoolArray, Check, check_mask, host_volumes_check
from yurt.state.claims import claims, csi_requests, refusal, source_of
from yurt.state.columns import IS_NODE
from yurt.state.store import Snapshot
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import Node
from yurt.structs.volume import RegisteredVolume, VolumeRequest


class Volumes:
    """What the volumes of one group permit; told of every placement of the plan."""

    def __init__(self, snapshot: Snapshot, job: Job, group: TaskGroup) -> None:
        self._snapshot = snapshot
        self._job = job
        self._csi = csi_requests(group)
        self._host = tuple(v for _, v in sorted(group.volumes.items()) if v.type == "host" and v.per_alloc)
        self._claims = claims(snapshot, job.namespace) if self._csi else {}
        self._on_node: dict[tuple[int, str], set[str]] = {}
        """By row and plugin the volumes that are there."""
        for source, known in self._claims.items():
            self._note(source, (snapshot.columns.rows.get(claim.node_id) for claim in known))

    @property
    def is_used(self) -> bool:
        """Whether the group has such volumes."""
        return bool(self._csi or self._host)

    def missing(self, index: int) -> tuple[str, ...]:
        """The CSI volumes of an allocation that nobody has registered."""
        sources = (source_of(request, index) for request in self._csi)
        return tuple(source for source in sources if self._volume(source) is None)

    def refused(self, index: int) -> dict[str, BoolArray]:
        """The rows that cannot take the allocation with that index, by reason."""
        found: dict[str, BoolArray] = {}
        for request in self._host:
            source = source_of(request, index)
            check = host_volumes_check(((source, request.read_only),))
            found[f'missing host volume "{source}"'] = ~check_mask(self._snapshot, check)
        for request in self._csi:
            found.update(self._refused_csi(request, source_of(request, index)))
        return {text: mask for text, mask in found.items() if mask.any()}

    def count(self, row: int, index: int) -> None:
        """The allocation with that index goes to the row."""
        for request in self._csi:
            self._note(source_of(request, index), (row,))

    def _refused_csi(self, request: VolumeRequest, source: str) -> dict[str, BoolArray]:
        offered = self._snapshot.columns.nodes.offered
        volume = self._volume(source)
        reason = refusal(volume, request, source, known=self._claims.get(source, []), job=self._job)
        if reason or volume is None:
            return {reason: offered[:, IS_NODE] > 0}
        plugin = volume.plugin_id
        found = {
            f"CSI plugin {plugin} is missing": ~self._passing(plugin, "found", _has_plugin),
            f"CSI plugin {plugin} is unhealthy": ~self._passing(plugin, "healthy", _is_healthy),
        }
        full = np.zeros(len(offered), np.bool_)
        for (row, of), there in self._on_node.items():
            limit = _limit(self._node(row), plugin)
            full[row] |= of == plugin and 0 < limit <= len(there) and source not in there
        found[f"CSI plugin {plugin} has the maximum number of volumes"] = full
        if volume.topologies:
            outside = np.zeros(len(offered), np.bool_)
            for row in np.flatnonzero(offered[:, IS_NODE]).tolist():
                outside[row] = not _is_within(self._node(row), volume)
            found["did not meet topology requirement"] = outside
        return found

    def _passing(self, plugin: str, name: str, test: Callable[[Node, str], bool]) -> BoolArray:
        check = Check(plugin, ("csi plugin", name, plugin), lambda node: test(node, plugin), False, True)
        is_free: BoolArray = self._snapshot.columns.nodes.offered[:, IS_NODE] == 0
        return check_mask(self._snapshot, check) | is_free

    def _note(self, source: str, rows: Iterable[int | None]) -> None:
        volume = self._volume(source)
        for row in rows:
            if row is not None and volume is not None:
                self._on_node.setdefault((row, volume.plugin_id), set()).add(source)

    def _volume(self, source: str) -> RegisteredVolume | None:
        found: RegisteredVolume | None = self._snapshot.table("csi_volumes").get((self._job.namespace, source))
        return found

    def _node(self, row: int) -> Node:
        return self._snapshot.nodes[self._snapshot.columns.nodes.ids[row]]


def _has_plugin(node: Node, plugin: str) -> bool:
    return plugin in node.csi_node_plugins


def _is_healthy(node: Node, plugin: str) -> bool:
    found = node.csi_node_plugins.get(plugin)
    return found is None or found.healthy


def _limit(node: Node, plugin: str) -> int:
    """How many volumes of the plugin the node takes; 0 for any number."""
    found = node.csi_node_plugins.get(plugin)
    return found.node_info.max_volumes if found is not None and found.node_info is not None else 0


def _is_within(node: Node, volume: RegisteredVolume) -> bool:
    """Whether the node lies in one of the volume's topologies."""
    found = node.csi_node_plugins.get(volume.plugin_id)
    topology = found.node_info.accessible_topology if found is not None and found.node_info is not None else None
    segments = topology.segments if topology is not None else {}
    return any(wanted.items() <= dict(segments).items() for wanted in map(dict, volume.topologies))
