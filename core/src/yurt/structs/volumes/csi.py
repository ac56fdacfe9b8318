"""Volumes of CSI plugins: storage that a plugin creates and attaches, registered under an id that jobs request."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.sdk.value import Value, no_entries, replace
from yurt.structs.node import CSIInfo, CSITopology
from yurt.structs.volumes.request import CSIMountOptions

READERS_ONLY = frozenset({"single-node-reader-only", "multi-node-reader-only"})
MULTI_WRITER = "multi-node-multi-writer"
SINGLE_NODE = frozenset({"single-node-reader-only", "single-node-writer"})
ACCESS_MODES = (
    "single-node-reader-only",
    "single-node-writer",
    "multi-node-reader-only",
    "multi-node-single-writer",
    MULTI_WRITER,
)
FILE_SYSTEM, BLOCK_DEVICE = "file-system", "block-device"
ATTACHMENT_MODES = (FILE_SYSTEM, BLOCK_DEVICE)
NODE, CONTROLLER, MONOLITH = "node", "controller", "monolith"
"""The kind of a plugin's task: `monolith` is both others."""


class CSIVolumeCapability(Value):
    """One allowed combination of access and attachment mode."""

    access_mode: str = ""
    attachment_mode: str = ""


class CSITopologyRequest(Value):
    """Topologies from which a volume must be reachable, and preferred ones."""

    required: tuple[CSITopology, ...] = ()
    preferred: tuple[CSITopology, ...] = ()


class CSIVolume(Value):
    """A registered volume. Sizes in bytes, times in unix ns; a node must lie in one of the segments `topologies`, and
    without any all nodes do.

    How it is used at present follows from the allocations that use it, see `yurt.state.claims`.
    """

    id: str = ""
    name: str = ""
    external_id: str = ""
    namespace: str = "default"
    requested_topologies: CSITopologyRequest | None = None
    topologies: tuple[CSITopology, ...] = ()
    mount_options: CSIMountOptions | None = None
    secrets: Mapping[str, str] = no_entries()
    parameters: Mapping[str, str] = no_entries()
    context: Mapping[str, str] = no_entries()
    capacity: int = 0
    requested_capacity_min: int = 0
    requested_capacity_max: int = 0
    requested_capabilities: tuple[CSIVolumeCapability, ...] = ()
    clone_id: str = ""
    snapshot_id: str = ""
    plugin_id: str = ""
    create_index: int = 0
    modify_index: int = 0
    create_time: int = 0
    modify_time: int = 0


HIDDEN = "[REDACTED]"


def without_secrets(volume: CSIVolume) -> CSIVolume:
    """The volume for display: secrets are reduced to their names."""
    return replace(volume, secrets=dict.fromkeys(volume.secrets, HIDDEN))


class CSIClaimQuery(Value):
    """A node's request to claim a volume for an allocation, by the group's name for the volume."""

    node_id: str
    alloc_id: str
    volume: str


class CSIClaimed(Value):
    """The data with which a node mounts a claimed volume: its ids here and at the plugin, and parameters."""

    id: str
    namespace: str
    external_id: str
    plugin_id: str
    access_mode: str
    attachment_mode: str
    read_only: bool = False
    mount_options: CSIMountOptions | None = None
    secrets: Mapping[str, str] = no_entries()
    context: Mapping[str, str] = no_entries()


class CSIPlugin(Value):
    """A plugin, derived from its nodes and jobs: the nodes that run it, and the numbers of healthy and expected
    instances."""

    id: str
    provider: str = ""
    version: str = ""
    controller_required: bool = False
    controllers: Mapping[str, CSIInfo] = no_entries()
    nodes: Mapping[str, CSIInfo] = no_entries()
    controllers_healthy: int = 0
    controllers_expected: int = 0
    nodes_healthy: int = 0
    nodes_expected: int = 0
    create_index: int = 0
    modify_index: int = 0
    create_time: int = 0
    modify_time: int = 0

    @property
    def is_schedulable(self) -> bool:
        """Whether the plugin has a healthy node, and a healthy controller if it needs one."""
        return self.nodes_healthy > 0 and (self.controllers_healthy > 0 or not self.controller_required)
