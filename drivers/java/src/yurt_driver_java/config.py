"""The options of java, and the steps from a task to its command line and process. Pure."""

from __future__ import annotations

import os.path
import re
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
    ProcessSpec,
    capabilities,
    check_host_ids,
    id_map,
    is_filtered,
    namespace_mode,
)
from yurt.sdk.schema import decode_config
from yurt.sdk.value import replace

NAME = "java"
VERSION = re.compile(r'version "([^"]*)"')


class TaskConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of a task."""

    class_name: str = msgspec.field(default="", name="class")
    class_path: str = ""
    jar_path: str = ""
    jvm_options: list[str] = []
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
    """The `config` block of `plugin "java"` in the agent's configuration."""

    default_pid_mode: str = "private"
    default_ipc_mode: str = "private"
    default_userns_mode: str = "host"
    default_seccomp: str = "default"
    user_namespace: UserNamespace = UserNamespace()
    allow_caps: list[str] = msgspec.field(default_factory=lambda: list(DEFAULT_CAPABILITIES))
    allowed_modes: AllowedModes = AllowedModes()
    allow_unisolated: bool = False


def plugin_config(block: Mapping[str, Any]) -> PluginConfig:
    """Read the agent's block, and refuse unusable settings at start-up; raises Invalid or DriverError."""
    config = decode_config(PluginConfig, block)
    namespace_mode("", option="default_pid_mode", default=config.default_pid_mode)
    namespace_mode("", option="default_ipc_mode", default=config.default_ipc_mode)
    capabilities(allowed=config.allow_caps, add=(), drop=())
    check_host_ids(config.user_namespace.first_host_id, config.user_namespace.count)
    user_namespace(TaskConfig(), config)
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


def version_attributes(text: str) -> dict[str, str]:
    """Version, runtime and virtual machine from the lines of `java -version`; empty without a version."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    at = next((index for index, line in enumerate(lines) if VERSION.search(line)), None)
    if at is None:
        return {}
    version = VERSION.search(lines[at])
    assert version is not None, lines[at]
    rest = [*lines[at + 1 : at + 3], "", ""]
    return {
        f"driver.{NAME}": "1",
        f"driver.{NAME}.version": version.group(1),
        f"driver.{NAME}.runtime": rest[0],
        f"driver.{NAME}.vm": rest[1],
    }


def command_line(config: TaskConfig, java: str) -> tuple[str, ...]:
    """java with its options, then a jar, a class, or a class of a jar, then the program's arguments."""
    if not config.jar_path and not config.class_name:
        raise DriverError('the task names nothing to run; set jar_path = "local/app.jar" or class = "Main"')
    options = (java, *config.jvm_options)
    if config.class_name:
        path = ":".join(filter(None, (config.jar_path, config.class_path)))
        found = ("-cp", path) if path else ()
        return (*options, *found, config.class_name, *config.args)
    found = ("-cp", config.class_path) if config.class_path else ()
    return (*options, *found, "-jar", config.jar_path, *config.args)


def working_folder(config: TaskConfig, default: str) -> str:
    """The task's folder, or `work_dir`, which must be absolute."""
    if config.work_dir and not config.work_dir.startswith("/"):
        raise DriverError(f'work_dir "{config.work_dir}" must be an absolute path, for example ${{NOMAD_TASK_DIR}}/x')
    return config.work_dir or default


def process_spec(request: TaskRequest, java: str) -> ProcessSpec:
    """A task without isolation; options that require isolation are refused."""
    config: TaskConfig = request.config
    refused = [
        name
        for name in ("pid_mode", "ipc_mode", "cap_add", "cap_drop", "userns_mode", "seccomp")
        if getattr(config, name)
    ]
    if refused:
        raise DriverError(f"{', '.join(refused)}: java tasks are not isolated on this client; run it as root with runc")
    base = ProcessSpec.of_task(request, command_line(config, java))
    return replace(base, cwd=working_folder(config, base.cwd))


def container_spec(
    request: TaskRequest, config: PluginConfig, *, java: str, host: tuple[Bind, ...], java_home: str
) -> ContainerSpec:
    """An isolated task, within the agent's permissions; a Java outside of the host's folders is mounted too."""
    task_config: TaskConfig = request.config
    base = ContainerSpec.of_task(request, command_line(task_config, java), host=host)
    is_visible = any(is_below(java_home, each.source) and each.source == each.target for each in host)
    return replace(
        base,
        process=replace(
            base.process,
            user=request.user or DEFAULT_USER,
            cwd=working_folder(task_config, base.process.cwd),
            search=(),
        ),
        host=host if is_visible else (*host, Bind(source=java_home, target=java_home)),
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
    )


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder or lies below it."""
    return os.path.commonpath((path, folder)) == folder
