"""One user passes through a folder that is closed to all others."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.sdk.search_permission import grant_search, grant_search_to_all

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="to be several users takes root; the lists are Linux's"
)
ALICE, BOB = 54321, 54322


@pytest.fixture
def closed() -> Iterator[Path]:
    """A closed folder with a file in it, in one that everybody can pass through."""
    with tempfile.TemporaryDirectory(prefix="yurt-search-") as folder:
        os.chmod(folder, 0o711)
        path = Path(folder) / "closed"
        path.mkdir(mode=0o700)
        (path / "file").write_text("inside")
        yield path


def can_read(closed: Path, uid: int) -> bool:
    words = ["cat", str(closed / "file")]
    return subprocess.run(words, check=False, user=uid, group=uid, extra_groups=[], capture_output=True).returncode == 0


def can_list(closed: Path, uid: int) -> bool:
    words = ["ls", str(closed)]
    return subprocess.run(words, check=False, user=uid, group=uid, extra_groups=[], capture_output=True).returncode == 0


def test_only_the_user_who_was_let_through_passes_and_lists_nothing(closed: Path) -> None:
    grant_search(str(closed), ALICE)
    assert (can_read(closed, ALICE), can_read(closed, BOB), can_list(closed, ALICE)) == (True, False, False)


def test_several_users_pass_however_often_they_are_let_through(closed: Path) -> None:
    for uid in (ALICE, BOB, ALICE):
        grant_search(str(closed), uid)
    assert (can_read(closed, ALICE), can_read(closed, BOB), can_read(closed, 54323)) == (True, True, False)


def test_the_owner_and_an_open_folder_need_no_list(closed: Path) -> None:
    grant_search(str(closed), 0)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    closed.chmod(0o711)
    grant_search(str(closed), ALICE)
    assert os.listxattr(closed) == []


def test_a_file_system_without_lists_lets_everybody_pass(closed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_arguments: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no lists here")

    monkeypatch.setattr(os, "setxattr", refuse)
    grant_search(str(closed), ALICE)
    assert (can_read(closed, ALICE), can_read(closed, BOB)) == (True, True)


def test_everybody_can_be_let_through(closed: Path) -> None:
    grant_search_to_all(str(closed))
    assert (can_read(closed, BOB), can_list(closed, BOB)) == (True, False)


def test_a_link_is_not_followed(closed: Path) -> None:
    link = closed.parent / "link"
    link.symlink_to(closed)
    with pytest.raises(OSError):
        grant_search(str(link), ALICE)
