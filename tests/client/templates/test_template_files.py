"""Files of templates never leave the task's directory, whatever the task puts in their way."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir
from yurt.client.templates import files
from yurt.client.templates.envfile import read_env
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied

NOBODY = (-1, -1)


@pytest.fixture
def dirs(tmp_path: Path) -> TaskDirs:
    build_alloc_dir(str(tmp_path / "allocs"), "a")
    build_task_dir(str(tmp_path / "allocs"), "a", "other")
    return build_task_dir(str(tmp_path / "allocs"), "a", "main")


def write(dirs: TaskDirs, path: str, body: bytes = b"text", mode: int = 0o640) -> Path:
    root, inner = files.place(path, dirs)
    files.write(root, inner, body, mode=mode, owner=NOBODY)
    return Path(root) / inner


def test_paths_are_taken_from_the_task_or_the_shared_directory(dirs: TaskDirs) -> None:
    for path, expected in (
        ("local/a/b", f"{dirs.task_dir}/local/a/b"),
        ("/local/c", f"{dirs.task_dir}/local/c"),
        ("/alloc/data/d", f"{dirs.shared_dir}/data/d"),
        (f"{dirs.secrets_dir}/e", f"{dirs.secrets_dir}/e"),
        ("/../../etc/f", f"{dirs.task_dir}/etc/f"),
    ):
        made = write(dirs, path)
        assert str(made) == expected and made.read_bytes() == b"text"
        assert stat.S_IMODE(made.stat().st_mode) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_may_belong_to_somebody(dirs: TaskDirs) -> None:
    files.write(dirs.task_dir, "local/x", b"text", mode=0o400, owner=(65534, -1))
    found = (Path(dirs.local_dir) / "x").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (65534, 0, 0o400)


@pytest.mark.parametrize("path", ["../other/secrets/x", "a/../../x", "", ".", "/", "a\0b", ".."])
def test_a_path_that_leaves_is_refused(dirs: TaskDirs, path: str) -> None:
    with pytest.raises(Invalid):
        write(dirs, path)
    with pytest.raises(Invalid):
        files.place(f"{dirs.alloc_dir}/other/local/x", dirs)


def test_a_link_a_fifo_and_a_socket_at_the_destination_are_replaced(dirs: TaskDirs, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("untouched")
    local = Path(dirs.local_dir)
    os.symlink(outside, local / "link")
    os.mkfifo(local / "fifo")
    os.link(outside, local / "hard")
    for name in ("link", "fifo", "hard"):
        made = write(dirs, f"local/{name}")
        assert made.is_file() and not made.is_symlink() and made.read_text() == "text"
    assert outside.read_text() == "untouched"
    assert sorted(os.listdir(local)) == ["fifo", "hard", "link"]


@pytest.mark.parametrize("target", ["/", "..", "../../other/secrets"])
def test_a_folder_that_is_a_link_is_not_passed(dirs: TaskDirs, target: str) -> None:
    os.symlink(target, Path(dirs.local_dir) / "sub")
    with pytest.raises(Invalid, match="passes a symlink"):
        write(dirs, "local/sub/file")
    assert not os.listdir(Path(dirs.alloc_dir) / "other" / "secrets")


def test_a_folder_at_the_destination_is_told(dirs: TaskDirs) -> None:
    (Path(dirs.local_dir) / "sub").mkdir()
    with pytest.raises(Invalid, match="is a folder"):
        write(dirs, "local/sub")
    assert not os.listdir(Path(dirs.local_dir) / "sub") and os.listdir(dirs.local_dir) == ["sub"]


def test_files_are_read_within_the_task_and_its_own_secrets_too(dirs: TaskDirs) -> None:
    write(dirs, "secrets/token", b"geheim")
    os.symlink("../secrets/token", Path(dirs.local_dir) / "link")
    for path in ("secrets/token", "local/link", "/secrets/token", f"{dirs.secrets_dir}/token"):
        assert files.read_file(path, dirs, is_sandboxed=True) == b"geheim"
    with pytest.raises(NotFound):
        files.read_file("local/none", dirs, is_sandboxed=True)


@pytest.mark.parametrize("link", ["/etc/hostname", "../../other/secrets/x", "/proc/self/root/etc/hostname"])
def test_no_link_leads_a_read_outside(dirs: TaskDirs, link: str) -> None:
    (Path(dirs.alloc_dir) / "other" / "secrets" / "x").write_text("of another task")
    os.symlink(link, Path(dirs.local_dir) / "link")
    with pytest.raises((PermissionDenied, NotFound, Invalid)):
        files.read_file("local/link", dirs, is_sandboxed=True)


def test_the_host_is_read_only_without_the_sandbox(dirs: TaskDirs, tmp_path: Path) -> None:
    (tmp_path / "host").write_text("of the host")
    with pytest.raises(Invalid, match="disable_file_sandbox"):
        files.read_file(str(tmp_path / "host"), dirs, is_sandboxed=True)
    assert files.read_file(str(tmp_path / "host"), dirs, is_sandboxed=False) == b"of the host"
    os.mkfifo(Path(dirs.local_dir) / "fifo")
    with pytest.raises(Invalid, match="is not a plain file"):
        files.read_file("local/fifo", dirs, is_sandboxed=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A=1\nexport B = two words \n", {"A": "1", "B": "two words"}),
        ("A='x # y' # no\n#C=1\n\nB=a#b", {"A": "x # y", "B": "a#b"}),
        ('A="l1\\nl2 \\"q\\" \\u0041"', {"A": 'l1\nl2 "q" A'}),
        ("A=\nB=''", {"A": "", "B": ""}),
        ('A={"json": 1}', {"A": "{json: 1}"}),
    ],
)
def test_variables_are_read_as_shells_write_them(text: str, expected: dict[str, str]) -> None:
    assert read_env(text.encode()) == expected


@pytest.mark.parametrize("text", ["A", "1A=x", "A B=1", "A='x", 'A="x', "A=a\0b"])
def test_a_line_that_is_no_variable_is_told(text: str) -> None:
    with pytest.raises(Invalid, match="line 2"):
        read_env(f"OK=1\n{text}".encode())
