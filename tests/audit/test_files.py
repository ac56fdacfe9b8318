"""One file of the audit log: whole lines whatever the disk does, rotation, modes."""

import os
import resource
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from yurt.audit.files import AuditFile
from yurt.audit.settings import AuditSinkSettings
from yurt.sdk.value import NANOSECONDS, replace

NOW = 1_767_323_045 * NANOSECONDS + 6


def settings(path: Path, **changes: object) -> AuditSinkSettings:
    return replace(AuditSinkSettings(name="audit", path=str(path)), **changes)


def opened(path: Path, **changes: object) -> AuditFile:
    file = AuditFile(settings(path, **changes))
    file.open(NOW)
    return file


@contextmanager
def full_disk(size: int) -> Iterator[None]:
    """Files end at this size, in the middle of a write too, as where the disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def older(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir() if each.name != "audit.log")


def test_a_new_file_and_its_folder_are_for_the_agent_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit" / "audit.log"
    opened(path).write(b"{}\n", NOW)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b"{}\n")
    path.chmod(0o644)
    opened(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/etc/passwd", path), os.mkdir])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, make) -> None:
    make(tmp_path / "audit.log")
    with pytest.raises(OSError, match=r"."):
        opened(tmp_path / "audit.log")


def test_a_line_that_does_not_fit_leaves_nothing_of_itself(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = opened(path)
    file.write(b'{"a":1}\n', NOW)
    with full_disk(12), pytest.raises(OSError, match="File too large"):
        file.write(b'{"b":2}\n{"c":3}\n', NOW)
    assert path.read_bytes() == b'{"a":1}\n'
    file.write(b'{"d":4}\n', NOW)
    assert path.read_bytes() == b'{"a":1}\n{"d":4}\n'


def test_a_torn_line_of_a_killed_agent_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"a":1}\n{"b"')
    opened(path).write(b'{"c":3}\n', NOW)
    assert path.read_bytes() == b'{"a":1}\n{"b"\n{"c":3}\n'


def test_a_full_file_is_exchanged_before_the_line(tmp_path: Path) -> None:
    file = opened(tmp_path / "audit.log", rotate_bytes=10, rotate_s=0.0)
    for number in range(3):
        file.write(f'{{"n":{number}}}\n'.encode(), NOW + number)
    assert older(tmp_path) == ["audit-20260102T030405.000000007Z.log", "audit-20260102T030405.000000008Z.log"]
    assert (tmp_path / older(tmp_path)[0]).read_bytes() == b'{"n":0}\n'
    assert (tmp_path / "audit.log").read_bytes() == b'{"n":2}\n'


def test_a_line_larger_than_the_limit_is_written_whole(tmp_path: Path) -> None:
    file = opened(tmp_path / "audit.log", rotate_bytes=4)
    file.write(b'{"long":true}\n', NOW)
    assert (tmp_path / "audit.log").read_bytes() == b'{"long":true}\n'
    assert older(tmp_path) == []


def test_an_old_file_is_exchanged_also_when_the_agent_has_restarted_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b'{"created_at":"2026-01-02T03:04:05Z"}\n')
    file = opened(path, rotate_s=60.0)
    file.write(b'{"n":1}\n', NOW + 59 * NANOSECONDS)
    assert older(tmp_path) == []
    file.write(b'{"n":2}\n', NOW + 61 * NANOSECONDS)
    assert len(older(tmp_path)) == 1


def test_only_the_newest_older_files_are_kept_and_no_other_file_is_touched(tmp_path: Path) -> None:
    (tmp_path / "audit-notes.log").write_text("mine")
    file = opened(tmp_path / "audit.log", rotate_bytes=4, rotate_max_files=2)
    for number in range(6):
        file.write(f'{{"n":{number}}}\n'.encode(), NOW + number)
    kept = older(tmp_path)
    assert kept[-1] == "audit-notes.log"
    assert [(tmp_path / name).read_bytes() for name in kept[:-1]] == [b'{"n":3}\n', b'{"n":4}\n']


def test_two_exchanges_at_one_time_get_two_names(tmp_path: Path) -> None:
    file = opened(tmp_path / "audit.log", rotate_bytes=4)
    for _ in range(3):
        file.write(b'{"n":1}\n', NOW)
    assert len(older(tmp_path)) == 2


def test_where_the_file_cannot_be_renamed_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = opened(tmp_path / "audit.log", rotate_bytes=4)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    file.write(b'{"n":1}\n', NOW)
    monkeypatch.setattr(os, "rename", refuse)
    file.write(b'{"n":2}\n', NOW)
    assert (tmp_path / "audit.log").read_bytes() == b'{"n":1}\n{"n":2}\n'


def test_a_file_that_somebody_removed_is_made_anew(tmp_path: Path) -> None:
    file = opened(tmp_path / "audit.log")
    file.write(b'{"n":1}\n', NOW)
    (tmp_path / "audit.log").unlink()
    file.write(b'{"n":2}\n', NOW)
    assert (tmp_path / "audit.log").read_bytes() == b'{"n":2}\n'
