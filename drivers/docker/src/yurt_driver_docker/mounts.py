"""Host folders, volumes and tmpfs of a container. Pure, except for `resolve`, which follows links.

`hold` gives what lies in the allocation the name by which the engine finds it, whatever becomes of its own.
"""

from __future__ import annotations

from typing import Any

from yurt.sdk.containers.common import merged
from yurt.sdk.containers.mount_permissions import PROPAGATION, Resolve, hint, host_path
from yurt.sdk.containers.mount_sources import Hold
from yurt.sdk.driver import Mount as HostMount
from yurt.sdk.driver import TaskRequest
from yurt.sdk.errors import DriverError

from yurt_driver_docker.config import MountOption, PluginConfig, TaskConfig, VolumeOptions

HINT = hint("docker")


def binds(request: TaskRequest, plugin: PluginConfig, resolve: Resolve, hold: Hold) -> list[str]:
    """/alloc, /local and /secrets, the task's `volumes`, and the group's volumes with a label, which mounts lack."""
    config: TaskConfig = request.config
    label = plugin.options.volumes.selinuxlabel
    dirs = request.dirs
    own = [(dirs.shared_dir, "/alloc"), (dirs.local_dir, "/local"), (dirs.secrets_dir, "/secrets")]
    suffix = f":{label}" if label else ""
    return [
        *(f"{hold(source, target)}:{target}{suffix}" for source, target in own),
        *(volume(each, request, plugin, resolve, hold) for each in config.volumes),
        *(labelled_volume(each) for each in request.mounts if each.selinux_label),
    ]


def labelled_volume(volume_mount: HostMount) -> str:
    """A volume of the task's group as a bind, which the engine labels for SELinux."""
    modes = (
        "ro" if volume_mount.is_read_only else "rw",
        volume_mount.selinux_label,
        PROPAGATION[volume_mount.propagation],
    )
    return f"{volume_mount.host_path}:{volume_mount.task_path}:{','.join(modes)}"


def volume(text: str, request: TaskRequest, plugin: PluginConfig, resolve: Resolve, hold: Hold) -> str:
    """One `source:target[:mode]` as the engine's bind; a missing folder is created, as the engine does."""
    config: TaskConfig = request.config
    source, separator, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not separator or not source or not target.startswith("/"):
        raise DriverError(f'volumes: "{text}" must be "source:/target" or "source:/target:mode"')
    if config.volume_driver:
        if not plugin.volumes_enabled:
            raise DriverError(f'volume_driver = "{config.volume_driver}": volume drivers are off here; {HINT}')
    else:
        found = host_path(source, request.dirs, resolve, is_free=plugin.volumes_enabled, plugin="docker")
        source = hold(found, target, makes=True)
    label = plugin.options.volumes.selinuxlabel
    modes = ",".join(filter(None, (mode, label if label not in mode.split(",") else "")))
    return f"{source}:{target}:{modes}" if modes else f"{source}:{target}"


def mounts(request: TaskRequest, plugin: PluginConfig, resolve: Resolve, hold: Hold) -> list[dict[str, Any]]:
    """The task's `mount` blocks, and its group's volumes, whose paths the operator has chosen."""
    config: TaskConfig = request.config
    own = [mount(each, request, plugin, resolve, hold) for each in (*config.mount, *config.mounts)]
    return own + [group_volume(each) for each in request.mounts if not each.selinux_label]


def group_volume(volume_mount: HostMount) -> dict[str, Any]:
    """A volume of the task's group."""
    return {
        "Type": "bind",
        "Source": volume_mount.host_path,
        "Target": volume_mount.task_path,
        "ReadOnly": volume_mount.is_read_only,
        "BindOptions": {"Propagation": PROPAGATION[volume_mount.propagation]},
    }


def mount(
    option: MountOption, request: TaskRequest, plugin: PluginConfig, resolve: Resolve, hold: Hold
) -> dict[str, Any]:
    """One mount in the engine's form."""
    if not option.target.startswith("/"):
        raise DriverError(f'mount: target = "{option.target}" must be an absolute path inside the container')
    made: dict[str, Any] = {"Type": option.type, "Target": option.target, "ReadOnly": option.readonly}
    match option.type:
        case "bind":
            found = host_path(option.source, request.dirs, resolve, is_free=plugin.volumes_enabled, plugin="docker")
            made["Source"] = hold(found, option.target)
            if option.bind_options and option.bind_options.propagation:
                made["BindOptions"] = {"Propagation": option.bind_options.propagation}
        case "volume":
            made["Source"] = option.source
            if option.volume_options:
                made["VolumeOptions"] = volume_options(option.volume_options, plugin)
        case "tmpfs":
            if option.tmpfs_options:
                made["TmpfsOptions"] = {"SizeBytes": option.tmpfs_options.size, "Mode": option.tmpfs_options.mode}
        case _:
            raise DriverError(f'mount: type = "{option.type}" must be bind, volume or tmpfs')
    return made


def volume_options(options: VolumeOptions, plugin: PluginConfig) -> dict[str, Any]:
    """The options for creating a volume; a volume driver can mount anything, so it needs the right to host paths."""
    made: dict[str, Any] = {"NoCopy": options.no_copy, "Labels": merged(options.labels)}
    driver = options.driver_config
    if driver and (driver.name or driver.options):
        if not plugin.volumes_enabled:
            raise DriverError(f"mount: volume_options.driver_config: volume drivers are off here; {HINT}")
        made["DriverConfig"] = {"Name": driver.name or "local", "Options": merged(driver.options)}
    return made
