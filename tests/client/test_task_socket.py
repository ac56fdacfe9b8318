"""The socket of the task API lies in the secrets directory, and what a task puts there leads it nowhere else."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir
from yurt.client.files.task_socket import SOCKET, bind_socket
from yurt.sdk.driver import TaskDirs


@pytest.fixture
def dirs(tmp_path: Path) -> TaskDirs:
    build_alloc_dir(str(tmp_path / "allocs"), "a")
    return build_task_dir(str(tmp_path / "allocs"), "a", "t")


def connect(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        with socket.socket(socket.AF_UNIX) as found:
            found.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def test_the_socket_can_be_reached_and_nothing_else_is_left(dirs: TaskDirs) -> None:
    secrets = Path(dirs.secrets_dir)
    with bind_socket(dirs) as listening:
        listening.listen()
        connect(secrets / SOCKET)
        found = os.lstat(secrets / SOCKET)
        assert stat.S_ISSOCK(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o666
        assert os.listdir(secrets) == [SOCKET]


def test_a_deep_directory_is_no_obstacle(tmp_path: Path) -> None:
    root = tmp_path / ("x" * 100)
    build_alloc_dir(str(root), "a")
    deep = build_task_dir(str(root), "a", "t")
    with bind_socket(deep) as listening:
        listening.listen()
        connect(Path(deep.secrets_dir) / SOCKET)


@pytest.mark.parametrize("kind", ["socket", "file", "link"])
def test_what_lies_there_is_replaced_and_not_followed(dirs: TaskDirs, tmp_path: Path, kind: str) -> None:
    place, outside = Path(dirs.secrets_dir) / SOCKET, tmp_path / "outside"
    outside.write_text("kept")
    outside.chmod(0o600)
    if kind == "socket":
        bind_socket(dirs).close()
    elif kind == "file":
        place.write_text("of the task")
    else:
        place.symlink_to(outside)
    with bind_socket(dirs) as listening:
        listening.listen()
        connect(place)
    assert (outside.read_text(), stat.S_IMODE(outside.stat().st_mode)) == ("kept", 0o600)


def test_a_directory_that_is_a_link_is_refused(dirs: TaskDirs, tmp_path: Path) -> None:
    secrets, outside = Path(dirs.secrets_dir), tmp_path / "outside"
    outside.mkdir()
    secrets.rmdir()
    secrets.symlink_to(outside)
    with pytest.raises(OSError):
        bind_socket(dirs)
    assert os.listdir(outside) == []


def test_a_directory_in_its_place_is_an_error(dirs: TaskDirs) -> None:
    (Path(dirs.secrets_dir) / SOCKET).mkdir()
    with pytest.raises(OSError):
        bind_socket(dirs)
    assert os.listdir(dirs.secrets_dir) == [SOCKET]


class SwappedSocket(socket.socket):
    """One whose file is replaced at once, as root of a container can do that looks at its secrets directory."""

    replace: Callable[[Path], None]

    def bind(self, address: Any) -> None:
        super().bind(address)
        bound = Path(address).resolve()
        bound.unlink()
        type(self).replace(bound)


@pytest.mark.parametrize("kind", ["link", "file", "hard link"])
def test_what_is_put_in_the_place_of_the_socket_keeps_its_mode(
    dirs: TaskDirs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    outside = tmp_path / "outside"
    if kind == "hard link":
        foreign = socket.socket(socket.AF_UNIX)
        folder = os.open(tmp_path, os.O_RDONLY)
        foreign.bind(f"/proc/self/fd/{folder}/{outside.name}")
        os.close(folder)
        foreign.close()
    else:
        outside.write_text("kept")
    outside.chmod(0o600)
    makes = {"link": Path.symlink_to, "file": lambda path, _: path.touch(0o600), "hard link": Path.hardlink_to}
    monkeypatch.setattr(SwappedSocket, "replace", lambda path: makes[kind](path, outside), raising=False)
    monkeypatch.setattr("yurt.client.files.task_socket.socket.socket", SwappedSocket)
    with pytest.raises(OSError, match="was replaced"):
        bind_socket(dirs)
    assert stat.S_IMODE(outside.stat().st_mode) == 0o600
    assert os.listdir(dirs.secrets_dir) == []
