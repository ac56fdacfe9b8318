"""Where isolation is possible, and what an operator is told where it is not."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from yurt.executor.container_executor import (
    ContainerExecutor,
    device_file,
    inside_command,
    is_32bit,
    is_spared,
    kernel_version,
)
from yurt.executor.oci import runc
from yurt.executor.oci.bundle import ContainerSpec
from yurt.executor.spec import ProcessSpec
from yurt.sdk.driver import AgentPaths, DeviceNode, PluginContext
from yurt.sdk.errors import DriverError

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux")


def executor(folder: Path) -> ContainerExecutor:
    return ContainerExecutor.from_context(PluginContext(paths=AgentPaths(state_dir=str(folder), run_dir=str(folder))))


def spec(root: Path, *argv: str) -> ContainerSpec:
    process = ProcessSpec(task_id="t", argv=argv, env={}, cwd="/", logs_dir="/", log_name="t", search=("/local", "/"))
    return ContainerSpec(process=process, root=str(root))


@linux
def test_a_normal_user_is_told_to_run_the_agent_as_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert executor(tmp_path).obstacle() == (
        "the agent runs as uid 1000 and isolation takes root", "run the agent as root"
    )  # fmt: skip


@linux
def test_without_runc_the_way_to_install_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(runc, "SBIN", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert executor(tmp_path).obstacle() == ("runc is not on PATH", "apt install runc")


def test_a_command_is_a_file_of_the_tasks_folders_or_stays_as_given(tmp_path: Path) -> None:
    (tmp_path / "local" / "bin").mkdir(parents=True)
    for name in ("local/tool", "local/bin/app", "top"):
        (tmp_path / name).touch()
    (tmp_path / "local" / "link").symlink_to("/usr/bin/only-inside")
    for given, found in (
        ("tool", "/local/tool"),
        ("bin/app", "/local/bin/app"),
        ("./bin/app", "/local/bin/app"),
        ("top", "/top"),
        ("link", "/local/link"),
        ("bin", "bin"),
        ("sh", "sh"),
        ("/local/tool", "/local/tool"),
    ):
        assert inside_command(spec(tmp_path, given, "-x")) == (found, "-x")


def test_the_version_of_a_kernel_is_read_from_its_release() -> None:
    assert [kernel_version(text) for text in ("6.1.0-13-amd64", "5.4", "odd")] == [(6, 1), (5, 4), (0, 0)]


@linux
def test_a_process_of_the_hosts_namespace_feels_every_signal() -> None:
    assert not is_spared(os.getpid(), 15)
    assert not is_spared(2**22 + 1, 15)


@linux
def test_a_device_node_is_looked_at_and_anything_else_refused(tmp_path: Path) -> None:
    found = device_file(DeviceNode(host_path="/dev/null", task_path="/dev/fpga", permissions="r"))
    (tmp_path / "file").touch()

    assert (found.path, found.kind, found.major, found.minor, found.rights) == ("/dev/fpga", "c", 1, 3, "r")
    for path, word in ((tmp_path / "none", "is not on this machine"), (tmp_path / "file", "is not a device node")):
        with pytest.raises(DriverError, match=word):
            device_file(DeviceNode(host_path=str(path)))


@linux
def test_a_program_of_half_the_word_size_is_told_by_its_header(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    for name, start in (("old", b"\x7fELF\x01\x01"), ("new", b"\x7fELF\x02\x01"), ("script", b"#!")):
        (tmp_path / "local" / name).write_bytes(start)
    (tmp_path / "local" / "link").symlink_to("old")
    os.mkfifo(tmp_path / "local" / "pipe")
    found = {name: is_32bit(str(tmp_path), f"/local/{name}") for name in ("old", "new", "script", "link", "pipe", "no")}
    assert [name for name, is_old in found.items() if is_old] == ["old"]
    assert not is_32bit(str(tmp_path), "sh")
