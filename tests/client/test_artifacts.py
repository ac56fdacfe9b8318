"""Artifacts fetched by the real child process, from servers on loopback."""

# ruff: noqa: ASYNC221, ASYNC240 - small files of a test

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import http.server
import io
import os
import subprocess
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from yurt.client.artifacts import task_artifacts
from yurt.client.artifacts.fetch_request import ArtifactLimits
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir
from yurt.runtime.env import RealEnv
from yurt.sdk.driver import ExitResult, TaskDirs
from yurt.sdk.errors import Invalid, RecoverableError, YurtError
from yurt.sdk.value import replace
from yurt.structs.policies import RestartPolicy
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_RUNNING, JOB_BATCH
from yurt.structs.task import TaskArtifact
from yurt.testing import factories
from yurt.testing.client_objects import placed
from yurt.testing.fakes import FakeDriver, FakeServerPort, eventually

BIG = 4_000_000
GIT_IDENTITY = (
    "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b "
    "GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b"
)


class Site(http.server.ThreadingHTTPServer):
    """A web server: files by their path, and what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.folder: Path | None = None
        self.release = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers from the site's tables."""

    server: Site

    def do_GET(self) -> None:
        """A file, a redirect, or nothing."""
        path = self.path.partition("?")[0]
        self.server.requests.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
        if path in self.server.redirects:
            self.send_response(302)
            self.send_header("Location", self.server.redirects[path])
            self.end_headers()
            return
        data = self.server.files.get(path)
        if data is None and self.server.folder is not None:
            with contextlib.suppress(OSError):
                data = (self.server.folder / path.lstrip("/")).read_bytes()
        if data is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data) + (1000 if path in ("/cut", "/slow") else 0)))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data)
            self.wfile.flush()
            if path == "/slow":
                self.server.release.wait(30)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def site() -> Iterator[Site]:
    """A site that is gone after the test."""
    made = Site()
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.release.set()
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture
def dirs(tmp_path: Path) -> TaskDirs:
    """The directories of a task."""
    build_alloc_dir(str(tmp_path / "allocs"), "id")
    return build_task_dir(str(tmp_path / "allocs"), "id", "web")


async def fetch(
    dirs: TaskDirs, source: str, dest: str = "local/", *, limits: ArtifactLimits | None = None, **changes: Any
) -> None:
    """Fetch one artifact into a task's directories; nothing may stay behind but what was fetched."""
    artifact = TaskArtifact(getter_source=source, relative_dest=dest, **changes)
    place = task_artifacts.TaskPlace(task_name="web", dirs=dirs)
    expected = task_artifacts.plan((artifact,), place, lookup=lambda _name: None, limits=limits or ArtifactLimits())
    try:
        await task_artifacts.fetch_all(expected, on_done=lambda _digest: None)
    finally:
        assert [name for name in os.listdir(dirs.alloc_dir) if name.startswith(task_artifacts.STAGING)] == []


def tar_of(entries: dict[str, bytes | tarfile.TarInfo], *, mode: str = "w:gz") -> bytes:
    """A tar archive; a TarInfo is an entry of another kind."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as tar:  # type: ignore[call-overload]
        for name, content in entries.items():
            info = content if isinstance(content, tarfile.TarInfo) else tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size, info.mode = len(content), 0o755
            tar.addfile(info, io.BytesIO(content) if isinstance(content, bytes) else None)
    return made.getvalue()


def entry(name: str, kind: bytes, target: str = "") -> tarfile.TarInfo:
    """A link, a device or another special entry."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def zip_of(entries: dict[str, bytes]) -> bytes:
    """A zip archive."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return made.getvalue()


def local(dirs: TaskDirs) -> dict[str, bytes]:
    """The files in the task's local directory."""
    root = Path(dirs.local_dir)
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


async def test_a_file_is_downloaded_under_its_name_with_the_tasks_headers(site: Site, dirs: TaskDirs):
    site.files["/a/tool"] = b"hello"
    await fetch(dirs, f"{site.url}/a/tool?x=1", getter_headers={"X-Token": "t"}, getter_options={"y": "2"})
    assert local(dirs) == {"tool": b"hello"}
    path, headers = site.requests[0]
    assert path == "/a/tool?x=1&y=2" and headers["x-token"] == "t"


async def test_mode_file_makes_the_destination_the_file(site: Site, dirs: TaskDirs):
    site.files["/tool"] = b"hello"
    await fetch(dirs, f"{site.url}/tool", "local/bin/renamed", getter_mode="file")
    assert local(dirs) == {"bin/renamed": b"hello"}


async def test_an_empty_file_is_a_file(site: Site, dirs: TaskDirs):
    site.files["/nothing"] = b""
    await fetch(dirs, f"{site.url}/nothing")
    assert local(dirs) == {"nothing": b""}


@pytest.mark.parametrize(("name", "mode"), [("tgz", "w:gz"), ("tar", "w:"), ("tar.bz2", "w:bz2"), ("tar.xz", "w:xz")])
async def test_tar_archives_are_unpacked(site: Site, dirs: TaskDirs, name: str, mode: str):
    site.files[f"/x.{name}"] = tar_of({"bin/tool": b"#!/bin/sh\n", "README": b"r"}, mode=mode)
    await fetch(dirs, f"{site.url}/x.{name}")
    assert local(dirs) == {"bin/tool": b"#!/bin/sh\n", "README": b"r"}
    assert os.access(f"{dirs.local_dir}/bin/tool", os.X_OK)


async def test_a_folder_inside_an_archive_is_taken_alone(site: Site, dirs: TaskDirs):
    site.files["/x.zip"] = zip_of({"v1/bin/tool": b"1", "v1/README": b"2", "v2/bin": b"3"})
    await fetch(dirs, f"{site.url}/x.zip//v1", "local/got")
    assert local(dirs) == {"got/bin/tool": b"1", "got/README": b"2"}


async def test_a_compressed_file_is_unpacked_to_its_bare_name(site: Site, dirs: TaskDirs):
    site.files["/data.csv.gz"] = gzip.compress(b"1,2,3")
    await fetch(dirs, f"{site.url}/data.csv.gz")
    assert local(dirs) == {"data.csv": b"1,2,3"}


async def test_archive_false_keeps_the_archive(site: Site, dirs: TaskDirs):
    site.files["/x.zip"] = zip_of({"a": b"1"})
    await fetch(dirs, f"{site.url}/x.zip", getter_options={"archive": "false"})
    assert list(local(dirs)) == ["x.zip"]


async def test_a_second_artifact_joins_the_first_and_replaces_files_of_its_names(site: Site, dirs: TaskDirs):
    site.files |= {"/a.zip": zip_of({"bin/a": b"old", "b": b"1"}), "/c.zip": zip_of({"bin/a": b"new"})}
    await fetch(dirs, f"{site.url}/a.zip")
    await fetch(dirs, f"{site.url}/c.zip")
    assert local(dirs) == {"bin/a": b"new", "b": b"1"}


async def test_the_allocations_shared_directory_may_be_a_destination(site: Site, dirs: TaskDirs):
    site.files["/x"] = b"shared"
    await fetch(dirs, f"{site.url}/x", "${NOMAD_ALLOC_DIR}/data")
    assert Path(dirs.shared_dir, "data", "x").read_bytes() == b"shared"


async def test_a_checksum_is_verified_before_anything_arrives(site: Site, dirs: TaskDirs):
    site.files["/x"] = b"content"
    digest = hashlib.sha256(b"content").hexdigest()
    await fetch(dirs, f"{site.url}/x", getter_options={"checksum": f"sha256:{digest}"})
    assert local(dirs) == {"x": b"content"}

    with pytest.raises(RecoverableError, match=r"the checksum of .*/x is sha256:") as caught:
        await fetch(dirs, f"{site.url}/x", "local/other", getter_options={"checksum": "0" * 64})
    assert digest in str(caught.value) and list(local(dirs)) == ["x"]


async def test_a_checksum_may_stand_in_a_list(site: Site, dirs: TaskDirs):
    site.files |= {"/x": b"content", "/SUMS": f"{hashlib.md5(b'content').hexdigest()}  x\n".encode()}
    await fetch(dirs, f"{site.url}/x", getter_options={"checksum": f"file:{site.url}/SUMS"})
    assert local(dirs) == {"x": b"content"}


async def test_redirects_are_followed_but_secrets_stay_with_their_host(site: Site, dirs: TaskDirs):
    site.files["/x"] = b"1"
    site.redirects["/r"] = site.url.replace("127.0.0.1", "localhost") + "/x"
    headers = {"Authorization": "Bearer secret", "X-Other": "o"}
    await fetch(dirs, f"{site.url}/r", getter_headers=headers, getter_options={"filename": "x"})
    assert local(dirs) == {"x": b"1"}
    first, second = (headers for _, headers in site.requests)
    assert first["authorization"] == "Bearer secret"
    assert "authorization" not in second and second["x-other"] == "o"


async def test_user_and_password_of_an_address_are_sent_but_never_shown(site: Site, dirs: TaskDirs):
    with pytest.raises(RecoverableError, match="404") as caught:
        await fetch(dirs, site.url.replace("://", "://user:word@") + "/none?sig=secret")
    assert site.requests[0][1]["authorization"].startswith("Basic ")
    assert "word" not in str(caught.value) and "secret" not in str(caught.value)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x"])
async def test_a_redirect_to_another_scheme_is_not_followed(site: Site, dirs: TaskDirs, target: str):
    site.redirects["/r"] = target
    with pytest.raises(YurtError):
        await fetch(dirs, f"{site.url}/r")
    assert local(dirs) == {}


async def test_redirects_have_an_end(site: Site, dirs: TaskDirs):
    site.redirects |= {f"/{number}": f"/{number + 1}" for number in range(30)}
    with pytest.raises(RecoverableError, match="redirect"):
        await fetch(dirs, f"{site.url}/0")
    assert len(site.requests) <= 12


async def test_a_download_that_is_cut_short_is_told_and_leaves_nothing(site: Site, dirs: TaskDirs):
    site.files["/cut"] = b"x" * 100
    with pytest.raises(RecoverableError, match=r"ended after 100 of 1100 bytes|cannot be read"):
        await fetch(dirs, f"{site.url}/cut")
    assert local(dirs) == {}


async def test_a_download_has_a_largest_size(site: Site, dirs: TaskDirs):
    site.files["/x"] = b"x" * 5000
    with pytest.raises(Invalid, match="larger than 4999 bytes"):
        await fetch(dirs, f"{site.url}/x", limits=ArtifactLimits(http_max_bytes=4999))


async def test_a_server_that_says_nothing_more_does_not_hold_the_task_up(site: Site, dirs: TaskDirs):
    site.files["/slow"] = b"x"
    with pytest.raises(RecoverableError, match="timed out"):
        await fetch(dirs, f"{site.url}/slow", limits=ArtifactLimits(http_read_timeout_s=0.3))


async def test_nobody_answers(dirs: TaskDirs):
    with pytest.raises(RecoverableError, match=r"http://127.0.0.1:1/x cannot be read: .*refused"):
        await fetch(dirs, "http://127.0.0.1:1/x")


HOSTILE_TARS = {
    "a path upwards": {"../../evil": b"x"},
    "an absolute path": {"/tmp/yurt-evil": b"x"},
    "a link upwards": {"l": entry("l", tarfile.SYMTYPE, "../../../../etc"), "l/x": b"x"},
    "an absolute link": {"l": entry("l", tarfile.SYMTYPE, "/etc/passwd")},
    "a hard link outside": {"l": entry("l", tarfile.LNKTYPE, "../../../../etc/passwd")},
    "a device": {"d": entry("d", tarfile.CHRTYPE)},
    "a fifo": {"f": entry("f", tarfile.FIFOTYPE)},
}


@pytest.mark.parametrize("what", HOSTILE_TARS)
async def test_a_hostile_tar_is_refused(site: Site, dirs: TaskDirs, what: str):
    site.files["/x.tar.gz"] = tar_of(HOSTILE_TARS[what])
    before = sorted(str(path) for path in Path(dirs.alloc_dir).parent.parent.rglob("*"))
    with contextlib.suppress(Invalid):
        await fetch(dirs, f"{site.url}/x.tar.gz")
    after = sorted(str(path) for path in Path(dirs.alloc_dir).parent.parent.rglob("*"))
    assert set(after) - set(before) <= {f"{dirs.local_dir}/tmp", f"{dirs.local_dir}/tmp/yurt-evil"}
    assert not Path("/tmp/yurt-evil").exists()


@pytest.mark.parametrize("name", ["../evil", "/tmp/yurt-evil", "a/../../evil", "..\\evil"])
async def test_a_hostile_zip_is_refused(site: Site, dirs: TaskDirs, name: str):
    site.files["/x.zip"] = zip_of({name: b"x"})
    with pytest.raises(Invalid, match="leads out of it"):
        await fetch(dirs, f"{site.url}/x.zip")


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz", "x.gz"])
async def test_a_bomb_is_defused(site: Site, dirs: TaskDirs, name: str):
    content = b"\0" * BIG
    packed = {"x.zip": zip_of({"a": content}), "x.tar.gz": tar_of({"a": content}), "x.gz": gzip.compress(content)}
    site.files[f"/{name}"] = packed[name]
    with pytest.raises(Invalid, match="unpacks to more than 1000000 bytes"):
        await fetch(dirs, f"{site.url}/{name}", limits=ArtifactLimits(unpacked_bytes_max=1_000_000))
    assert local(dirs) == {}


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz"])
async def test_an_archive_has_a_largest_number_of_files(site: Site, dirs: TaskDirs, name: str):
    entries = {f"f{number}": b"" for number in range(11)}
    site.files[f"/{name}"] = zip_of(entries) if name == "x.zip" else tar_of(entries)  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="more than 10 files"):
        await fetch(dirs, f"{site.url}/{name}", limits=ArtifactLimits(file_count_max=10))


@pytest.mark.parametrize("name", ["x.zip", "x.tar.gz", "x.gz", "x.tar.xz"])
async def test_a_broken_archive_is_told(site: Site, dirs: TaskDirs, name: str):
    site.files[f"/{name}"] = b"this is no archive at all"
    with pytest.raises(Invalid, match="cannot be unpacked"):
        await fetch(dirs, f"{site.url}/{name}")


@pytest.mark.parametrize("dest", ["local/way", "local/way/deeper"])
async def test_a_link_that_a_task_put_in_the_way_is_not_followed(site: Site, dirs: TaskDirs, tmp_path: Path, dest: str):
    outside = tmp_path / "outside"
    outside.mkdir()
    Path(dirs.local_dir, "way").symlink_to(outside)
    site.files["/x"] = b"1"
    with pytest.raises(Invalid, match="links are not followed"):
        await fetch(dirs, f"{site.url}/x", dest)
    assert list(outside.iterdir()) == []


async def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(site: Site, dirs: TaskDirs, tmp_path: Path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    Path(dirs.local_dir, "x").symlink_to(victim)
    site.files["/x"] = b"1"
    await fetch(dirs, f"{site.url}/x")
    assert victim.read_bytes() == b"mine" and Path(dirs.local_dir, "x").read_bytes() == b"1"


async def test_a_file_of_the_allocation_may_be_unpacked_and_no_other_of_the_host(dirs: TaskDirs):
    Path(dirs.local_dir, "x.zip").write_bytes(zip_of({"a": b"1"}))
    await fetch(dirs, "file::local/x.zip", "local/got")
    assert local(dirs)["got/a"] == b"1"

    for source in ("/etc/passwd", "file::/etc/passwd", "file:///etc/passwd", "./../../../../etc/passwd"):
        with pytest.raises(YurtError):
            await fetch(dirs, source, "local/stolen")
    Path(dirs.local_dir, "link").symlink_to("/etc/passwd")
    with pytest.raises(YurtError, match="leads out"):
        await fetch(dirs, "file::local/link", "local/stolen")


@pytest.fixture
def repository(site: Site, tmp_path: Path) -> str:
    """A repository with two commits and a tag, served as plain files."""
    work, bare = tmp_path / "work", tmp_path / "site" / "repo.git"
    script = f"""
    set -e; {GIT_IDENTITY}
    git init -q -b main {work}; cd {work}
    echo one > file; mkdir sub; echo sub > sub/inner; git add .; git commit -qm one; git tag v1
    echo two > file; git commit -qam two
    git clone -q --bare {work} {bare}; cd {bare}; git update-server-info
    """
    subprocess.run(["sh", "-c", script], check=True, capture_output=True)
    site.folder = tmp_path / "site"
    return f"git::{site.url}/repo.git"


async def test_a_repository_is_cloned(dirs: TaskDirs, repository: str):
    await fetch(dirs, repository)
    assert local(dirs)["file"] == b"two\n"


async def test_a_ref_and_a_folder_of_a_repository_can_be_chosen(dirs: TaskDirs, repository: str):
    await fetch(dirs, f"{repository}//sub", getter_options={"ref": "v1"})
    assert local(dirs) == {"inner": b"sub\n"}
    await fetch(dirs, repository, "local/whole", getter_options={"ref": "v1"})
    assert local(dirs)["whole/file"] == b"one\n"


async def test_a_repository_that_is_not_there_is_told_without_a_prompt(dirs: TaskDirs, repository: str):
    with pytest.raises(RecoverableError, match="git could not fetch"):
        await fetch(dirs, repository.replace("repo.git", "none.git"))
    with pytest.raises(RecoverableError, match="git could not fetch"):
        await fetch(dirs, repository, getter_options={"ref": "nobody"})


async def test_a_link_of_a_repository_that_leads_out_is_refused(dirs: TaskDirs, repository: str, tmp_path: Path):
    script = f"""
    set -e; {GIT_IDENTITY}
    cd {tmp_path}/work; ln -s /etc/passwd stolen; git add .; git commit -qm link
    git push -q {tmp_path}/site/repo.git main; cd {tmp_path}/site/repo.git; git update-server-info
    """
    subprocess.run(["sh", "-c", script], check=True, capture_output=True)
    with pytest.raises(Invalid, match="the link 'stolen', which leads out"):
        await fetch(dirs, repository)
    assert local(dirs) == {}


# In the life of a task.


def alloc_with(node_id: str, *sources: str, **changes: Any) -> Any:
    """A batch allocation of the fake driver whose task has artifacts."""
    artifacts = tuple(TaskArtifact(getter_source=source, relative_dest="local/") for source in sources)
    alloc = placed(node_id, job=factories.job(type=JOB_BATCH))
    assert alloc.job is not None
    group = alloc.job.task_groups[0]
    task = replace(group.tasks[0], artifacts=artifacts, **changes)
    return replace(alloc, job=replace(alloc.job, task_groups=(replace(group, tasks=(task,)),)))


def event_types(server: FakeServerPort, alloc_id: str) -> list[str]:
    return [event.type for event in server.last_update(alloc_id).task_states["web"].events]


async def test_a_task_starts_when_its_artifacts_are_there_and_a_restart_does_not_fetch_them_again(
    run_client, server: FakeServerPort, driver: FakeDriver, site: Site, tmp_path: Path
):
    site.files["/x"] = b"1"
    async with run_client() as client:
        again = RestartPolicy(attempts=3, interval=60_000_000_000, delay=1_000_000, mode="fail")
        alloc = alloc_with(client.node_id, f"{site.url}/x", restart_policy=again)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_RUNNING)
        assert (tmp_path / "alloc" / alloc.id / "web" / "local" / "x").read_bytes() == b"1"
        assert event_types(server, alloc.id) == ["Received", "Task Setup", "Downloading Artifacts", "Started"]

        driver.finish(f"{alloc.id}/web/0", ExitResult(exit_code=1))
        await eventually(lambda: f"{alloc.id}/web/1" in driver.host.tasks)
        driver.finish(f"{alloc.id}/web/1")
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert len(site.requests) == 1


async def test_a_failed_download_is_told_and_tried_again_by_the_restart_policy(
    run_client, server: FakeServerPort, site: Site
):
    async with run_client() as client:
        again = RestartPolicy(attempts=2, interval=60_000_000_000, delay=1_000_000, mode="fail")
        alloc = alloc_with(client.node_id, f"{site.url}/none", restart_policy=again)
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
        events = server.last_update(alloc.id).task_states["web"].events
        failures = [event for event in events if event.type == "Failed Artifact Download"]
        assert len(site.requests) == 3
        assert failures[-1].display_message.startswith(f'failed to download artifact "{site.url}/none"')
        assert "404" in failures[-1].download_error


async def test_what_can_never_be_fetched_fails_the_task_at_once(run_client, server: FakeServerPort):
    async with run_client() as client:
        alloc = alloc_with(client.node_id, "gopher://host/k")
        server.put_alloc(alloc)
        await eventually(lambda: server.status_of(alloc.id) == CLIENT_FAILED)
        state = server.last_update(alloc.id).task_states["web"]
        assert state.restarts == 0 and any("cannot be downloaded by" in e.download_error for e in state.events)


async def test_a_task_that_is_stopped_while_it_downloads_ends_at_once_and_leaves_no_process(
    run_client, server: FakeServerPort, driver: FakeDriver, site: Site, tmp_path: Path
):
    site.files["/slow"] = b"x" * 100
    site.redirects["/begin"] = f"{site.url}/slow"
    async with run_client() as client:
        alloc = alloc_with(client.node_id, f"{site.url}/begin")
        server.put_alloc(alloc)
        await eventually(lambda: len(site.requests) == 2)

        server.put_alloc(replace(alloc, desired_status="stop"))

        await eventually(lambda: server.status_of(alloc.id) == CLIENT_COMPLETE)
        assert driver.host.starts == []
        children = [child for child in psutil.Process().children() if "artifacts.program" in " ".join(child.cmdline())]
        assert children == []
        assert not [
            name for name in os.listdir(tmp_path / "alloc" / alloc.id) if name.startswith(task_artifacts.STAGING)
        ]


async def test_a_download_that_takes_long_tells_the_bytes_that_have_arrived(
    site: Site, dirs: TaskDirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_artifacts, "FIRST_REPORT_S", 0.05)
    monkeypatch.setattr(task_artifacts, "NEXT_REPORT_S", 0.05)
    site.files["/slow"] = b"x" * (3 << 20)
    artifact = TaskArtifact(getter_source=f"{site.url}/slow", relative_dest="local/")
    place = task_artifacts.TaskPlace(task_name="web", dirs=dirs)
    expected = task_artifacts.plan((artifact,), place, lookup=lambda _name: None, limits=ArtifactLimits())
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if text == f'Downloading artifact "{site.url}/slow": 3.0 MiB downloaded':
            site.release.set()

    async with asyncio.timeout(30):
        with pytest.raises(RecoverableError):  # the site ends the answer early
            await task_artifacts.fetch_all(
                expected, on_done=lambda _digest: None, progress=task_artifacts.ProgressReport(RealEnv(), tell)
            )

    assert site.release.is_set(), told
