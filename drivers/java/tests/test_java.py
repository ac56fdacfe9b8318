"""The pure steps of java: its options, command lines and version."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from yurt.sdk.driver import (
    UNDETECTED,
    UNHEALTHY,
    AgentPaths,
    Driver,
    Fingerprint,
    PluginContext,
    TaskDirs,
    TaskRequest,
    TaskResources,
)
from yurt.sdk.errors import DriverError, Invalid
from yurt.sdk.executor import Bind
from yurt.sdk.schema import check_config, decode_config, schema_of
from yurt.sdk.value import replace
from yurt_driver_java.config import (
    TaskConfig,
    command_line,
    container_spec,
    plugin_config,
    process_spec,
    version_attributes,
)
from yurt_driver_java.driver import java_driver, plain_driver, user_rules

DIRS = TaskDirs(
    alloc_dir="/a", shared_dir="/a/alloc", task_dir="/a/web", local_dir="/a/web/local", secrets_dir="/a/web/secrets",
    logs_dir="/a/alloc/logs",
)  # fmt: skip
VERSION_TEXT = """openjdk version "17.0.15" 2025-04-15
OpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)
OpenJDK 64-Bit Server VM (build 17.0.15+6-Debian-1deb12u1, mixed mode, sharing)
"""

HOST = (Bind(source="/usr", target="/usr"),)


def request(config: Mapping[str, Any], *, user: str = "") -> TaskRequest:
    return TaskRequest(
        task_id="a/web/0",
        alloc_id="a",
        task_name="web",
        job_id="j",
        group_name="g",
        namespace="default",
        config=decode_config(TaskConfig, config),
        env={},
        dirs=DIRS,
        resources=TaskResources(memory_mb=64),
        user=user,
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"jar_path": "local/a.jar"}, "-jar local/a.jar"),
        ({"jar_path": "a.jar", "args": ["x", "y"], "jvm_options": ["-Xmx1g"]}, "-Xmx1g -jar a.jar x y"),
        ({"jar_path": "a.jar", "class_path": "lib/*"}, "-cp lib/* -jar a.jar"),
        ({"class": "Main"}, "Main"),
        ({"class": "Main", "class_path": "/alloc", "args": ["z"]}, "-cp /alloc Main z"),
        ({"class": "Main", "jar_path": "a.jar", "class_path": "b"}, "-cp a.jar:b Main"),
    ],
)
def test_the_command_line_is_options_then_program_then_arguments(config: Mapping[str, Any], words: str) -> None:
    assert command_line(decode_config(TaskConfig, config), "/usr/bin/java") == ("/usr/bin/java", *words.split())


def test_a_task_that_names_no_program_is_told_how() -> None:
    with pytest.raises(DriverError, match="jar_path"):
        command_line(TaskConfig(), "java")


def test_version_runtime_and_machine_become_attributes() -> None:
    assert version_attributes("Picked up JAVA_TOOL_OPTIONS: -Xmx1g\n" + VERSION_TEXT) == {
        "driver.java": "1",
        "driver.java.version": "17.0.15",
        "driver.java.runtime": "OpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)",
        "driver.java.vm": "OpenJDK 64-Bit Server VM (build 17.0.15+6-Debian-1deb12u1, mixed mode, sharing)",
    }


def test_what_is_no_version_gives_no_attributes() -> None:
    assert version_attributes("java: not found") == {}


def test_an_isolated_task_is_nobody_with_the_hosts_java() -> None:
    config, plugin = {"jar_path": "local/a.jar"}, plugin_config({})
    spec = container_spec(request(config), plugin, java="/usr/bin/java", host=HOST, java_home="/usr/lib/j")
    assert (spec.process.user, spec.process.search, spec.pid_mode) == ("nobody", (), "private")
    assert [bind.target for bind in (*spec.host, *spec.binds)] == ["/usr", "/alloc"]
    assert (spec.is_filtered, spec.rights.of_others) == (True, ())


def test_a_java_outside_of_the_system_folders_is_mounted_read_only() -> None:
    config, plugin = {"jar_path": "local/a.jar"}, plugin_config({})
    spec = container_spec(request(config), plugin, java="/opt/j/bin/java", host=HOST, java_home="/opt/j")
    assert [(bind.target, bind.is_writable) for bind in spec.host if bind.source == "/opt/j"] == [("/opt/j", False)]


def test_more_than_the_agent_allows_is_refused() -> None:
    for asked in ({"pid_mode": "host"}, {"ipc_mode": "host"}, {"cap_add": ["sys_admin"]}):
        with pytest.raises(DriverError, match="allow"):
            container_spec(request({"class": "M", **asked}), plugin_config({}), java="java", host=HOST, java_home="/")


def test_without_isolation_what_only_isolation_can_give_is_refused() -> None:
    assert process_spec(request({"class": "Main"}), "/usr/bin/java").cwd == "/a/web"
    with pytest.raises(DriverError, match="cap_drop"):
        process_spec(request({"class": "Main", "cap_drop": ["all"]}), "/usr/bin/java")


def test_root_is_denied_unless_the_client_checks_java_no_more() -> None:
    assert user_rules(PluginContext()).names == ("root", "Administrator")
    assert user_rules(PluginContext(options={"user.checked_drivers": "exec"})).names == ()


def test_misspelt_options_are_told() -> None:
    (problem,) = check_config(schema_of(TaskConfig), {"jar_pth": "x"})
    assert problem.hint == 'did you mean "jar_path"?'
    with pytest.raises(Invalid, match="allow_caps"):
        plugin_config({"allow_cap": []})


async def first_fingerprint(folder: Path, make: Callable[[PluginContext], Driver] = plain_driver) -> Fingerprint:
    driver = make(PluginContext(paths=AgentPaths(state_dir=str(folder), run_dir=str(folder))))
    try:
        return await anext(driver.fingerprint())
    finally:
        await driver.close()


async def test_without_java_the_driver_is_undetected_and_says_how_to_install_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = await first_fingerprint(tmp_path)
    assert (found.health, found.fix) == (UNDETECTED, "apt install default-jre-headless")


def write_java(folder: Path, script: str) -> None:
    (folder / "java").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "java").chmod(0o755)


async def test_an_agent_that_cannot_isolate_runs_no_java_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_java(tmp_path, f"/bin/cat >&2 <<'END'\n{VERSION_TEXT}END")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    found = await first_fingerprint(tmp_path, java_driver)
    assert (found.health, found.attributes) == (UNHEALTHY, {})
    assert "cannot isolate tasks" in found.description
    assert "allow_unisolated = true" in found.fix


async def test_a_task_that_reaches_such_an_agent_all_the_same_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_java(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    driver = java_driver(PluginContext(paths=AgentPaths(state_dir=str(tmp_path), run_dir=str(tmp_path))))
    with pytest.raises(DriverError, match="cannot be isolated"):
        await driver.start_task(request({"class": "Main"}))
    await driver.close()


def test_the_operator_may_allow_tasks_without_isolation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    context = PluginContext(
        paths=AgentPaths(state_dir=str(tmp_path), run_dir=str(tmp_path)), config={"allow_unisolated": True}
    )
    assert java_driver(context).capabilities.fs_isolation == "none"
    assert java_driver(replace(context, config={})).capabilities.fs_isolation == "chroot"


async def test_a_java_that_does_not_work_makes_the_driver_unhealthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_java(tmp_path, "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = await first_fingerprint(tmp_path)
    assert found.health == UNHEALTHY
    assert "ended with 1" in found.description
