"""Builds the body of podman's request to create a container from a task. Pure, so that every option is tested.

All other inputs come in as a `Site`. Options that the task may not use are refused here, after interpolation and after
links are resolved, and before the request reaches the engine.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable
from typing import Any

import msgspec
from yurt.sdk.containers.common import MIB, capabilities, check_rights, merged, pids_limit, soft_and_hard
from yurt.sdk.containers.creation import own_labels
from yurt.sdk.containers.mount_sources import Hold, by_name
from yurt.sdk.containers.security import check_security_option
from yurt.sdk.driver import TaskRequest, TaskResources
from yurt.sdk.errors import DriverError

from yurt_driver_podman.config import PluginConfig, TaskConfig
from yurt_driver_podman.mounts import devices, mounts
from yurt_driver_podman.network import network_part

CPU_SHARES_MIN = 2
CPU_QUOTA_MIN_US = 1000
LOG_BYTES_MAX = 20 * MIB
"""The size at which the engine starts its log file again; the client has its own files and reads output as it comes."""
SIZE = re.compile(r"([0-9]+)([bkmgBKMG]?)")
UNITS = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
OWN_LOG_DRIVERS = ("", "nomad", "k8s-file", "json-file")
LOG_DRIVERS = ("journald", "none", "passthrough")
Body = dict[str, Any]


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a container other than its task."""

    config: PluginConfig
    image_id: str
    core_mhz: float
    resolve: Callable[[str], str]
    hold: Hold = by_name
    is_rootless: bool = False


def size_of(text: str, *, option: str) -> int:
    """Parse a size: `"100m"` in bytes."""
    found = SIZE.fullmatch(text.strip())
    if not found:
        raise DriverError(f'{option} = "{text}" is not a valid size; write it as 512k, 100m or 2g')
    return int(found[1]) * UNITS[found[2].lower()]


def create_body(request: TaskRequest, site: Site) -> Body:
    """The complete description of the container; raises DriverError for options that the task may not use."""
    config: TaskConfig = request.config
    body = {
        "image": site.image_id,
        "raw_image_name": config.image,
        "labels": labels(request, site.config),
        "log_configuration": log_configuration(config, site.config),
        "resource_limits": resource_limits(request.resources, config, site),
        **process_part(request, site.config),
        **isolation_part(config, site),
        **privilege_part(request, site),
        **network_part(request, site.config, is_rootless=site.is_rootless),
        "mounts": mounts(request, site.config, site.resolve, site.hold),
        "devices": devices(request, site.config),
    }
    return body


def process_part(request: TaskRequest, plugin: PluginConfig) -> Body:
    """The process: command, user, folder and variables."""
    config: TaskConfig = request.config
    check_init_path(config, plugin)
    part: Body = {
        "env": dict(request.env),
        "user": request.user,
        "terminal": config.tty,
        "stdin": config.interactive,
        "init": config.init,
        "systemd": "false",
        "restart_policy": "no",
    }
    if config.init_path:
        part["init_path"] = config.init_path
    if config.working_dir and not config.working_dir.startswith("/"):
        raise DriverError(f'working_dir "{config.working_dir}" must be an absolute path inside the container')
    if config.working_dir:
        part["work_dir"] = config.working_dir
    if config.entrypoint:
        part["entrypoint"] = config.entrypoint
    if config.command or config.args:
        part["command"] = [*([config.command] if config.command else []), *config.args]
    return part


def check_init_path(config: TaskConfig, plugin: PluginConfig) -> None:
    """Check the host program for the container's init: its files must be permitted as mounts; raises DriverError."""
    if config.init_path and not (plugin.volumes_enabled or plugin.options.allow_privileged):
        raise DriverError(
            f'init_path = "{config.init_path}" is a file of the host, which is off on this client; leave it out and set'
            ' init = true, or set allow_privileged = true in plugin "podman" of its configuration'
        )


def resource_limits(resources: TaskResources, config: TaskConfig, site: Site) -> Body:
    """Shares of CPU, cores, memory and processes."""
    cpu: Body = {"shares": max(CPU_SHARES_MIN, resources.cpu_shares)}
    if config.cpu_hard_limit:
        cpu["period"] = config.cpu_cfs_period
        cpu["quota"] = max(CPU_QUOTA_MIN_US, int(resources.cpu_shares / site.core_mhz * config.cpu_cfs_period))
    if resources.reserved_cores:
        cpu["cpus"] = ",".join(map(str, resources.reserved_cores))
    elif config.cpuset_cpus:
        cpu["cpus"] = config.cpuset_cpus
    if resources.memory_nodes:
        cpu["mems"] = ",".join(map(str, resources.memory_nodes))
    part: Body = {"cpu": cpu, "memory": memory_part(resources, config)}
    limit = pids_limit(config.pids_limit, site.config.options.pids_limit)
    if limit:
        part["pids"] = {"limit": limit}
    return part


def memory_part(resources: TaskResources, config: TaskConfig) -> Body:
    """Memory in bytes: `memory` is the limit, unless a higher `memory_max` makes it a reservation."""
    most_mb = resources.memory_max_mb
    if most_mb < 0:
        part: Body = {"reservation": resources.memory_mb * MIB}
    elif most_mb:
        part = {"limit": most_mb * MIB, "reservation": resources.memory_mb * MIB}
    else:
        part = {"limit": resources.memory_mb * MIB}
    if config.memory_reservation:
        part["reservation"] = size_of(config.memory_reservation, option="memory_reservation")
    if config.memory_swap:
        part["swap"] = size_of(config.memory_swap, option="memory_swap")
        if part["swap"] < part.get("limit", 0):
            raise DriverError(
                f'memory_swap = "{config.memory_swap}" is memory and swap together,'
                f" and must not be below the task's memory of {part['limit'] // MIB} MB"
            )
    if config.memory_swappiness is not None:
        part["swappiness"] = config.memory_swappiness
    return part


def isolation_part(config: TaskConfig, site: Site) -> Body:
    """Namespaces, kernel limits and the root file system."""
    allowed = site.config.options.allowed_modes
    part: Body = {
        "read_only_filesystem": config.readonly_rootfs,
        "sysctl": merged(config.sysctl),
        "r_limits": [ulimit(name, text) for name, text in merged(config.ulimit).items()],
        "groups": config.group_add,
    }
    shared = (
        ("userns", "userns", config.userns, allowed.userns),
        ("pidns", "pid_mode", config.pid_mode, allowed.pid),
        ("ipcns", "ipc_mode", config.ipc_mode, allowed.ipc),
        ("utsns", "uts_mode", config.uts_mode, allowed.uts),
        ("cgroupns", "cgroupns", config.cgroupns, allowed.cgroup),
    )
    for key, option, mode, modes in shared:
        if mode:
            check_mode(option, mode, modes, site.config)
            part[key] = namespace(mode)
    if config.shm_size:
        part["shm_size"] = size_of(config.shm_size, option="shm_size")
    return part


def namespace(mode: str) -> Body:
    """Split `"container:other"` into its two parts."""
    name, _, value = mode.partition(":")
    return {"nsmode": {"ns": "path"}.get(name, name), "value": value}


def check_mode(option: str, mode: str, modes: list[str], plugin: PluginConfig) -> None:
    """Check that the task may share a namespace with the host or another container; raises DriverError."""
    shares = mode == "host" or mode.startswith(("container:", "ns:", "path:"))
    if shares and not plugin.options.allow_privileged and mode not in modes:
        name = {"cgroupns": "cgroup"}.get(option, option.removesuffix("_mode"))
        raise DriverError(
            f'{option} = "{mode}" is off on this client; set allowed_modes {{ {name} = ["{mode}"] }}'
            ' or allow_privileged = true in plugin "podman" of its configuration'
        )


def ulimit(name: str, text: str) -> Body:
    """`"1024:2048"` (soft, hard) or one number for both."""
    soft, hard = soft_and_hard(name, text)
    return {"type": name.lower().removeprefix("rlimit_"), "soft": soft, "hard": hard}


def privilege_part(request: TaskRequest, site: Site) -> Body:
    """Privileges beyond those of an ordinary process, as far as the agent permits."""
    config: TaskConfig = request.config
    options = site.config.options
    check_rights(
        privileged=config.privileged,
        oom_score_adj=config.oom_score_adj,
        allow_privileged=options.allow_privileged,
        plugin="podman",
    )
    for text in security_texts(config):
        check_security_option(
            text,
            allow_privileged=options.allow_privileged,
            patterns=options.allow_security_opt,
            plugin="podman",
        )
    part: Body = {"privileged": config.privileged, **security_part(config)}
    if config.oom_score_adj:
        part["oom_score_adj"] = config.oom_score_adj
    if not config.privileged:
        part["cap_drop"] = ["ALL"]
        part["cap_add"] = list(
            capabilities(config.cap_add, config.cap_drop, allow_caps=options.allow_caps, plugin="podman")
        )
    return part


def security_texts(config: TaskConfig) -> tuple[str, ...]:
    """The task's security profiles in the form of `security_opt`; additional masked paths only restrict it further."""
    own = [f"apparmor={config.apparmor_profile}"] if config.apparmor_profile else []
    labels = [f"label={each}" for each in config.selinux_opts]
    return (*own, *labels, *(each for each in config.security_opt if not each.startswith(("mask=", "mask:"))))


def security_part(config: TaskConfig) -> Body:
    """Profiles of the kernel's security modules, from separate options or `security_opt`."""
    part: Body = {"selinux_opts": list(config.selinux_opts)}
    if config.apparmor_profile:
        part["apparmor_profile"] = config.apparmor_profile
    for text in config.security_opt:
        name, separator, value = text.partition("=") if "=" in text else text.partition(":")
        match name:
            case "apparmor":
                part["apparmor_profile"] = value
            case "label":
                part["selinux_opts"].append(value)
            case "seccomp":
                part["seccomp_profile_path"] = value
            case "no-new-privileges":
                part["no_new_privileges"] = not separator or value == "true"
            case "mask":
                part["mask"] = value.split(":")
            case _:
                raise DriverError(
                    f'security_opt: "{text}" is none of apparmor=, label=, seccomp=, mask=, no-new-privileges;'
                    " a path may not be unmasked"
                )
    return part


def is_collected(config: TaskConfig, plugin: PluginConfig) -> bool:
    """Whether the client collects the output from a file of the engine."""
    return log_driver(config, plugin)[0] in OWN_LOG_DRIVERS


def log_driver(config: TaskConfig, plugin: PluginConfig) -> tuple[str, dict[str, str]]:
    """The task's log driver and options, or the agent's."""
    logging = config.logging
    if logging and (logging.driver or logging.options):
        return logging.driver, merged(logging.options)
    return plugin.options.logging.driver, dict(plugin.options.logging.options)


def log_configuration(config: TaskConfig, plugin: PluginConfig) -> Body:
    """The engine's handling of output. Its file is at podman's default path, so that it goes with the container."""
    driver, options = log_driver(config, plugin)
    if driver in OWN_LOG_DRIVERS:
        if "path" in options:
            raise DriverError("logging: path cannot be chosen; the client collects the output into its own files")
        size = size_of(options.pop("max-size", f"{LOG_BYTES_MAX}"), option="logging max-size")
        return {"driver": "k8s-file", "size": size, "options": options}
    if driver not in LOG_DRIVERS:
        raise DriverError(f'logging: driver = "{driver}" must be nomad, k8s-file, journald, none or passthrough')
    return {"driver": driver, "options": options}


def labels(request: TaskRequest, plugin: PluginConfig) -> dict[str, str]:
    """The task's labels, and those of this driver."""
    patterns = plugin.options.extra_labels
    ours = own_labels(request, plugin.owner, lambda name: any(fnmatch.fnmatchcase(name, each) for each in patterns))
    return {**merged(request.config.labels), **ours}
