"""Builds the body of the engine's request to create a container from a task. Pure, so that every option is tested.

All other inputs come in as a `Site`: the agent's configuration, the image, the resolution of links, the text of a
seccomp profile. Options that the task may not use are refused here, after interpolation and after links are resolved,
and before the request reaches the engine.
"""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Callable
from typing import Any

import msgspec
from yurt.sdk.containers.common import MIB, capabilities, check_rights, merged, pids_limit, soft_and_hard
from yurt.sdk.containers.creation import own_labels
from yurt.sdk.containers.mount_sources import Hold, by_name
from yurt.sdk.containers.security import check_security_option
from yurt.sdk.driver import TaskRequest, TaskResources
from yurt.sdk.errors import DriverError

from yurt_driver_docker.config import PluginConfig, TaskConfig
from yurt_driver_docker.mounts import binds, mounts
from yurt_driver_docker.network import network_parts
from yurt_driver_docker.privileges import check_modes, checked_devices, checked_runtime, device

CPU_SHARES_MIN = 2
CPU_QUOTA_MIN_US = 1000
DEFAULT_LOG_OPTIONS = {"max-file": "2", "max-size": "20m"}
Body = dict[str, Any]


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The context of a container other than its task."""

    config: PluginConfig
    image_id: str
    core_mhz: float
    resolve: Callable[[str], str]
    read_text: Callable[[str], str]
    hold: Hold = by_name
    runtimes: tuple[str, ...] = ()
    has_cdi: bool = False
    pause_id: str = ""


def create_body(request: TaskRequest, site: Site) -> Body:
    """The complete description of the container; raises DriverError for options that the task may not use."""
    config: TaskConfig = request.config
    check_modes(config, site.config.options)
    network = network_parts(request, site.pause_id)
    host = {
        **resource_part(request.resources, config, site.core_mhz),
        **isolation_part(config, site),
        **privilege_part(request, site),
        **network.host,
        "Binds": binds(request, site.config, site.resolve, site.hold),
        "Mounts": mounts(request, site.config, site.resolve, site.hold),
        "LogConfig": log_config(config, site.config),
    }
    body = {
        **process_part(request),
        **network.body,
        "Image": site.image_id,
        "Labels": labels(request, site.config),
        "HostConfig": host,
    }
    return body


def process_part(request: TaskRequest) -> Body:
    """The process: command, user, folder and variables."""
    config: TaskConfig = request.config
    part: Body = {
        "Env": sorted(f"{name}={value}" for name, value in request.env.items()),
        "User": request.user,
        "Tty": config.tty,
        "OpenStdin": config.interactive,
    }
    if config.work_dir and not config.work_dir.startswith("/"):
        raise DriverError(f'work_dir "{config.work_dir}" must be an absolute path inside the container')
    if config.work_dir:
        part["WorkingDir"] = config.work_dir
    if config.entrypoint:
        part["Entrypoint"] = config.entrypoint
    if config.command or config.args:
        part["Cmd"] = [*([config.command] if config.command else []), *config.args]
    if config.healthchecks and config.healthchecks.disable:
        part["Healthcheck"] = {"Test": ["NONE"]}
    return part


def resource_part(resources: TaskResources, config: TaskConfig, core_mhz: float) -> Body:
    """Shares of CPU, cores and memory."""
    part: Body = {"CpuShares": max(CPU_SHARES_MIN, resources.cpu_shares), **memory_part(resources, config)}
    if config.cpu_hard_limit:
        part["CpuPeriod"] = config.cpu_cfs_period
        part["CpuQuota"] = max(CPU_QUOTA_MIN_US, int(resources.cpu_shares / core_mhz * config.cpu_cfs_period))
    if resources.reserved_cores:
        part["CpusetCpus"] = ",".join(map(str, resources.reserved_cores))
    elif config.cpuset_cpus:
        part["CpusetCpus"] = config.cpuset_cpus
    if resources.memory_nodes:
        part["CpusetMems"] = ",".join(map(str, resources.memory_nodes))
    return part


def memory_part(resources: TaskResources, config: TaskConfig) -> Body:
    """Memory in bytes without swap: `memory` is the limit, or a reservation below a higher hard limit."""
    hard_mb = config.memory_hard_limit or resources.memory_max_mb
    if hard_mb < 0:
        return {"MemoryReservation": resources.memory_mb * MIB}
    if hard_mb and hard_mb < resources.memory_mb:
        raise DriverError(
            f"memory_hard_limit is {hard_mb} MB and must not be below the task's memory of {resources.memory_mb} MB"
        )
    limit = (hard_mb or resources.memory_mb) * MIB
    part: Body = {"Memory": limit, "MemorySwap": limit}
    if hard_mb:
        part["MemoryReservation"] = resources.memory_mb * MIB
    return part


def isolation_part(config: TaskConfig, site: Site) -> Body:
    """Namespaces, kernel limits and the root file system."""
    part: Body = {
        "ReadonlyRootfs": config.readonly_rootfs,
        "PidMode": config.pid_mode,
        "UTSMode": config.uts_mode,
        "UsernsMode": config.userns_mode,
        "Sysctls": merged(config.sysctl),
        "StorageOpt": config.storage_opt,
        "Ulimits": [ulimit(name, text) for name, text in merged(config.ulimit).items()],
        "GroupAdd": config.group_add,
        "Isolation": config.isolation,
    }
    if config.ipc_mode:
        part["IpcMode"] = config.ipc_mode
    if config.cgroupns:
        part["CgroupnsMode"] = config.cgroupns
    if config.shm_size:
        part["ShmSize"] = config.shm_size
    if config.init:
        part["Init"] = True
    limit = pids_limit(config.pids_limit, site.config.options.pids_limit)
    if limit:
        part["PidsLimit"] = limit
    return part


def ulimit(name: str, text: str) -> Body:
    """`"1024:2048"` (soft, hard) or one number for both."""
    soft, hard = soft_and_hard(name, text)
    return {"Name": name, "Soft": soft, "Hard": hard}


def privilege_part(request: TaskRequest, site: Site) -> Body:
    """Privileges beyond those of an ordinary process, as far as the agent permits."""
    config: TaskConfig = request.config
    options = site.config.options
    check_rights(
        privileged=config.privileged,
        oom_score_adj=config.oom_score_adj,
        allow_privileged=options.allow_privileged,
        plugin="docker",
    )
    for each in config.security_opt:
        check_security_option(
            each,
            allow_privileged=options.allow_privileged,
            patterns=options.allow_security_opt,
            plugin="docker",
        )
    part: Body = {
        "Privileged": config.privileged,
        **device_part(request, site),
        "SecurityOpt": [security_option(each, site.read_text) for each in config.security_opt],
        "OomScoreAdj": config.oom_score_adj or options.oom_score_adj,
    }
    if not config.privileged:
        part["CapDrop"] = ["ALL"]
        part["CapAdd"] = list(
            capabilities(config.cap_add, config.cap_drop, allow_caps=options.allow_caps, plugin="docker")
        )
    is_requested = "DeviceRequests" in part and not config.runtime
    runtime = "" if is_requested else checked_runtime(config, options, env=request.env, installed=site.runtimes)
    if runtime:
        part["Runtime"] = runtime
    return part


def device_part(request: TaskRequest, site: Site) -> Body:
    """Devices from the task's options, and assigned ones in the first form that the engine supports.

    An engine without the Container Device Interface gets GPUs through their runtime, as in Nomad; without that runtime
    through device requests, as with `--gpus`.
    """
    own = checked_devices(request.config, site.config)
    if request.cdi_devices and site.has_cdi:
        return {"Devices": own, "DeviceRequests": [{"Driver": "cdi", "DeviceIDs": list(request.cdi_devices)}]}
    if request.engine_devices:
        has_runtime = not site.runtimes or site.config.options.nvidia_runtime in site.runtimes
        return {"Devices": own} if has_runtime else {"Devices": own, "DeviceRequests": engine_requests(request)}
    assigned = [device(each.host_path, each.task_path, each.permissions) for each in request.devices]
    return {"Devices": own + assigned}


def engine_requests(request: TaskRequest) -> list[Body]:
    """The device requests that `--gpus` sends."""
    return [
        {"Driver": each.driver, "DeviceIDs": list(each.ids), "Capabilities": [list(each.capabilities)]}
        for each in request.engine_devices
    ]


def security_option(text: str, read_text: Callable[[str], str]) -> str:
    """A security option for the engine, with a seccomp profile replaced by its content."""
    name, separator, value = text.replace(":", "=", 1).partition("=") if "=" not in text else text.partition("=")
    if name != "seccomp" or not separator or value in ("unconfined", "builtin") or value.startswith("{"):
        return text
    try:
        return "seccomp=" + json.dumps(json.loads(read_text(value)), separators=(",", ":"))
    except (OSError, ValueError) as error:
        raise DriverError(f'security_opt: the seccomp profile "{value}" cannot be used: {error}') from None


def log_config(config: TaskConfig, plugin: PluginConfig) -> Body:
    """The task's log driver, or the agent's.

    The json-file log is small, because the client keeps its own files, but larger than Nomad's 2 MB: what the engine
    rotates away before the client reads it, in a flood or while the agent is down, is lost.
    """
    logging = config.logging
    kind = (logging.type or logging.driver) if logging else ""
    if logging and (kind or logging.config):
        return {"Type": kind or "json-file", "Config": merged(logging.config)}
    default = plugin.options.logging
    is_plain = default.type == "json-file" and not default.config
    return {"Type": default.type, "Config": DEFAULT_LOG_OPTIONS if is_plain else dict(default.config)}


def labels(request: TaskRequest, plugin: PluginConfig) -> dict[str, str]:
    """The task's labels, and those of this driver."""
    patterns = plugin.options.extra_labels
    ours = own_labels(request, plugin.owner, lambda name: any(fnmatch.fnmatchcase(name, each) for each in patterns))
    return {**merged(request.config.labels), **ours}
