"""The directory tree of an allocation."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_directory_of_an_allocation_is_closed_to_other_users(tmp_path: Path) -> None:
    build_alloc_dir(str(tmp_path), "id")
    build_task_dir(str(tmp_path), "id", "web")
    assert mode_of(tmp_path / "id") == 0o700
    assert mode_of(tmp_path / "id" / "web" / "local") == mode_of(tmp_path / "id" / "alloc") == 0o777


def test_who_was_let_through_stays_so_when_it_is_built_again(tmp_path: Path) -> None:
    build_alloc_dir(str(tmp_path), "id")
    (tmp_path / "id").chmod(0o711)
    build_alloc_dir(str(tmp_path), "id")
    assert mode_of(tmp_path / "id") == 0o711


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "id").symlink_to("elsewhere")
    with pytest.raises(OSError):
        build_alloc_dir(str(tmp_path), "id")
