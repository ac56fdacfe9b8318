"""Mounts by descriptor, and their removal, which touches nothing but them; opening without links."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.sdk import mounting
from yurt.sdk.opening import HOLD_FLAGS, hold
from yurt.testing.rights import may_mount

pytestmark = pytest.mark.skipif(not may_mount(), reason="mounting takes root with CAP_SYS_ADMIN on Linux")


def run(*command: str | Path) -> None:
    subprocess.run([str(word) for word in command], check=True, timeout=30)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A folder that passes on what is mounted in it, as the folders of most machines do, with memory mounted in it."""
    made = tmp_path / "shared"
    (made / "inner").mkdir(parents=True)
    run("mount", "--bind", made, made)
    try:
        run("mount", "--make-shared", made)
        run("mount", "-t", "tmpfs", "none", made / "inner")
        (made / "inner" / "file").touch()
        yield made
    finally:
        run("umount", "--recursive", made)


def pinned(source: Path, folder: Path, group: str = "group") -> Path:
    """A place of a folder of ours over which a source is mounted."""
    place = folder / group / "0"
    place.mkdir(parents=True)
    descriptor = os.open(source, HOLD_FLAGS)
    mounting.bind(descriptor, str(place))
    os.close(descriptor)
    return place


def test_what_is_mounted_below_a_source_is_seen_and_stays_when_ours_goes(shared: Path, tmp_path: Path) -> None:
    place = pinned(shared, tmp_path / "ours")
    assert (place / "inner" / "file").exists()

    mounting.clear(str(tmp_path / "ours"))

    assert not (tmp_path / "ours").exists()
    assert (shared / "inner" / "file").exists()


def test_a_descriptor_is_mounted_whatever_its_name_has_become(tmp_path: Path) -> None:
    source, place = tmp_path / "source", tmp_path / "ours" / "group" / "0"
    for folder in (source, place):
        folder.mkdir(parents=True)
    (source / "file").touch()
    descriptor = hold(str(tmp_path), "source")
    source.rename(tmp_path / "moved")
    source.symlink_to("/etc")

    mounting.bind(descriptor, str(place))

    os.close(descriptor)
    seen = os.listdir(place)
    mounting.clear_group(str(place.parent))
    assert seen == ["file"]
    assert not place.parent.exists()
    assert os.listdir(tmp_path / "moved") == ["file"]


def test_the_command_takes_away_what_a_killed_agent_left_but_no_content(tmp_path: Path) -> None:
    source, ours = tmp_path / "source", tmp_path / "ours"
    source.mkdir()
    (source / "file").touch()
    pinned(source, ours)
    (ours / "group" / "other").mkdir()
    (ours / "group" / "other" / "file").touch()

    run(sys.executable, "-I", "-S", "-E", mounting.__file__, ours)

    assert mounting.points_below(str(ours)) == ()
    assert (source / "file").exists()
    assert (ours / "group" / "other" / "file").exists()


def test_groups_that_are_in_use_are_kept(tmp_path: Path) -> None:
    source, ours = tmp_path / "source", tmp_path / "ours"
    source.mkdir()
    kept, gone = pinned(source, ours, "kept"), pinned(source, ours, "gone")
    mounting.clear(str(ours), frozenset({"kept"}))
    assert (mounting.points_below(str(ours)), gone.exists()) == ((str(kept),), False)
    mounting.clear(str(ours))


@pytest.mark.parametrize("path", ["link/file", "folder/link", "folder/../folder"])
def test_no_link_and_no_way_up_is_held(tmp_path: Path, path: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "folder" / "link").symlink_to("file")
    with pytest.raises(OSError, match=r"symbolic links|cross-device"):
        hold(str(tmp_path), path)


def test_missing_folders_are_made_on_request(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        hold(str(tmp_path), "one/two")
    os.close(hold(str(tmp_path), "one/two", makes=True))
    assert (tmp_path / "one" / "two").is_dir()
