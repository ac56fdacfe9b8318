"""The socket of the task API lies in the secrets directory, and what a task puts there leads it nowhere else."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

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
