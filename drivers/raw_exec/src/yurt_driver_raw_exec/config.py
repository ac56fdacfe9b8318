"""The options of raw_exec, and the step from a task to its process. Pure."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

import msgspec
from yurt.sdk.driver import PluginContext, TaskRequest
from yurt.sdk.errors import DriverError, Invalid
from yurt.sdk.executor import CgroupSpec, ProcessSpec
from yurt.sdk.schema import decode_config
from yurt.sdk.value import replace

ENABLE_OPTION = "driver.raw_exec.enable"
TRUE_WORDS = ("1", "t", "true", "yes")


class TaskConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of a task."""

    command: str
    args: list[str] = []
    work_dir: str = ""
    cgroup_v1_override: list[dict[str, str]] = []
    cgroup_v2_override: str = ""
    oom_score_adj: int = 0
    denied_envvars: list[str] = []


class PluginOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `config` block of `plugin "raw_exec"` in the agent's configuration."""

    enabled: bool = False
    denied_host_uids: str = ""
    denied_host_gids: str = ""
    denied_envvars: list[str] = []
    dynamic_users: bool = False


class PluginConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's settings: whether the driver is enabled, denied users, and dynamic ones."""

    enabled: bool
    denied_uids: tuple[range, ...] = ()
    denied_gids: tuple[range, ...] = ()
    denied_envvars: tuple[str, ...] = ()
    dynamic_users: bool = False


def plugin_config(context: PluginContext) -> PluginConfig:
    """Read the agent's configuration; a dev agent enables the driver."""
    options = decode_config(PluginOptions, context.config)
    by_client_option = context.options.get(ENABLE_OPTION, "").lower() in TRUE_WORDS
    return PluginConfig(
        enabled=options.enabled or by_client_option or context.dev,
        denied_uids=parse_ranges(options.denied_host_uids, option="denied_host_uids"),
        denied_gids=parse_ranges(options.denied_host_gids, option="denied_host_gids"),
        denied_envvars=tuple(options.denied_envvars),
        dynamic_users=options.dynamic_users,
    )


def parse_ranges(text: str, *, option: str) -> tuple[range, ...]:
    """Parse ranges of ids: `"0,10-20"` as inclusive ranges."""
    ranges = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        last = last or first
        if not first.isdigit() or not last.isdigit() or int(first) > int(last):
            raise Invalid(f'{option}: "{part}" is not a valid id or range of ids; write it as "0,10-20"')
        ranges.append(range(int(first), int(last) + 1))
    return tuple(ranges)


def denied(ids: Iterable[int], ranges: tuple[range, ...]) -> int | None:
    """The first denied id."""
    return next((each for each in ids if any(each in span for span in ranges)), None)


def command_line(request: TaskRequest) -> tuple[str, ...]:
    """The command and its arguments for the kernel, without a shell."""
    config: TaskConfig = request.config
    return (config.command, *config.args)


def working_folder(request: TaskRequest) -> str:
    """The task's own folder, or `work_dir`, which must be absolute."""
    config: TaskConfig = request.config
    if config.work_dir and not config.work_dir.startswith("/"):
        raise DriverError(f'work_dir "{config.work_dir}" must be an absolute path, for example ${{NOMAD_TASK_DIR}}/x')
    return config.work_dir or request.dirs.task_dir


def environment(request: TaskRequest, denied_patterns: tuple[str, ...]) -> dict[str, str]:
    """The task's variables without those denied by name or pattern (`AWS_*`) by the agent or the task."""
    config: TaskConfig = request.config
    patterns = (*denied_patterns, *config.denied_envvars)
    return {
        name: value
        for name, value in request.env.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }


def cgroup_spec(request: TaskRequest) -> CgroupSpec:
    """The limits of the task, or the operator's own cgroups."""
    config: TaskConfig = request.config
    if config.cgroup_v2_override or config.cgroup_v1_override:
        if config.cgroup_v2_override and config.cgroup_v1_override:
            raise DriverError("cgroup_v1_override and cgroup_v2_override exclude each other; keep the one of this host")
        merged = {name: path for each in config.cgroup_v1_override for name, path in each.items()}
        return CgroupSpec(override_v2=config.cgroup_v2_override, override_v1=merged)
    return CgroupSpec.of_resources(request.resources)


def process_spec(request: TaskRequest, denied_patterns: tuple[str, ...] = ()) -> ProcessSpec:
    """The process of a task."""
    config: TaskConfig = request.config
    return replace(
        ProcessSpec.of_task(request, command_line(request)),
        env=environment(request, denied_patterns),
        cwd=working_folder(request),
        cgroup=cgroup_spec(request),
        oom_score_adj=config.oom_score_adj or None,
    )
