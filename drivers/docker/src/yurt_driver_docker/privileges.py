"""Checks privileges that a task requests against the operator's permissions; pure.

Every refusal names the option of the task and the one of the agent that would allow it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from yurt.sdk.errors import DriverError

from yurt_driver_docker.config import PluginConfig, PluginOptions, TaskConfig

GPU_VARIABLE = "NVIDIA_VISIBLE_DEVICES"
NO_GPU = ("", "none", "void")
DEVICE_RIGHTS = "rwm"


def check_modes(config: TaskConfig, options: PluginOptions) -> None:
    """Check that the task may share a namespace with the host or another container; raises DriverError."""
    allowed = options.allowed_modes
    checks = (
        ("pid", "pid_mode", config.pid_mode, allowed.pid),
        ("ipc", "ipc_mode", config.ipc_mode, allowed.ipc),
        ("userns", "userns_mode", config.userns_mode, allowed.userns),
        ("uts", "uts_mode", config.uts_mode, allowed.uts),
        ("cgroup", "cgroupns", config.cgroupns, allowed.cgroup),
    )
    for name, option, mode, modes in checks:
        shares = mode == "host" or mode.startswith("container:")
        if shares and not options.allow_privileged and mode not in modes:
            raise DriverError(
                f'{option} = "{mode}" is off on this client; set allowed_modes {{ {name} = ["{mode}"] }}'
                ' or allow_privileged = true in plugin "docker" of its configuration'
            )


def checked_devices(config: TaskConfig, plugin: PluginConfig) -> list[dict[str, str]]:
    """The host devices for the container."""
    if config.devices and not (plugin.volumes_enabled or plugin.options.allow_privileged):
        raise DriverError(
            "devices of the host are off on this client; set volumes { enabled = true } or allow_privileged = true"
            ' in plugin "docker" of its configuration'
        )
    return [device(each.host_path, each.container_path, each.cgroup_permissions) for each in config.devices]


def device(host_path: str, container_path: str, rights: str) -> dict[str, str]:
    """One device with its permissions checked."""
    if not host_path.startswith("/"):
        raise DriverError(f'devices: host_path = "{host_path}" must be an absolute path, for example /dev/fuse')
    if not rights or set(rights) - set(DEVICE_RIGHTS):
        raise DriverError(f'devices: cgroup_permissions = "{rights}" must be letters of "rwm" (read, write, mknod)')
    return {"PathOnHost": host_path, "PathInContainer": container_path or host_path, "CgroupPermissions": rights}


def checked_runtime(
    config: TaskConfig, options: PluginOptions, *, env: Mapping[str, Any], installed: tuple[str, ...]
) -> str:
    """The OCI runtime, "" for the engine's default; a task with GPUs gets the one that supports them."""
    if config.runtime:
        if config.runtime not in options.allow_runtimes:
            raise DriverError(
                f'runtime = "{config.runtime}" is not allowed on this client'
                f" ({', '.join(options.allow_runtimes) or 'none is'}); see allow_runtimes in its configuration"
            )
        return config.runtime
    if env.get(GPU_VARIABLE, "") in NO_GPU:
        return ""
    if installed and options.nvidia_runtime not in installed:
        raise DriverError(
            f'the task has GPUs and the engine has the runtimes {", ".join(installed)}, not "{options.nvidia_runtime}";'
            " install nvidia-container-toolkit and register its runtime with the engine"
        )
    return options.nvidia_runtime
