"""The pure steps of raw_exec, and the switches that the agent's configuration has."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.driver import AgentPaths, PluginContext, TaskDirs, TaskRequest, TaskResources
from yurt.sdk.errors import DriverError, Invalid
from yurt.sdk.schema import check_config, decode_config, schema_of
from yurt_driver_raw_exec.config import (
    TaskConfig,
    command_line,
    denied,
    environment,
    parse_ranges,
    plugin_config,
    process_spec,
    working_folder,
)
from yurt_driver_raw_exec.driver import check_user
from yurt_driver_raw_exec.plugin import yurt_task_drivers

DIRS = TaskDirs(
    alloc_dir="/a", shared_dir="/a/alloc", task_dir="/a/web", local_dir="/a/web/local", secrets_dir="/a/web/secrets",
    logs_dir="/a/alloc/logs",
)  # fmt: skip


def request(
    config: Mapping[str, Any] | None = None,
    *,
    env: Mapping[str, str] | None = None,
    resources: TaskResources | None = None,
    user: str = "",
) -> TaskRequest:
    return TaskRequest(
        task_id="a/web/0",
        alloc_id="a",
        task_name="web",
        job_id="job",
        group_name="group",
        namespace="default",
        config=decode_config(TaskConfig, {"command": "serve", **(config or {})}),
        env=env or {},
        dirs=DIRS,
        resources=resources or TaskResources(cpu_shares=100, memory_mb=64),
        user=user,
    )


def context(folder: Path | None = None, **changes: Any) -> PluginContext:
    return PluginContext(paths=AgentPaths(state_dir=str(folder), run_dir=str(folder)), **changes)


def test_the_command_line_is_the_command_and_its_arguments_and_no_shell() -> None:
    assert command_line(request({"args": ["-p", "${x} *"]})) == ("serve", "-p", "${x} *")


def test_a_task_starts_in_its_own_folder_or_in_work_dir() -> None:
    assert working_folder(request()) == "/a/web"
    assert working_folder(request({"work_dir": "/srv"})) == "/srv"


def test_a_relative_work_dir_is_refused() -> None:
    with pytest.raises(DriverError, match="absolute"):
        working_folder(request({"work_dir": "srv"}))


def test_variables_are_denied_by_name_and_pattern_of_agent_and_task() -> None:
    env = {"PATH": "/bin", "AWS_KEY": "1", "AWS_ID": "2", "TOKEN": "3"}
    assert environment(request({"denied_envvars": ["TOKEN"]}, env=env), ("AWS_*",)) == {"PATH": "/bin"}


def test_the_command_is_looked_for_in_the_task_folder_first() -> None:
    assert process_spec(request()).search == ("/a/web/local", "/a/web")


@pytest.mark.parametrize(
    ("memory_mb", "memory_max_mb", "limit_mb", "reserved_mb"), [(64, 0, 64, 0), (64, 256, 256, 64), (64, -1, 0, 64)]
)
def test_memory_is_limited_by_memory_max_or_else_by_memory(
    memory_mb: int, memory_max_mb: int, limit_mb: int, reserved_mb: int
) -> None:
    cgroup = process_spec(request(resources=TaskResources(memory_mb=memory_mb, memory_max_mb=memory_max_mb))).cgroup
    assert (cgroup.memory_bytes, cgroup.memory_reserved_bytes) == (limit_mb << 20, reserved_mb << 20)


def test_an_override_of_the_cgroup_drops_our_limits() -> None:
    cgroup = process_spec(request({"cgroup_v1_override": [{"memory": "x"}, {"cpu": "y"}]})).cgroup
    assert (cgroup.override_v1, cgroup.memory_bytes) == ({"memory": "x", "cpu": "y"}, 0)


def test_both_overrides_at_once_are_refused() -> None:
    with pytest.raises(DriverError, match="exclude each other"):
        process_spec(request({"cgroup_v1_override": {"cpu": "y"}, "cgroup_v2_override": "x"}))


def test_oom_score_adj_is_handed_on() -> None:
    assert process_spec(request({"oom_score_adj": "500"})).oom_score_adj == 500
    assert process_spec(request()).oom_score_adj is None


@pytest.mark.parametrize(
    ("changes", "enabled"),
    [
        ({}, False),
        ({"dev": True}, True),
        ({"config": {"enabled": "true"}}, True),
        ({"options": {"driver.raw_exec.enable": "1"}}, True),
        ({"options": {"driver.raw_exec.enable": "false"}}, False),
    ],
)
def test_the_driver_is_enabled_by_dev_by_its_block_or_by_a_client_option(
    changes: dict[str, Any], enabled: bool
) -> None:
    assert plugin_config(context(**changes)).enabled is enabled


def test_ranges_of_ids_include_both_ends() -> None:
    ranges = parse_ranges("0, 10-20", option="denied_host_uids")
    assert [uid for uid in (0, 1, 9, 10, 20, 21) if denied([uid], ranges) is not None] == [0, 10, 20]


@pytest.mark.parametrize("text", ["x", "20-10", "1-2-3", "-5"])
def test_what_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="denied_host_uids"):
        parse_ranges(text, option="denied_host_uids")


def test_a_denied_user_is_named_with_the_option_that_denies_it() -> None:
    config = plugin_config(context(config={"enabled": True, "denied_host_uids": "0"}))
    with pytest.raises(DriverError, match="denied_host_uids"):
        check_user(config, "root")


def test_a_denied_group_is_named_too() -> None:
    config = plugin_config(context(config={"enabled": True, "denied_host_gids": "0"}))
    with pytest.raises(DriverError, match="denied_host_gids"):
        check_user(config, "root")


def test_a_misspelt_option_of_a_task_is_told_at_registration() -> None:
    (problem,) = check_config(schema_of(TaskConfig), {"command": "x", "arg": ["y"]})
    assert problem.hint == 'did you mean "args"?'


async def test_a_disabled_driver_says_how_to_enable_it_and_starts_nothing(tmp_path: Path) -> None:
    (driver,) = yurt_task_drivers(context(tmp_path))
    first = await anext(driver.fingerprint())
    assert (first.health, "enabled = true" in first.fix) == ("undetected", True)
    with pytest.raises(DriverError, match="enabled = true"):
        await driver.start_task(request())
    await driver.close()
