"""A program of a plugin folder runs only if no other user can exchange it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from yurt.sdk.trust import distrust

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "above" / "plugins"
    folder.mkdir(parents=True)
    for each in (folder, folder.parent):
        each.chmod(0o755)
    path = folder / "tool"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_file_that_only_its_owner_writes_is_trusted(program: Path) -> None:
    assert distrust(str(program)) == ""


@pytest.mark.parametrize("up", [0, 1, 2])
def test_what_others_can_write_is_named_with_its_fix(program: Path, up: int) -> None:
    path = [program, *program.parents][up]
    path.chmod(0o777)
    assert f"chmod go-w {path}" in distrust(str(program))


def test_a_sticky_folder_is_enough_above_the_folder_alone(program: Path) -> None:
    program.parent.parent.chmod(0o1777)
    assert distrust(str(program)) == ""
    program.parent.chmod(0o1777)
    assert "other users can write" in distrust(str(program))


@root_only
@pytest.mark.parametrize("up", [0, 1, 2])
def test_what_belongs_to_another_user_is_named(program: Path, up: int) -> None:
    path = [program, *program.parents][up]
    os.chown(path, 65534, 0)
    assert f"{path} belongs to user id 65534" in distrust(str(program))


@root_only
def test_a_group_that_can_write_is_refused_at_the_file_and_its_folder(program: Path) -> None:
    for path in (program, program.parent):
        os.chown(path, 0, 65534)
        path.chmod(0o775)
        assert f"chmod go-w {path}" in distrust(str(program))
        path.chmod(0o755)


def test_the_folder_of_a_link_counts_too(program: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    link = tmp_path / "open" / "tool"
    link.symlink_to(program)
    assert distrust(str(link)) == ""
    link.parent.chmod(0o777)
    assert "other users can write" in distrust(str(link))


@root_only
def test_a_link_of_another_user_counts_too(program: Path, tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    link = tmp_path / "open" / "tool"
    link.symlink_to(program)
    os.lchown(link, 65534, 65534)
    assert "belongs to user id 65534" in distrust(str(link))


def test_a_file_that_is_not_there_and_links_in_a_circle_are_no_defect(tmp_path: Path) -> None:
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name in ("none", "circle"):
        assert "cannot be checked" in distrust(str(tmp_path / name))
