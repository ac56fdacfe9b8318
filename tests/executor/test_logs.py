"""Log files of a task: cut at lines, rotated, bounded, and never a reason for a task to stop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from yurt.executor.rotated_log import RotatedLog, cut


def files(folder: Path) -> dict[int, bytes]:
    return {int(path.suffix[1:]): path.read_bytes() for path in folder.glob("web.stdout.*")}


def log(folder: Path, *, max_files: int = 3, max_bytes: int = 10) -> RotatedLog:
    made = RotatedLog(os.fsencode(folder / "web.stdout"), max_files=max_files, max_bytes=max_bytes)
    try:
        made.open_newest()
    except OSError:
        made.close()
        raise
    return made


def test_a_file_is_cut_at_the_end_of_a_line(tmp_path: Path) -> None:
    log(tmp_path).write(b"one\ntwo\nthree\n")
    assert files(tmp_path) == {0: b"one\ntwo\n", 1: b"three\n"}


def test_a_line_longer_than_a_file_is_cut_anywhere(tmp_path: Path) -> None:
    log(tmp_path).write(b"x" * 25)
    assert files(tmp_path) == {0: b"x" * 10, 1: b"x" * 10, 2: b"x" * 5}


def test_only_the_newest_files_are_kept(tmp_path: Path) -> None:
    log(tmp_path, max_files=2).write(b"x" * 45)
    assert sorted(files(tmp_path)) == [3, 4]


def test_a_new_start_goes_on_with_the_newest_file(tmp_path: Path) -> None:
    log(tmp_path).write(b"x" * 15)
    log(tmp_path).write(b"y\n")
    assert files(tmp_path)[1] == b"xxxxxy\n"


def test_the_first_write_opens_the_newest_file_in_the_folder_of_the_beginning(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    unopened = RotatedLog(os.fsencode(folder / "web.stdout"), max_files=3, max_bytes=10)
    log(folder).write(b"x" * 15)
    folder.rename(tmp_path / "elsewhere")
    unopened.write(b"y\n")
    unopened.close()
    assert files(tmp_path / "elsewhere")[1] == b"xxxxxy\n"


def test_a_symbolic_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"precious")
    (tmp_path / "web.stdout.0").symlink_to(target)
    with pytest.raises(OSError):
        log(tmp_path)
    assert target.read_bytes() == b"precious"


def test_a_link_in_the_place_of_the_folder_leads_nowhere(tmp_path: Path) -> None:
    folder, target = tmp_path / "logs", tmp_path / "target"
    folder.mkdir()
    target.mkdir()
    written = log(folder, max_bytes=10)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(target)
    written.write(b"0123456789" * 3)
    written.close()
    assert list(target.iterdir()) == []
    assert len(files(tmp_path / "elsewhere")) == 3
    with pytest.raises(OSError):
        log(folder)


def test_a_second_name_of_another_file_is_not_written(tmp_path: Path) -> None:
    folder, target = tmp_path / "logs", tmp_path / "precious"
    folder.mkdir()
    target.write_bytes(b"precious")
    (folder / "web.stdout.0").hardlink_to(target)
    with pytest.raises(OSError):
        log(folder)
    assert target.read_bytes() == b"precious"


def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "web.stdout.0")
    with pytest.raises(OSError):
        log(tmp_path)
    reader = os.open(tmp_path / "web.stdout.0", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(OSError):
        log(tmp_path)
    os.close(reader)


def test_output_is_dropped_when_the_folder_is_gone(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    written = log(folder)
    (folder / "web.stdout.0").unlink()
    folder.rmdir()
    written.write(b"x" * 100)
    assert not folder.exists()


@settings(deadline=None)
@given(
    data=st.binary(max_size=200).map(lambda raw: raw.replace(b"a", b"\n")),
    capacity=st.integers(1, 50),
    fresh=st.booleans(),
)
def test_what_is_cut_fits_and_a_fresh_file_takes_something(data: bytes, capacity: int, fresh: bool) -> None:
    size = cut(data, capacity, fresh=fresh)
    assert 0 <= size <= capacity
    assert size or not fresh or not data
    assert size == len(data) or not size or fresh or data[size - 1 : size] == b"\n"


@settings(deadline=None)
@given(pieces=st.lists(st.binary(max_size=30), max_size=20), max_bytes=st.integers(1, 40))
def test_nothing_is_lost_while_all_files_are_kept(
    tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes], max_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    written = log(folder, max_files=1000, max_bytes=max_bytes)
    for piece in pieces:
        written.write(piece)
    written.close()
    found = files(folder)
    assert b"".join(found[number] for number in sorted(found)) == b"".join(pieces)
    assert all(len(content) <= max_bytes for content in found.values())
