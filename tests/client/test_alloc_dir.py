"""The directory tree of an allocation."""

from __future__ import annotations

import os
import pwd
import shutil
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


def modes(root: Path) -> dict[str, int]:
    return {str(path.relative_to(root)): mode_of(path) for path in sorted(root.rglob("*")) if path.is_dir()}


WHOLE = {
    "alloc": 0o777, "alloc/data": 0o777, "alloc/logs": 0o777, "alloc/tmp": 0o777,
    "web": 0o777, "web/local": 0o777, "web/private": 0o700, "web/secrets": 0o700, "web/tmp": 0o777,
}  # fmt: skip


def build(root: Path, user: str = "") -> None:
    build_alloc_dir(str(root), "id")
    build_task_dir(str(root), "id", "web", user=user)


@pytest.mark.parametrize("left", [(), ("alloc",), ("alloc", "alloc/data", "web"), ("web", "web/secrets", "web/tmp")])
def test_a_tree_that_a_crash_left_unfinished_is_finished(tmp_path: Path, left: tuple[str, ...]) -> None:
    for part in ("", *left):
        (tmp_path / "id" / part).mkdir(mode=0o700)
    build(tmp_path)
    assert modes(tmp_path / "id") == WHOLE


@pytest.mark.parametrize("part", ["alloc", "alloc/data", "web", "web/local", "web/secrets"])
def test_a_link_that_a_task_put_in_place_of_a_part_is_refused_and_not_followed(tmp_path: Path, part: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o750)
    build(tmp_path)
    place = tmp_path / "id" / part
    shutil.rmtree(place)
    place.symlink_to(outside)
    with pytest.raises(OSError):
        build(tmp_path, user="nobody")
    assert (mode_of(outside), outside.stat().st_uid) == (0o750, os.geteuid())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")
@pytest.mark.parametrize("times", [1, 2])
def test_secrets_and_private_belong_to_the_task_s_user(tmp_path: Path, times: int) -> None:
    for _ in range(times):
        build(tmp_path, user="nobody")
    nobody = pwd.getpwnam("nobody").pw_uid
    owners = {part: (tmp_path / "id" / part).stat().st_uid for part in WHOLE}
    assert {part for part, uid in owners.items() if uid == nobody} == {"web/secrets", "web/private"}
    assert modes(tmp_path / "id") == WHOLE


def test_only_the_agent_s_user_can_enter_a_tree_that_is_being_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "id").mkdir()
    tops: list[int] = []
    real = os.chmod

    def chmod(path: str, mode: int) -> None:
        part = Path(path)
        if part.parent.name in ("alloc", "web"):
            tops.append(mode_of(part.parent))
        real(path, mode)

    monkeypatch.setattr("yurt.client.files.alloc_dir.os.chmod", chmod)
    build(tmp_path)
    assert tops == [0o700] * 5
