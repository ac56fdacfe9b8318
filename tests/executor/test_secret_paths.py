"""What a task is not shown of its host's folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from yurt.executor.oci import secret_paths
from yurt.executor.oci.bundle import Bind
from yurt.executor.oci.secret_paths import hidden_paths
from yurt.sdk.errors import DriverError

EVERYTHING = ("CAP_DAC_OVERRIDE",)


@pytest.fixture
def etc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of /etc."""
    folder = tmp_path / "etc"
    for name, mode in (("ssh/host_key", 0o600), ("ssh/host_key.pub", 0o644), ("shadow", 0o640), ("hosts", 0o644)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
        (folder / name).chmod(mode)
    monkeypatch.setattr(secret_paths, "SYSTEM_CONFIGURATION", str(folder))
    monkeypatch.setattr(secret_paths, "SECRET_PATTERNS", (f"{folder}/ssh/*_key", f"{folder}/keys.d", f"{folder}/none"))
    return folder


def test_known_secrets_are_hidden_at_the_place_where_they_are_shown(etc: Path) -> None:
    host = (Bind(source=str(etc), target="/etc"), Bind(source=str(etc / "ssh"), target="/srv/ssh"))
    assert hidden_paths(host, (), rights=()) == ("/etc/ssh/host_key", "/srv/ssh/host_key")


def test_what_others_cannot_read_is_hidden_from_a_task_that_can(etc: Path) -> None:
    host = (Bind(source=str(etc), target="/etc"),)
    (etc / "closed").mkdir(mode=0o750)
    (etc / "closed" / "file").touch()
    found = hidden_paths(host, (), rights=EVERYTHING)
    assert found == ("/etc/closed", "/etc/shadow", "/etc/ssh/host_key")
    assert hidden_paths((Bind(source="/usr", target="/usr"),), (), rights=EVERYTHING) == ()


def test_the_agents_own_paths_are_hidden_links_followed(etc: Path, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "data")
    host = (Bind(source=str(tmp_path), target="/host"),)
    assert "/host/data" in hidden_paths(host, (str(tmp_path / "link"), str(tmp_path / "gone")), rights=())


def test_a_folder_that_is_hidden_stands_for_all_in_it(etc: Path) -> None:
    (etc / "keys.d").mkdir()
    host = (Bind(source=str(etc), target="/etc"),)
    assert hidden_paths(host, (str(etc / "keys.d" / "x"), str(etc / "ssh")), rights=()) == ("/etc/keys.d", "/etc/ssh")


def test_a_file_that_the_operator_shows_by_its_name_is_seen(etc: Path) -> None:
    assert hidden_paths((Bind(source=str(etc / "ssh" / "host_key"), target="/key"),), (), rights=EVERYTHING) == ()


def test_more_secrets_than_can_be_hidden_are_refused(etc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for bound in ("HIDDEN_MAX", "ENTRIES_MAX"):
        with monkeypatch.context() as patched, pytest.raises(DriverError, match="chroot_env"):
            patched.setattr(secret_paths, bound, 1)
            hidden_paths((Bind(source=str(etc), target="/etc"),), (), rights=EVERYTHING)


def test_a_device_or_a_link_in_the_way_is_no_defect(etc: Path) -> None:
    os.mkfifo(etc / "pipe", 0o600)
    (etc / "circle").symlink_to("circle")
    (etc / "away").symlink_to("/")
    found = hidden_paths((Bind(source=str(etc), target="/etc"),), (), rights=EVERYTHING)
    assert found == ("/etc/pipe", "/etc/shadow", "/etc/ssh/host_key")
