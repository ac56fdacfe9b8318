"""Network namespaces: made, kept, told apart, removed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.client.networks import namespaces
from yurt.sdk.errors import RecoverableError

from .conftest import AS_ROOT

pytestmark = AS_ROOT


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder of namespaces; afterwards nothing is mounted in it."""
    made = tmp_path / "netns"
    yield made
    for path in made.glob("*"):
        namespaces.remove_namespace(path)
    namespaces.remove_folder(made)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


def links_in(path: Path) -> list[str]:
    told = subprocess.run(
        ["nsenter", f"--net={path}", "cat", "/proc/self/net/dev"], capture_output=True, text=True, check=True
    )
    return [line.split(":")[0].strip() for line in told.stdout.splitlines()[2:]]


def test_a_namespace_has_a_loopback_that_is_up_and_is_not_the_hosts(folder: Path):
    own = os.stat("/proc/self/ns/net").st_ino
    namespaces.make_namespace(folder / "a")
    assert namespaces.identity(folder / "a") not in (0, own)
    assert os.stat("/proc/self/ns/net").st_ino == own
    assert "lo" in links_in(folder / "a")
    connects = ["nsenter", f"--net={folder / 'a'}", "cat", "/proc/net/if_inet6", "/proc/net/fib_trie"]
    assert "127.0.0.1" in subprocess.run(connects, capture_output=True, text=True, check=False).stdout


def test_two_namespaces_differ_and_one_kept_twice_is_the_same(folder: Path):
    namespaces.make_namespace(folder / "a")
    namespaces.make_namespace(folder / "b")
    namespaces.keep_namespace(str(folder / "a"), folder / "c")
    first, second, third = (namespaces.identity(folder / name) for name in "abc")
    assert first != second and first == third


def test_a_namespace_that_is_gone_has_no_identity(folder: Path):
    namespaces.make_namespace(folder / "a")
    namespaces.remove_namespace(folder / "a")
    namespaces.remove_namespace(folder / "a")
    assert namespaces.identity(folder / "a") == 0 and not (folder / "a").exists()
    (folder / "plain").touch()
    assert namespaces.identity(folder / "plain") == 0


def test_what_cannot_be_kept_leaves_no_file(folder: Path):
    with pytest.raises(RecoverableError, match="cannot keep the network namespace /proc/none"):
        namespaces.keep_namespace("/proc/none", folder / "a")
    assert not (folder / "a").exists()


def test_this_machine_can_make_namespaces():
    assert namespaces.obstacle() == ""
