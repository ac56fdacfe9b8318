"""The options of exec, and the step from a task to its isolated process. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from yurt.sdk.driver import TaskRequest
from yurt.sdk.errors import DriverError
from yurt.sdk.executor import (
    DEFAULT_CAPABILITIES,
    DEFAULT_USER,
    Bind,
    ContainerSpec,
    IdMap,
    UserRules,
    capabilities,
    check_host_ids,
    denied_names,
    id_map,
    is_filtered,
    namespace_mode,
    parse_ranges,
)
from yurt.sdk.schema import decode_config
from yurt.sdk.value import replace

NAME = "exec"


class TaskConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of a task."""

    command: str
    args: list[str] = []
    pid_mode: str = ""
    ipc_mode: str = ""
    cap_add: list[str] = []
    cap_drop: list[str] = []
    userns_mode: str = ""
    seccomp: str = ""
    work_dir: str = ""


class AllowedModes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Host namespaces and exceptions from the system call filter that tasks may request."""

    pid: list[str] = []
    ipc: list[str] = []
    userns: list[str] = []
    seccomp: list[str] = []


class UserNamespace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The host ids for users and groups of tasks in user namespaces: 0 is none."""

    first_host_id: int = 0
    count: int = 65536


class PluginConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of `plugin "exec"` in the agent's configuration."""

    no_pivot_root: bool = False
    default_pid_mode: str = "private"
    default_ipc_mode: str = "private"
    default_userns_mode: str = "host"
    default_seccomp: str = "default"
    user_namespace: UserNamespace = UserNamespace()
    allow_caps: list[str] = msgspec.field(default_factory=lambda: list(DEFAULT_CAPABILITIES))
    denied_host_uids: str = ""
    denied_host_gids: str = ""
    allowed_modes: AllowedModes = AllowedModes()
    dynamic_users: bool = False


def plugin_config(block: Mapping[str, Any]) -> PluginConfig:
    """Read the agent's block, and refuse unusable settings at start-up; raises Invalid or DriverError."""
    config = decode_config(PluginConfig, block)
    namespace_mode("", option="default_pid_mode", default=config.default_pid_mode)
    namespace_mode("", option="default_ipc_mode", default=config.default_ipc_mode)
    capabilities(allowed=config.allow_caps, add=(), drop=())
    check_host_ids(config.user_namespace.first_host_id, config.user_namespace.count)
    user_namespace(TaskConfig(command=""), config)
    is_filtered("", default=config.default_seccomp, allowed=())
    return config


def user_namespace(task_config: TaskConfig, config: PluginConfig) -> IdMap | None:
    """The user namespace of a task, if it gets one."""
    return id_map(
        task_config.userns_mode,
        default=config.default_userns_mode,
        allowed=config.allowed_modes.userns,
        first=config.user_namespace.first_host_id,
        count=config.user_namespace.count,
    )


def user_rules(config: PluginConfig, options: Mapping[str, str]) -> UserRules:
    """The users that tasks of this driver must not run as."""
    return UserRules(
        names=denied_names(NAME, options),
        uids=parse_ranges(config.denied_host_uids, option="denied_host_uids"),
        gids=parse_ranges(config.denied_host_gids, option="denied_host_gids"),
    )


def working_folder(config: TaskConfig) -> str:
    """The root of the task's file system, or `work_dir`, which must be absolute."""
    if config.work_dir and not config.work_dir.startswith("/"):
        raise DriverError(f'work_dir "{config.work_dir}" must be an absolute path inside the task, as /local/x')
    return config.work_dir or "/"


def container_spec(request: TaskRequest, config: PluginConfig, *, host: tuple[Bind, ...]) -> ContainerSpec:
    """The isolated process of a task, within the agent's permissions."""
    task_config: TaskConfig = request.config
    base = ContainerSpec.of_task(request, (task_config.command, *task_config.args), host=host)
    return replace(
        base,
        process=replace(base.process, user=request.user or DEFAULT_USER, cwd=working_folder(task_config)),
        is_filtered=is_filtered(
            task_config.seccomp, default=config.default_seccomp, allowed=config.allowed_modes.seccomp
        ),
        id_map=user_namespace(task_config, config),
        rights=capabilities(allowed=config.allow_caps, add=task_config.cap_add, drop=task_config.cap_drop),
        pid_mode=namespace_mode(
            task_config.pid_mode, option="pid_mode", default=config.default_pid_mode, allowed=config.allowed_modes.pid
        ),
        ipc_mode=namespace_mode(
            task_config.ipc_mode, option="ipc_mode", default=config.default_ipc_mode, allowed=config.allowed_modes.ipc
        ),
        is_pivoting=not config.no_pivot_root,
    )
