"""The pure steps of exec: its options, and what they make of a task."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.driver import UNHEALTHY, AgentPaths, PluginContext, TaskDirs, TaskRequest, TaskResources
from yurt.sdk.errors import DriverError, Invalid
from yurt.sdk.executor import DEFAULT_CAPABILITIES, Abilities, Bind, ContainerSpec, IdMap
from yurt.sdk.schema import check_config, decode_config, schema_of
from yurt_driver_exec.config import TaskConfig, container_spec, plugin_config, user_rules
from yurt_driver_exec.driver import fingerprint_of
from yurt_driver_exec.plugin import yurt_task_drivers

DIRS = TaskDirs(
    alloc_dir="/a", shared_dir="/a/alloc", task_dir="/a/web", local_dir="/a/web/local", secrets_dir="/a/web/secrets",
    logs_dir="/a/alloc/logs",
)  # fmt: skip

HOST = (Bind(source="/usr", target="/usr"),)


def task_request(config: Mapping[str, Any], *, user: str = "") -> TaskRequest:
    return TaskRequest(
        task_id="a/web/0",
        alloc_id="a",
        task_name="web",
        job_id="j",
        group_name="g",
        namespace="default",
        config=decode_config(TaskConfig, {"command": "serve", **config}),
        env={},
        dirs=DIRS,
        resources=TaskResources(cpu_shares=100, memory_mb=64),
        user=user,
    )


def spec_of(config: Mapping[str, Any], *, plugin: Mapping[str, Any] | None = None, user: str = "") -> ContainerSpec:
    return container_spec(task_request(config, user=user), plugin_config(plugin or {}), host=HOST)


def test_a_task_runs_as_nobody_in_the_root_of_its_own_file_system() -> None:
    process = spec_of({"args": ["-x", "$Y"]}).process
    assert (process.user, process.cwd, process.argv) == ("nobody", "/", ("serve", "-x", "$Y"))


def test_a_task_has_the_default_rights_and_private_namespaces() -> None:
    spec = spec_of({})
    assert {name.removeprefix("CAP_").lower() for name in spec.rights.of_root} == set(DEFAULT_CAPABILITIES)
    assert (spec.rights.of_others, spec.is_filtered, spec.id_map) == ((), True, None)
    assert (spec.pid_mode, spec.ipc_mode, spec.is_pivoting) == ("private", "private", True)


def test_the_command_is_looked_for_in_the_tasks_folders_first() -> None:
    assert spec_of({}).process.search == ("/local", "/")


def test_the_agent_decides_about_defaults_modes_and_pivoting() -> None:
    plugin = {"default_ipc_mode": "host", "no_pivot_root": True, "allowed_modes": {"pid": ["host"]}}
    spec = spec_of({"pid_mode": "host"}, plugin=plugin)
    assert (spec.pid_mode, spec.ipc_mode, spec.is_pivoting) == ("host", "host", False)


def test_the_agent_decides_about_the_filter_and_user_namespaces() -> None:
    mapped = {"user_namespace": {"first_host_id": 100_000}}
    assert spec_of({"userns_mode": "private"}, plugin=mapped).id_map == IdMap(first_host_id=100_000, count=65536)
    usual = mapped | {"default_userns_mode": "private", "default_seccomp": "unconfined"}
    assert (spec_of({}, plugin=usual).is_filtered, spec_of({"seccomp": "default"}, plugin=usual).is_filtered) == (
        False, True,
    )  # fmt: skip
    with pytest.raises(DriverError, match=r'userns = \["host"\]'):
        spec_of({"userns_mode": "host"}, plugin=usual)
    given = usual | {"allowed_modes": {"userns": ["host"]}}
    assert spec_of({"userns_mode": "host"}, plugin=given).id_map is None


@pytest.mark.parametrize(
    ("config", "option"),
    [
        ({"pid_mode": "host"}, "allowed_modes"),
        ({"ipc_mode": "host"}, "allowed_modes"),
        ({"cap_add": ["sys_admin"]}, "allow_caps"),
        ({"cap_add": ["all"]}, "allow_caps"),
        ({"work_dir": "local/x"}, "absolute"),
        ({"seccomp": "unconfined"}, r'seccomp = \["unconfined"\]'),
        ({"seccomp": "none"}, '"default" or "unconfined"'),
        ({"userns_mode": "private"}, "first_host_id"),
    ],
)
def test_what_is_not_allowed_is_refused_with_the_way_to_allow_it(config: Mapping[str, Any], option: str) -> None:
    with pytest.raises(DriverError, match=option):
        spec_of(config)


@pytest.mark.parametrize(
    "block",
    [
        {"default_pid_mode": "guest"},
        {"allow_caps": ["sys_admn"]},
        {"allow_cap": []},
        {"default_userns_mode": "private"},
        {"default_seccomp": "off"},
        {"user_namespace": {"first_host_id": -1}},
        {"user_namespace": {"first_host_id": 4294967290}},
    ],
)
def test_a_wrong_agent_block_is_refused_at_the_start(block: Mapping[str, Any]) -> None:
    with pytest.raises((DriverError, Invalid)):
        plugin_config(block)


def test_root_is_denied_by_default_and_ids_by_the_agents_block() -> None:
    rules = user_rules(plugin_config({"denied_host_uids": "0-99"}), {})
    assert rules.names == ("root", "Administrator")
    assert 50 in rules.uids[0]


def test_a_misspelt_option_of_a_task_is_told_at_registration() -> None:
    (problem,) = check_config(schema_of(TaskConfig), {"command": "x", "cap_ad": []})
    assert problem.hint == 'did you mean "cap_add"?'


@pytest.mark.skipif(sys.platform != "linux", reason="isolation needs Linux")
async def test_an_agent_that_is_not_root_has_an_unhealthy_driver_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (driver,) = yurt_task_drivers(PluginContext(paths=AgentPaths(state_dir=str(tmp_path), run_dir=str(tmp_path))))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = await anext(driver.fingerprint())
    assert (found.health, found.fix) == (UNHEALTHY, "run the agent as root")
    assert "uid 1000" in found.description
    with pytest.raises(DriverError, match="uid 1000"):
        await driver.start_task(task_request({}))
    await driver.close()


def test_a_machine_without_a_filter_or_user_namespaces_says_so_on_the_node() -> None:
    whole = fingerprint_of(Abilities())
    assert (whole.description, whole.fix) == ("Healthy", "")
    assert (whole.attributes["driver.exec.seccomp"], whole.attributes["driver.exec.user_namespaces"]) == (
        "true", "true",
    )  # fmt: skip
    lacking = fingerprint_of(Abilities(filter_problem="no seccomp", user_namespace_problem="none"))
    assert "without a filter of system calls: no seccomp" in lacking.description
    assert (lacking.attributes["driver.exec.seccomp"], lacking.attributes["driver.exec.user_namespaces"]) == (
        "false", "false",
    )  # fmt: skip
