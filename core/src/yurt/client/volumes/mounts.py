"""Resolves the volumes of a group, host and CSI, to mounts of its tasks."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Mapping

import msgspec

from yurt.client.task_env import replace_references
from yurt.sdk.driver import Driver, Mount
from yurt.sdk.errors import Invalid
from yurt.structs.alloc import Allocation
from yurt.structs.job import TaskGroup
from yurt.structs.node import HostVolumeInfo
from yurt.structs.predicates import alloc_index
from yurt.structs.task import Task
from yurt.structs.volumes.request import SELINUX_LABELS, VolumeMount, VolumeRequest

CSI = "csi"
PROPAGATION = ("private", "host-to-task", "bidirectional")


class VolumesThere(msgspec.Struct, frozen=True):
    """The node's host volumes by name, and folders of CSI volumes by their names in the group."""

    host: Mapping[str, HostVolumeInfo]
    csi: Mapping[str, str]


def mounts_of(
    task: Task,
    group: TaskGroup,
    *,
    alloc: Allocation,
    driver: Driver,
    there: VolumesThere,
    lookup: Callable[[str], str | None],
) -> tuple[Mount, ...]:
    """The mounts of a task; raises Invalid when this node or the driver cannot provide them."""
    if task.volume_mounts and not driver.capabilities.mounts:
        raise Invalid(
            f"driver {driver.name!r} cannot mount volumes: its tasks see the file system of the host; "
            "use exec or docker, or the host's path itself"
        )
    return tuple(
        _mount(volume_mount, _folder(volume_mount, group, alloc=alloc, there=there), lookup)
        for volume_mount in task.volume_mounts
    )


class _Folder(msgspec.Struct, frozen=True):
    """The host folder of a volume."""

    path: str
    is_read_only: bool


def _folder(volume_mount: VolumeMount, group: TaskGroup, *, alloc: Allocation, there: VolumesThere) -> _Folder:
    request = group.volumes.get(volume_mount.volume)
    if request is None:
        volumes = ", ".join(sorted(group.volumes)) or "none"
        raise Invalid(f"volume_mount: the group has no volume {volume_mount.volume!r}; it has {volumes}")
    if request.type == CSI:
        if volume_mount.volume not in there.csi:
            raise Invalid(f"CSI volume {volume_mount.volume!r} is not mounted on this node")
        return _Folder(there.csi[volume_mount.volume], request.read_only)
    source = source_of(request, alloc)
    volume = there.host.get(source)
    if volume is None or not volume.path:
        raise Invalid(f'this node offers no host volume "{source}"; add client {{ host_volume "{source}" {{ ... }} }}')
    if volume.read_only and not request.read_only:
        raise Invalid(f'host volume "{source}" is read-only on this node; the group has to ask for read_only = true')
    return _Folder(volume.path, request.read_only or volume.read_only)


def _mount(volume_mount: VolumeMount, folder: _Folder, lookup: Callable[[str], str | None]) -> Mount:
    mode = volume_mount.propagation_mode or PROPAGATION[0]
    if mode not in PROPAGATION:
        raise Invalid(f'volume_mount: propagation_mode = "{mode}" must be one of {", ".join(PROPAGATION)}')
    return Mount(
        host_path=folder.path,
        task_path=target_of(replace_references(volume_mount.destination, lookup)),
        is_read_only=volume_mount.read_only or folder.is_read_only,
        propagation=mode,
        selinux_label=volume_mount.selinux_label if volume_mount.selinux_label in SELINUX_LABELS else "",
    )


def source_of(request: VolumeRequest, alloc: Allocation) -> str:
    """The name of the volume on the node; with `per_alloc` each allocation has its own."""
    return f"{request.source}[{max(alloc_index(alloc.name), 0)}]" if request.per_alloc else request.source


def target_of(destination: str) -> str:
    """The place in the task's file system; a relative one begins at its root."""
    target = posixpath.normpath(f"/{destination.lstrip('/')}")
    if target == "/" or "\0" in target or ".." in destination.split("/"):
        raise Invalid(f"volume_mount: destination {destination!r} must be a folder below / , written without '..'")
    return target


def absent_paths(mounts: tuple[Mount, ...]) -> tuple[str, ...]:
    """The missing folders and files of the host; blocking."""
    return tuple(mount.host_path for mount in mounts if not os.path.exists(mount.host_path))
