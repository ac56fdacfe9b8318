"""The rights that a job's contents require in addition to registering jobs in the namespace.

A job that mounts a host volume reaches files of nodes; one that mounts a CSI volume reaches data of others; one that
runs a CSI plugin serves volumes to the whole cluster. So each of these needs its own right, in addition to that of
registering jobs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from yurt.access import Access, Capability, Need, Scope, needs
from yurt.access.needs import HostVolumeMountCapability
from yurt.sdk.errors import DENIED, PermissionDenied
from yurt.structs.job import Job, TaskGroup

SENTINEL_OVERRIDE: Final = needs.namespace(Capability.SENTINEL_OVERRIDE)
REGISTER_CSI_PLUGIN: Final = needs.namespace(Capability.CSI_REGISTER_PLUGIN)
MOUNT_CSI_VOLUME: Final = needs.all_of(needs.PLUGIN_READ, needs.namespace(Capability.CSI_MOUNT_VOLUME))
MOUNT_WRITABLE: Final = needs.host_volume(HostVolumeMountCapability.MOUNT_READWRITE)
MOUNT_READONLY: Final = needs.host_volume(
    HostVolumeMountCapability.MOUNT_READONLY, HostVolumeMountCapability.MOUNT_READWRITE
)
BIDIRECTIONAL: Final = "bidirectional"


class ContentNeed(msgspec.Struct, frozen=True):
    """The need of a part of a job, and its description."""

    need: Need
    scope: Scope
    what: str


def content_needs(job: Job) -> Iterator[ContentNeed]:
    """The needs of a job's volumes and plugins."""
    namespace = Scope(namespace=job.namespace)
    for group in job.task_groups:
        yield from _of_volumes(group, namespace)
        yield from _of_mounts(group)
        for task in group.tasks:
            if task.csi_plugin_config is not None:
                what = f'task "{task.name}" of group "{group.name}" is a CSI plugin'
                yield ContentNeed(REGISTER_CSI_PLUGIN, namespace, what)


def require_contents(access: Access, job: Job, *, names_part: bool = True) -> None:
    """Raises PermissionDenied unless the caller may register a job of these contents.

    `names_part`: the error names the part, because the caller has just sent the job.
    """
    if not access.is_recorded and access.narrowed(needs.MANAGEMENT).sees_all:
        return
    for each in content_needs(job):
        if not access.narrowed(each.need).allows(each.scope):
            raise PermissionDenied(
                f"{DENIED}: {each.what}, which needs {needs.describe(each.need)}" if names_part else DENIED
            )


def require_override(access: Access, namespace: str, *, is_requested: bool) -> None:
    """Raises PermissionDenied when a caller without the right asks to override policies."""
    if is_requested:
        access.narrowed(SENTINEL_OVERRIDE).require(Scope(namespace=namespace))


def _of_volumes(group: TaskGroup, namespace: Scope) -> Iterator[ContentNeed]:
    for name, volume in group.volumes.items():
        what = f'group "{group.name}" mounts the {volume.type} volume "{volume.source}" ("{name}")'
        match volume.type:
            case "csi":
                yield ContentNeed(MOUNT_CSI_VOLUME, namespace, what)
            case "host":
                need = MOUNT_READONLY if volume.read_only else MOUNT_WRITABLE
                yield ContentNeed(need, Scope(host_volume=volume.source), what)
            case _:
                # No policy grants a type that does not exist (yet).
                yield ContentNeed(needs.MANAGEMENT, namespace, what)


def _of_mounts(group: TaskGroup) -> Iterator[ContentNeed]:
    """The needs of mounts that propagate mounts of a task back to the node."""
    for task in group.tasks:
        for mount in task.volume_mounts:
            volume = group.volumes.get(mount.volume)
            if volume is not None and mount.propagation_mode == BIDIRECTIONAL:
                what = f'task "{task.name}" of group "{group.name}" mounts "{volume.source}" bidirectionally'
                yield ContentNeed(MOUNT_WRITABLE, Scope(host_volume=volume.source), what)
