"""Host folders, volumes, tmpfs and devices of a container. Pure, except for `resolve`, which follows links.

`hold` gives what lies in the allocation the name by which the engine finds it, whatever becomes of its own.
"""

from __future__ import annotations

from typing import Any

from yurt.sdk.containers.mount_permissions import PROPAGATION, Resolve, host_path
from yurt.sdk.containers.mount_sources import Hold
from yurt.sdk.driver import Mount as HostMount
from yurt.sdk.driver import TaskRequest
from yurt.sdk.errors import DriverError

from yurt_driver_podman.config import PluginConfig, TaskConfig

LABELS = ("z", "Z")
OVERLAY = "O"
DEVICE_RIGHTS = "rwm"
Mount = dict[str, Any]


def mounts(request: TaskRequest, plugin: PluginConfig, resolve: Resolve, hold: Hold) -> list[Mount]:
    """/alloc, /local and /secrets, then the task's `volumes` and `tmpfs`, and its group's volumes."""
    config: TaskConfig = request.config
    dirs = request.dirs
    label = plugin.options.volumes.selinuxlabel
    own = [(dirs.shared_dir, "/alloc"), (dirs.local_dir, "/local"), (dirs.secrets_dir, "/secrets")]
    return [
        *(bind(hold(source, target), target, [label] if label else []) for source, target in own),
        *(volume(each, request, plugin, resolve, hold) for each in config.volumes),
        *(tmpfs(each) for each in config.tmpfs),
        *(group_volume(each) for each in request.mounts),
    ]


def bind(source: str, target: str, options: list[str]) -> Mount:
    """A host folder with all mounts below it."""
    return {"type": "bind", "source": source, "destination": target, "options": ["rbind", *options]}


def volume(text: str, request: TaskRequest, plugin: PluginConfig, resolve: Resolve, hold: Hold) -> Mount:
    """One `source:target[:options]`."""
    source, separator, rest = text.partition(":")
    target, _, options = rest.partition(":")
    if not separator or not source or not target.startswith("/"):
        raise DriverError(f'volumes: "{text}" must be "source:/target" or "source:/target:options"')
    found = host_path(source, request.dirs, resolve, is_free=plugin.volumes_enabled, plugin="podman")
    flags = [each for each in options.split(",") if each]
    label = plugin.options.volumes.selinuxlabel
    if label and not set(flags) & set(LABELS):
        flags.append(label)
    return bind(hold(found, target, is_seen=OVERLAY not in flags), target, flags)


def tmpfs(text: str) -> Mount:
    """One `/target[:options]`."""
    target, _, options = text.partition(":")
    if not target.startswith("/"):
        raise DriverError(f'tmpfs: "{text}" must be an absolute path inside the container, for example /run:size=64m')
    return {
        "type": "tmpfs",
        "source": "tmpfs",
        "destination": target,
        "options": [each for each in options.split(",") if each],
    }


def group_volume(volume_mount: HostMount) -> Mount:
    """A volume of the task's group, whose path the operator has chosen."""
    rights = "ro" if volume_mount.is_read_only else "rw"
    label = [volume_mount.selinux_label] if volume_mount.selinux_label else []
    return bind(volume_mount.host_path, volume_mount.task_path, [rights, PROPAGATION[volume_mount.propagation], *label])


def devices(request: TaskRequest, plugin: PluginConfig) -> list[dict[str, str]]:
    """The host devices for the container: those reserved by the client, and those of `devices`."""
    config: TaskConfig = request.config
    if config.devices and not (plugin.volumes_enabled or plugin.options.allow_privileged):
        raise DriverError(
            "devices of the host are off on this client; set volumes { enabled = true } or allow_privileged = true"
            ' in plugin "podman" of its configuration'
        )
    nodes = request.devices
    if request.cdi_devices:
        reserved = list(request.cdi_devices)
    else:
        reserved = [f"{each.host_path}:{each.task_path or each.host_path}:{each.permissions}" for each in nodes]
    return [{"path": path} for path in (*reserved, *map(checked_device, config.devices))]


def checked_device(text: str) -> str:
    """One `/dev/x[:/dev/y][:rwm]`."""
    source, _, rest = text.partition(":")
    rights = rest.rpartition(":")[2]
    if not source.startswith("/"):
        raise DriverError(f'devices: "{text}" must begin with an absolute path, for example /dev/fuse:/dev/fuse:rw')
    if rights and not rights.startswith("/") and set(rights) - set(DEVICE_RIGHTS):
        raise DriverError(f'devices: "{text}": rights must be letters of "rwm" (read, write, mknod)')
    return text
