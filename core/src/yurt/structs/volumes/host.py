"""Dynamic host volumes: folders that a plugin creates on a node at run time, and the claims on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from yurt.sdk.value import Value, no_entries
from yurt.structs.constraint import Constraint

VolumeState = Literal["", "pending", "ready", "unavailable", "deleting"]
PENDING: Final = "pending"
READY: Final = "ready"
UNAVAILABLE: Final = "unavailable"
DELETING: Final = "deleting"
"""States of a volume: requested, offered by its node, at present not offered by it, being deleted there. Requests may
leave it empty."""

READER_ONLY, WRITER = "single-node-reader-only", "single-node-writer"
SINGLE_WRITER, MULTI_WRITER = "single-node-single-writer", "single-node-multi-writer"
ACCESS_MODES = (READER_ONLY, WRITER, SINGLE_WRITER, MULTI_WRITER)
FILE_SYSTEM, BLOCK_DEVICE = "file-system", "block-device"


class HostVolumeCapability(Value):
    """One allowed combination of access and attachment mode."""

    attachment_mode: str = ""
    access_mode: str = ""


class HostVolume(Value):
    """A volume on one node. Sizes in bytes, times in unix ns."""

    id: str = ""
    namespace: str = "default"
    name: str = ""
    plugin_id: str = ""
    node_pool: str = ""
    node_id: str = ""
    constraints: tuple[Constraint, ...] = ()
    requested_capacity_min_bytes: int = 0
    requested_capacity_max_bytes: int = 0
    capacity_bytes: int = 0
    requested_capabilities: tuple[HostVolumeCapability, ...] = ()
    parameters: Mapping[str, str] = no_entries()
    host_path: str = ""
    state: VolumeState = PENDING
    create_index: int = 0
    create_time: int = 0
    modify_index: int = 0
    modify_time: int = 0


class HostVolumeStub(Value):
    """A volume in a list."""

    namespace: str
    id: str
    name: str
    plugin_id: str
    node_pool: str
    node_id: str
    capacity_bytes: int
    state: VolumeState
    create_index: int
    create_time: int
    modify_index: int
    modify_time: int


class TaskGroupHostVolumeClaim(Value):
    """The sticky volume to which allocations of one name always return."""

    id: str
    namespace: str
    job_id: str
    task_group_name: str
    alloc_id: str
    alloc_name: str
    volume_id: str
    volume_name: str
    create_index: int = 0
    modify_index: int = 0


class HostVolumeMade(Value):
    """The volume that a node created: its path, and its size in bytes if the plugin reports it."""

    path: str
    capacity_bytes: int = 0
