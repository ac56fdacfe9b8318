"""Snapshot files that are whole, torn, half written or too many."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.storage import snapshot_files

CHUNKS = [b"header", b"x" * 5_000, b"end"]


def loaded(folder: Path) -> tuple[int, list[bytes]] | None:
    found = snapshot_files.load(folder)
    return None if found is None else (found[0], list(found[1]))


def test_an_empty_folder_has_no_snapshot(tmp_path: Path) -> None:
    assert loaded(tmp_path / "none") is None
    assert snapshot_files.newest_index(tmp_path / "none") == 0


def test_the_newest_two_are_kept(tmp_path: Path) -> None:
    for index in (3, 7, 100):
        snapshot_files.save(tmp_path, index, CHUNKS)
    assert loaded(tmp_path) == (100, CHUNKS)
    assert sorted(int(path.stem) for path in tmp_path.iterdir()) == [7, 100]


@pytest.mark.parametrize("left", [0, 5, 16, 30, 48, 49, 3_000, 5_040, 5_080])
def test_a_torn_file_is_passed_over(tmp_path: Path, left: int) -> None:
    snapshot_files.save(tmp_path, 3, [b"older"])
    snapshot_files.save(tmp_path, 7, CHUNKS)
    with (tmp_path / f"{7:020d}.snapshot").open("r+b") as file:
        file.truncate(left)
    assert loaded(tmp_path) == (3, [b"older"])


def test_a_write_that_fails_leaves_the_one_before_and_nothing_else(tmp_path: Path) -> None:
    def failing() -> Iterator[bytes]:
        yield b"header"
        raise RuntimeError("the encoder failed")

    snapshot_files.save(tmp_path, 3, CHUNKS)
    with pytest.raises(RuntimeError, match="encoder"):
        snapshot_files.save(tmp_path, 7, failing())
    assert loaded(tmp_path) == (3, CHUNKS)
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_crash_left_half_written_is_removed(tmp_path: Path) -> None:
    snapshot_files.save(tmp_path, 3, CHUNKS)
    stray = tmp_path / f"{7:020d}.snapshot.tmp"
    stray.write_bytes(b"half")
    assert loaded(tmp_path) == (3, CHUNKS)
    assert not stray.exists()
