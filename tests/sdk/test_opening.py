"""Opening files below a folder: cheap enough to be done for each piece of a log."""

from __future__ import annotations

import errno
import gc
import os
from pathlib import Path

import pytest
from yurt.sdk import opening
from yurt.sdk.opening import READ_FLAGS, RESOLVE_BENEATH, has_openat2, hold, openat2


@pytest.mark.skipif(not has_openat2(), reason="the kernel has no openat2")
def test_opening_files_leaves_nothing_for_the_garbage_collector(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = os.open(tmp_path, os.O_RDONLY)
    gc.collect()
    gc.disable()
    try:
        for _ in range(100):
            os.close(openat2(folder, "file", READ_FLAGS, resolve=RESOLVE_BENEATH))
        assert gc.collect() < 100
    finally:
        gc.enable()
        os.close(folder)


@pytest.fixture(params=["at once", "step by step", "refused by a filter of system calls"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How a path is held: by one system call, or where the kernel or a filter does not know it."""
    if request.param == "step by step":
        monkeypatch.setattr(opening, "has_openat2", lambda: False)
    elif request.param != "at once":
        monkeypatch.setattr(opening, "openat2", lambda *_args, **_kwargs: -errno.EPERM)


@pytest.mark.usefixtures("way")
def test_a_held_path_is_the_named_file_or_folder(tmp_path: Path) -> None:
    (tmp_path / "a" / "b..c").mkdir(parents=True)
    for path, expected in (("a/b..c", "a/b..c"), ("./a//", "a"), ("", ".")):
        fd = hold(str(tmp_path), path)
        try:
            assert os.path.samestat(os.fstat(fd), os.stat(tmp_path / expected))
        finally:
            os.close(fd)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("link", errno.ELOOP),
        ("link/file", errno.ELOOP),
        ("folder/inner", errno.ELOOP),
        ("folder/..", errno.EXDEV),
        ("missing", errno.ENOENT),
        ("file/below", errno.ENOTDIR),
    ],
)
def test_a_held_path_leads_over_no_link_and_not_above(tmp_path: Path, path: str, number: int) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "folder" / "inner").symlink_to("../file")
    open_before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="Errno") as caught:
        os.close(hold(str(tmp_path), path))
    assert caught.value.errno == number
    assert len(os.listdir("/proc/self/fd")) == open_before


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("path", ["secrets\0x", "a/\ud800"])
def test_a_path_that_names_no_file_is_refused_and_leaves_nothing_open(tmp_path: Path, path: str) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "a").mkdir()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises((ValueError, OSError)):
            os.close(hold(str(tmp_path), path))
    assert len(os.listdir("/proc/self/fd")) == before
