"""hg and ssh fetch an artifact without anything of the agent's user. The server is `hg serve` on loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.client.artifacts import task_artifacts
from yurt.client.artifacts.fetch_request import ArtifactLimits
from yurt.client.artifacts.sources import parse_source
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Invalid, RecoverableError
from yurt.structs.task import TaskArtifact

needs_hg = pytest.mark.skipif(shutil.which("hg") is None, reason="the program hg (package mercurial) is not installed")
PLAIN = {**os.environ, "HGRCPATH": "", "HGUSER": "a <a@example.org>"}
HOSTILE_RC = """[hooks]
pre-clone = touch {marks}/hook
[ui]
ssh = touch {marks}/ssh
[extensions]
evil = {marks}/evil.py
[alias]
clone = !touch {marks}/alias
"""


@pytest.fixture
def dirs(tmp_path: Path) -> TaskDirs:
    build_alloc_dir(str(tmp_path / "allocs"), "id")
    return build_task_dir(str(tmp_path / "allocs"), "id", "web")


def hg(folder: Path, *words: str) -> None:
    subprocess.run(["hg", *words], cwd=folder, env=PLAIN, check=True, capture_output=True)


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of two commits; the first has the tag v1."""
    made = tmp_path_factory.mktemp("hg") / "work"
    made.mkdir()
    hg(made, "init")
    for number, word in enumerate(("one", "two")):
        (made / "file").write_text(word)
        hg(made, "commit", "-Am", word, "-d", f"{number} 0")
        if number == 0:
            hg(made, "tag", "v1", "-d", "0 0")
    return made


@contextlib.contextmanager
def served(repository: Path) -> Iterator[str]:
    """The address of a repository on a server that ends with the block."""
    command = ["hg", "serve", "--address", "127.0.0.1", "--port", "0", "--print-url"]
    with subprocess.Popen(command, cwd=repository, env=PLAIN, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        port = process.stdout.readline().strip().rstrip("/").rpartition(":")[2]
        yield f"http://127.0.0.1:{port}/"
        process.send_signal(signal.SIGTERM)


@pytest.fixture(scope="module")
def address(work: Path) -> Iterator[str]:
    with served(work) as made:
        yield made


async def fetch(dirs: TaskDirs, source: str, *, limits: ArtifactLimits | None = None, **options: str) -> Path:
    artifact = TaskArtifact(getter_source=source, relative_dest="local/got", getter_options=options)
    place = task_artifacts.TaskPlace(task_name="web", dirs=dirs)
    expected = task_artifacts.plan((artifact,), place, lookup=lambda _name: None, limits=limits or ArtifactLimits())
    await task_artifacts.fetch_all(expected, on_done=lambda _digest: None)
    return Path(dirs.local_dir, "got")


@needs_hg
@pytest.mark.parametrize(("options", "content"), [({}, "two"), ({"rev": "v1"}, "one")])
async def test_a_repository_arrives_at_its_revision(
    dirs: TaskDirs, address: str, options: dict[str, str], content: str
) -> None:
    got = await fetch(dirs, f"hg::{address}", **options)
    assert (got / "file").read_text() == content


def first_hash(work: Path) -> str:
    words = ["hg", "log", "-r", "0", "-T", "{node}"]
    return subprocess.run(words, cwd=work, env=PLAIN, check=True, capture_output=True, text=True).stdout


@needs_hg
@pytest.mark.parametrize("length", [12, 40])
async def test_a_hash_is_looked_up_and_compared(dirs: TaskDirs, address: str, work: Path, length: int) -> None:
    got = await fetch(dirs, f"hg::{address}", rev=first_hash(work)[:length])
    assert (got / "file").read_text() == "one"


@needs_hg
async def test_a_name_that_looks_like_a_hash_is_not_taken_for_it(dirs: TaskDirs, tmp_path: Path, work: Path) -> None:
    other = tmp_path / "other"
    hg(tmp_path, "clone", str(work), "other")
    hg(other, "tag", "-r", "tip", "abcdefabcdef", "-d", "9 0")
    with served(other) as address, pytest.raises(Invalid, match="does not have this hash"):
        await fetch(dirs, f"hg::{address}", rev="abcdefabcdef")


@needs_hg
async def test_a_name_with_a_minus_is_no_difference_of_revisions(dirs: TaskDirs, address: str) -> None:
    with pytest.raises(RecoverableError, match="unknown revision"):
        await fetch(dirs, f"hg::{address}", rev="tip-v1")


@pytest.mark.parametrize("rev", ["tip:0", "max(all())", "v1+tip", "a b", "!v1", "v1^", "v1%tip", "-R", "{v1}", "'v1'"])
def test_expressions_of_revisions_are_refused(rev: str) -> None:
    with pytest.raises(Invalid, match="not a revision"):
        parse_source("hg::https://h.example/r", {"rev": rev})


@pytest.mark.parametrize("rev", ["tip", "v1.2.3", "feature/x-1", "0123456789ab", "user@work"])
def test_names_and_hashes_are_taken(rev: str) -> None:
    assert parse_source("hg::https://h.example/r", {"rev": rev}).ref == rev


def test_a_revision_in_the_address_is_refused() -> None:
    with pytest.raises(Invalid, match="name the revision by `rev`"):
        parse_source("hg::https://h.example/r#0123456789ab")


@needs_hg
async def test_an_unknown_revision_is_told_without_the_password(dirs: TaskDirs, address: str) -> None:
    with pytest.raises(RecoverableError, match="unknown revision") as caught:
        await fetch(dirs, f"hg::{address.replace('127', 'user:secret@127')}", rev="v9")
    assert "secret" not in str(caught.value)


@needs_hg
async def test_nothing_of_the_agents_user_is_used(
    dirs: TaskDirs, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, marks = tmp_path / "home", tmp_path / "marks"
    for folder in (home, marks, Path(dirs.alloc_dir, ".hg")):
        folder.mkdir()
    (marks / "evil.py").write_text(f"open({str(marks / 'loaded')!r}, 'w')")
    rc = HOSTILE_RC.format(marks=marks)
    for path in (home / ".hgrc", Path(dirs.alloc_dir, ".hg", "hgrc")):
        path.write_text(rc)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("HGRCPATH", str(home / ".hgrc"))
    monkeypatch.setenv("PYTHONPATH", str(marks))
    limits = ArtifactLimits(is_confined=False, env_names=("HOME", "HGRCPATH", "PYTHONPATH"))
    got = await fetch(dirs, f"hg::{address}", limits=limits)
    assert (got / "file").read_text() == "two"
    assert sorted(path.name for path in marks.iterdir()) == ["evil.py"]


@needs_hg
async def test_a_subrepository_is_refused(dirs: TaskDirs, tmp_path: Path, work: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    hg(outer, "init")
    (outer / ".hgsub").write_text("inner = inner\n")
    hg(outer, "clone", str(work), "inner")
    hg(outer, "commit", "-Am", "x")
    with served(outer) as address, pytest.raises(RecoverableError, match="subrepos"):
        await fetch(dirs, f"hg::{address}")


async def test_a_host_without_hg_is_told_what_to_install(
    dirs: TaskDirs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Invalid, match="apt install mercurial"):
        await fetch(dirs, "hg::https://127.0.0.1:1/x")
