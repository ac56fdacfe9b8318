"""What the process that fetches an artifact cannot do, even where its code is made to try."""

from __future__ import annotations

import json
import os
import pwd
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from yurt.agent.component_configs import artifact_limits
from yurt.client.artifacts import confinement
from yurt.client.artifacts.confinement import Isolation, closed_folder, extra_rule, isolation
from yurt.sdk import landlock
from yurt.sdk.errors import Invalid
from yurt.sdk.landlock import availability, granted, handled, ruleset_attributes

CAP_SYS_ADMIN = 21
needs_landlock = pytest.mark.skipif(
    not availability().version, reason=f"this kernel confines nothing: {availability().reason}"
)
needs_root = pytest.mark.skipif(
    confinement.unprivileged() is None, reason="only a root with CAP_SETUID, CAP_SETGID and CAP_CHOWN can give up root"
)
needs_mounts = pytest.mark.skipif(
    not confinement.has_capabilities(CAP_SYS_ADMIN), reason="only a root with CAP_SYS_ADMIN can mount"
)

ATTEMPTS = """
import json, os, signal, subprocess, sys, socket
sys.path.insert(0, sys.argv[4])
from yurt.client.artifacts.fetch_request import ArtifactLimits, Fetch, Fetched
from yurt.client.artifacts.sources import GIT, ArtifactSource
from yurt.client.artifacts.worker import run_worker
root, outside, getter = sys.argv[1:4]
parent = os.getpid()

def attempt(name, action):
    try:
        said[name] = str(action())
    except OSError as error:
        said[name] = type(error).__name__

def write(path):
    with open(path, "w") as file:
        return file.write("x")

def run_made(path):
    with open(path, "w") as file:
        file.write("#!/bin/sh")
    os.chmod(path, 0o755)
    return subprocess.run([path]).returncode

def listen():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return "bound"

def work(fetch):
    attempt("own file", lambda: write(f"{fetch.staging}/made"))
    os.mkdir(f"{fetch.staging}/d")
    attempt("own rename", lambda: os.rename(f"{fetch.staging}/made", f"{fetch.staging}/d/made"))
    attempt("write", lambda: write(f"{outside}/made"))
    attempt("overwrite", lambda: write(f"{outside}/open"))
    attempt("open file", lambda: open(f"{outside}/open").read())
    attempt("secret", lambda: open(f"{outside}/secret").read())
    attempt("symlink", lambda: os.symlink("/", f"{outside}/link"))
    attempt("hard link", lambda: os.link(f"{outside}/open", f"{fetch.staging}/second"))
    attempt("remove", lambda: os.unlink(f"{outside}/open"))
    attempt("beside", lambda: write(f"{root}/web/local/made"))
    attempt("device", lambda: os.mknod(f"{fetch.staging}/device", 0o600 | 0o020000, os.makedev(1, 3)))
    attempt("pipe", lambda: os.mkfifo(f"{fetch.staging}/pipe"))
    attempt("passwd", lambda: len(open("/etc/passwd").read()) > 0)
    attempt("program", lambda: run_made(f"{fetch.staging}/d/made"))
    attempt("shadow", lambda: open("/etc/shadow").read())
    attempt("root", lambda: os.setuid(0) or os.geteuid())
    attempt("signal", lambda: os.kill(parent, 0))
    attempt("listen", listen)
    attempt("uid", os.geteuid)
    attempt("full name", lambda: os.listdir(fetch.staging) == os.listdir(".") and os.path.isabs(fetch.staging))
    return Fetched(error=json.dumps(said))

said = {}
folder = f"{root}/.fetch-web-0/work"
fetch = Fetch(source=ArtifactSource(getter=getter, url="x"), root=root, own="web", destination="web", staging=folder)
print(run_worker(fetch, folder, work).error)
attempt("placer writes beside", lambda: write(f"{root}/web/local/placed"))
attempt("placer writes outside", lambda: write(f"{outside}/placed"))
print(json.dumps({name: said[name] for name in ("placer writes beside", "placer writes outside")}))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the worker and the placer say to each attempt."""
    base = tmp_path_factory.mktemp("confined")
    root, outside = base / "id", base / "outside"
    for folder in (root / "web/local", root / ".fetch-web-0/work", outside):
        folder.mkdir(parents=True)
    (root / ".fetch-web-0").chmod(0o700)
    outside.chmod(0o777)
    (outside / "open").write_text("of the host")
    (outside / "open").chmod(0o666)
    (outside / "secret").write_text("of the agent")
    (outside / "secret").chmod(0o600)
    source = str(Path(landlock.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", ATTEMPTS, str(root), str(outside), "http", source],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    worker, placer = done.stdout.splitlines()
    return json.loads(worker) | json.loads(placer)


def test_the_worker_works_in_its_own_folder(said: dict[str, Any]) -> None:
    assert said["own file"] == "1" and said["own rename"] == "None" and said["passwd"] == "True"


@needs_landlock
@pytest.mark.parametrize(
    "what",
    [
        "write",
        "overwrite",
        "open file",
        "secret",
        "symlink",
        "hard link",
        "remove",
        "beside",
        "device",
        "pipe",
        "shadow",
        "program",
    ],
)
def test_the_worker_reaches_nothing_of_the_host(said: dict[str, Any], what: str) -> None:
    assert said[what] in ("PermissionError", "FileNotFoundError", "OSError"), said


@needs_root
def test_the_worker_of_a_root_agent_is_nobody_for_good(said: dict[str, Any]) -> None:
    assert (said["uid"], said["root"]) == (str(confinement.unprivileged().uid), "PermissionError")  # type: ignore[union-attr]


@needs_root
@needs_mounts
def test_the_worker_finds_its_folder_by_name_below_folders_that_are_closed(said: dict[str, Any]) -> None:
    assert said["full name"] == "True"


@pytest.mark.skipif(availability().version < landlock.SCOPES_SINCE, reason="Landlock scopes signals since version 6")
def test_the_worker_signals_nobody_outside(said: dict[str, Any]) -> None:
    assert said["signal"] in ("PermissionError", "ProcessLookupError")


@pytest.mark.skipif(availability().version < landlock.NETWORK_SINCE, reason="Landlock knows ports since version 4")
def test_the_worker_listens_on_no_port(said: dict[str, Any]) -> None:
    assert said["listen"] == "PermissionError"


@needs_landlock
def test_the_placer_writes_in_the_allocation_alone(said: dict[str, Any]) -> None:
    assert (said["placer writes beside"], said["placer writes outside"]) == ("1", "PermissionError")


@pytest.mark.parametrize(
    ("version", "size", "rights"),
    [(1, 8, 13), (2, 8, 14), (3, 8, 15), (4, 16, 15), (5, 16, 16), (6, 24, 16), (9, 24, 16)],
)
def test_a_ruleset_is_as_large_as_the_kernel_s_version_knows_it(version: int, size: int, rights: int) -> None:
    made = ruleset_attributes(version)
    assert len(made) == size and struct.unpack("=Q", made[:8])[0] == handled(version) == 2**rights - 1


def test_a_rule_for_a_file_gives_no_right_of_folders() -> None:
    assert granted(landlock.READING | landlock.WRITING, version=1, is_folder=False) == (
        landlock.READ_FILE | landlock.WRITE_FILE
    )
    assert granted(landlock.REFER, version=1, is_folder=True) == 0


def test_no_rule_lets_a_download_make_devices_pipes_or_sockets() -> None:
    given = 0
    for rule in confinement.rules("/somewhere", ("d:rwcx:/opt/x",)):
        given |= rule.access
    assert not given & (landlock.MAKE_CHAR | landlock.MAKE_BLOCK | landlock.MAKE_FIFO | landlock.MAKE_SOCK)


def test_only_the_worker_s_folder_and_paths_of_the_operator_can_be_written() -> None:
    rules = confinement.rules("/somewhere", ("d:rw:/opt/x",))
    writable = {rule.path for rule in rules if rule.access & landlock.WRITE_FILE}
    assert writable == {"/somewhere", "/dev/null", "/opt/x"}


@pytest.mark.parametrize("text", ["", "/x", "d:/x", "d:r:x", "q:r:/x", "d:rq:/x", "fd:r:/x", "d::/x"])
def test_an_extra_path_names_kind_mode_and_path(text: str) -> None:
    with pytest.raises(Invalid, match="KIND:MODE:PATH"):
        extra_rule(text)


def test_isolation_that_is_switched_off_is_named() -> None:
    limits = artifact_limits({"disable_filesystem_isolation": True})
    found = isolation(is_confined=limits.is_confined)
    assert found.text == "none" and "disable_filesystem_isolation" in found.missing[0]


def test_isolation_is_on_by_default() -> None:
    assert artifact_limits({}).is_confined


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (Isolation(7, confinement.Ids(65534, 65534)), "landlock,user"),
        (Isolation(1, None), "landlock"),
        (Isolation(0, confinement.Ids(65534, 65534)), "user"),
        (Isolation(0, None), "none"),
    ],
)
def test_a_node_names_the_parts_that_it_has(found: Isolation, text: str) -> None:
    assert found.text == text


def test_a_kernel_without_landlock_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "SYS_CREATE_RULESET", 9999)
    found = availability()
    assert found.version == 0 and "Linux 5.13+" in found.reason
    assert "Linux 5.13+" in isolation(is_confined=True).missing[0]


def test_the_topmost_closed_folder_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "a/b"
    inner.mkdir(parents=True)
    tmp_path.joinpath("a").chmod(0o700)
    top = closed_folder(str(inner))
    assert top and not os.stat(top).st_mode & 0o001 and inner.is_relative_to(top)


def test_nobody_is_a_user_that_ssh_knows() -> None:
    ids = confinement.unprivileged()
    if ids is not None:
        assert pwd.getpwuid(ids.uid).pw_name == confinement.NOBODY
