"""The hosts file that the tasks of a group share, and what their options add to it."""

from __future__ import annotations

from pathlib import Path

import pytest
from yurt.client.networks.records import RecordFolder
from yurt.sdk.containers.hosts import add_lines, hosts_lines
from yurt.sdk.errors import DriverError


def test_entries_become_lines_of_a_hosts_file() -> None:
    assert hosts_lines(["db.internal:10.0.0.5", "cache:fd00::7", "old:[::1]"]) == (
        "10.0.0.5 db.internal",
        "fd00::7 cache",
        "::1 old",
    )


@pytest.mark.parametrize("entry", ["db", "db:", "db:host-gateway", ":10.0.0.5", "a b:10.0.0.5", "x\ny:10.0.0.5"])
def test_what_is_no_entry_is_named(entry: str) -> None:
    with pytest.raises(DriverError, match="extra_hosts"):
        hosts_lines([entry])


def test_lines_are_added_once_and_in_the_file_that_running_tasks_have_mounted(tmp_path: Path) -> None:
    folder = RecordFolder(tmp_path)
    path = folder.write_file("alloc-1", "hosts", b"127.0.0.1 localhost\n", may_grow=True)
    with path.open() as mounted:
        add_lines(str(path), ("10.0.0.5 db",))
        add_lines(str(path), ("10.0.0.5 db", "10.0.0.6 cache"))
        folder.write_file("alloc-1", "hosts", b"127.0.0.1 localhost\n", may_grow=True)
        seen = mounted.read()

    assert seen == "127.0.0.1 localhost\n10.0.0.5 db\n10.0.0.6 cache\n"
    folder.write_file("alloc-1", "hosts", b"10.1.1.1 other\n", may_grow=True)
    assert path.read_text() == "10.1.1.1 other\n"
