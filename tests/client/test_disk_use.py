"""What an allocation takes of the disk, and what becomes of one that takes too much."""

from __future__ import annotations

import os
from pathlib import Path

from yurt.client.disk_use import bytes_below


def test_all_files_below_count_once_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    before = bytes_below(str(tmp_path))
    (tmp_path / "deep" / "er" / "file").write_bytes(b"x" * 1_000_000)
    os.link(tmp_path / "deep" / "er" / "file", tmp_path / "again")
    os.symlink("/usr", tmp_path / "link")
    used = bytes_below(str(tmp_path)) - before
    assert 1_000_000 <= used < 1_100_000


def test_holes_take_nothing(tmp_path: Path) -> None:
    with (tmp_path / "hole").open("wb") as file:
        file.truncate(10_000_000)
    assert bytes_below(str(tmp_path)) < 100_000


def test_what_is_gone_takes_nothing(tmp_path: Path) -> None:
    assert bytes_below(str(tmp_path / "absent")) == 0
