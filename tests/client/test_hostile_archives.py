"""Archives and places made to do harm: what an artifact holds, and what a task puts where it is to arrive."""

# ruff: noqa: ASYNC240 - small files of a test

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import os
import stat
import struct
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from yurt.client.artifacts import destination, task_artifacts
from yurt.client.artifacts.fetch_request import ArtifactLimits
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir
from yurt.client.templates import files as template_files
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Invalid, NotFound, YurtError
from yurt.structs.task import TaskArtifact

SPECIAL_MODE = 0o6755
LIMIT_S = 60


@pytest.fixture
def dirs(tmp_path: Path) -> TaskDirs:
    """The directories of a task, and a folder outside of them."""
    build_alloc_dir(str(tmp_path / "allocs"), "id")
    (tmp_path / "outside").mkdir()
    return build_task_dir(str(tmp_path / "allocs"), "id", "web")


async def fetch(dirs: TaskDirs, source: str, dest: str = "local/got", *, limits: ArtifactLimits | None = None) -> None:
    """Fetch one artifact."""
    place = task_artifacts.TaskPlace(task_name="web", dirs=dirs)
    artifacts = (TaskArtifact(getter_source=source, relative_dest=dest),)
    expected = task_artifacts.plan(artifacts, place, lookup=lambda _name: None, limits=limits or ArtifactLimits())
    async with asyncio.timeout(LIMIT_S):
        await task_artifacts.fetch_all(expected, on_done=lambda _digest: None)


def put(dirs: TaskDirs, name: str, data: bytes) -> str:
    """An archive in the task's own directory, as a source."""
    Path(dirs.local_dir, name).write_bytes(data)
    return f"file::local/{name}"


def tar_with_modes() -> bytes:
    """A tar of a program and a folder with set-id bits."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, kind in (("tool", tarfile.REGTYPE), ("folder", tarfile.DIRTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, SPECIAL_MODE
            tar.addfile(info)
    return made.getvalue()


def zip_with(name: str, content: bytes, mode: int) -> bytes:
    """A zip of one entry whose unix mode is this."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo(name)
        info.external_attr, info.create_system = mode << 16, 3
        archive.writestr(info, content, zipfile.ZIP_DEFLATED)
    return made.getvalue()


@pytest.mark.parametrize("kind", ["tar.gz", "zip"])
async def test_set_id_bits_of_an_archive_do_not_arrive(dirs: TaskDirs, kind: str) -> None:
    data = tar_with_modes() if kind == "tar.gz" else zip_with("tool", b"", stat.S_IFREG | SPECIAL_MODE)
    await fetch(dirs, put(dirs, f"x.{kind}", data))
    arrived = list(Path(dirs.local_dir, "got").rglob("*"))
    assert Path(dirs.local_dir, "got", "tool") in arrived
    assert all(path.stat().st_mode & 0o7000 == 0 for path in arrived)


async def test_a_link_in_a_zip_is_a_file_that_holds_its_target(dirs: TaskDirs) -> None:
    await fetch(dirs, put(dirs, "x.zip", zip_with("link", b"/etc/passwd", stat.S_IFLNK | 0o777)))
    arrived = Path(dirs.local_dir, "got", "link")
    assert not arrived.is_symlink() and arrived.read_bytes() == b"/etc/passwd"


async def test_a_zip_that_lies_about_its_size_gives_no_more_than_it_says(dirs: TaskDirs) -> None:
    bomb = bytearray(zip_with("a", b"\0" * 8_000_000, stat.S_IFREG | 0o644))
    for mark, at in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        struct.pack_into("<I", bomb, bomb.index(mark) + at, 10)
    with pytest.raises(Invalid, match="cannot be unpacked"):
        await fetch(dirs, put(dirs, "x.zip", bytes(bomb)), limits=ArtifactLimits(unpacked_bytes_max=1_000_000))
    assert not Path(dirs.local_dir, "got").exists()


@pytest.mark.parametrize(
    "dest",
    ["../../outside/x", "local/../../../outside", "local/a\0b", "../..", "local/way/x", "local/pipe", "local/root/tmp"],
)
async def test_no_destination_leads_out(dirs: TaskDirs, tmp_path: Path, dest: str) -> None:
    Path(dirs.local_dir, "way").symlink_to(tmp_path / "outside")
    Path(dirs.local_dir, "root").symlink_to("/proc/self/root")
    os.mkfifo(Path(dirs.local_dir, "pipe"))
    with pytest.raises(YurtError):
        await fetch(dirs, put(dirs, "x", b"1"), dest)
    assert not list((tmp_path / "outside").iterdir())


@pytest.mark.parametrize("name", ["pipe", "device", "root/etc/hostname", "\0", "loop"])
async def test_no_source_in_the_task_is_more_than_a_file_of_its_own(dirs: TaskDirs, name: str) -> None:
    os.mkfifo(Path(dirs.local_dir, "pipe"))
    Path(dirs.local_dir, "device").symlink_to("/dev/zero")
    Path(dirs.local_dir, "root").symlink_to("/proc/self/root")
    Path(dirs.local_dir, "loop").symlink_to("loop")
    with pytest.raises(YurtError):
        await fetch(dirs, f"file::local/{name}")
    assert not Path(dirs.local_dir, "got").exists()


def tar_of(*members: tuple[str, bytes, str | bytes]) -> bytes:
    """A tar of (name, type, the link's target or the file's content)."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, said in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, 0o644
            content = said if isinstance(said, bytes) else b""
            info.linkname, info.size = "" if isinstance(said, bytes) else said, len(content)
            tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


FILE, FOLDER, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
UP = "../../../../outside"
"""From the top of the tree that is unpacked, in its staging folder, to the folder beside the allocations."""


def long_way_out() -> list[tuple[str, bytes, str | bytes]]:
    """Members that make `escape` a link to the host's `outside`, by a path too long for a resolver to follow.

    Behind 16 short links lie 16 long folders. The link at their end climbs back to the top, but its real path is longer
    than PATH_MAX, so that a resolver by path takes it for a plain name and the climb for a descent.
    """
    members: list[tuple[str, bytes, str | bytes]] = []
    path, steps = "", "abcdefghijklmnop"
    for step in steps:
        members.append((f"{path}{'d' * 247}", FOLDER, b""))
        members.append((f"{path}{step}", LINK, "d" * 247))
        path += "d" * 247 + "/"
    way = "/".join(steps) + "/" + "l" * 254
    members.append((way, LINK, "../" * len(steps)))
    members.append(("escape", LINK, f"{way}/{UP}"))
    return members


@pytest.mark.parametrize("kind", ["write", "overwrite", "read"])
async def test_a_tar_whose_links_outgrow_a_resolver_reaches_nothing(dirs: TaskDirs, tmp_path: Path, kind: str) -> None:
    host = tmp_path / "outside" / "host"
    host.write_bytes(b"of the host")
    members = {
        "write": [("escape/new", FILE, b"written")],
        "overwrite": [("flag", HARD, "escape/host"), ("flag", FILE, b"written")],
        "read": [("flag", HARD, "escape/host")],
    }[kind]
    with pytest.raises(YurtError):
        await fetch(dirs, put(dirs, "x.tar.gz", tar_of(*long_way_out(), *members)))
    assert host.read_bytes() == b"of the host" and host.stat().st_nlink == 1
    assert [path.name for path in host.parent.iterdir()] == ["host"]
    assert not Path(dirs.local_dir, "got").exists()


WAYS_OUT: dict[str, list[tuple[str, bytes, str | bytes]]] = {
    "name": [(f"{UP}/new", FILE, b"1")],
    "name inside": [("a/../b", FILE, b"1")],
    "absolute link": [("l", LINK, "/etc")],
    "link": [("l", LINK, UP)],
    "link beside its folder": [("a/l", LINK, f"../{UP}")],
    "climb behind a link": [("a", FOLDER, b""), ("l", LINK, "a"), ("m", LINK, "l/../..")],
    "climb behind nothing": [("l", LINK, "missing/..")],
    "climb by a chain": [("a/b", LINK, "."), ("a/c", LINK, "b/.."), ("d", LINK, f"a/c/{UP}")],
    "file behind a link": [("a", FOLDER, b""), ("l", LINK, "a"), ("l/x", FILE, b"1")],
    "folder behind a link": [("l", LINK, "."), ("l/x", FOLDER, b"")],
    "link behind a link": [("l", LINK, "."), ("l/x", LINK, "y")],
    "hard link behind a link": [("x", FILE, b""), ("l", LINK, "."), ("l/y", HARD, "x")],
    "folder in place of a link": [("l", LINK, "."), ("l", FOLDER, b"")],
    "link in place of a folder": [("a/x", FILE, b""), ("a", LINK, ".")],
    "hard link to the host": [("h", HARD, "/etc/hostname")],
    "hard link out": [("h", HARD, f"{UP}/host")],
    "hard link to a link": [("x", FILE, b""), ("l", LINK, "x"), ("h", HARD, "l")],
    "hard link to what comes later": [("h", HARD, "x"), ("x", FILE, b"")],
    "hard link to what was replaced": [("x", FILE, b""), ("x", LINK, "y"), ("h", HARD, "x")],
    "hard link to a folder": [("a", FOLDER, b""), ("h", HARD, "a")],
    "device": [("d", tarfile.CHRTYPE, b"")],
    "pipe": [("p", tarfile.FIFOTYPE, b"")],
    "long name": [("n" * 256, FILE, b"")],
    "long path": [("/".join(["n" * 200] * 11), FILE, b"")],
    "deep path": [("a/" * 129 + "x", FILE, b"")],
    "empty name": [(".", FILE, b"")],
}


@pytest.mark.parametrize("way", list(WAYS_OUT))
async def test_no_member_of_a_tar_leads_out_or_through_another(dirs: TaskDirs, tmp_path: Path, way: str) -> None:
    host = tmp_path / "outside" / "host"
    host.write_bytes(b"of the host")
    with pytest.raises(Invalid, match="the archive holds"):
        await fetch(dirs, put(dirs, "x.tar.gz", tar_of(*WAYS_OUT[way])))
    assert host.stat().st_nlink == 1 and [path.name for path in host.parent.iterdir()] == ["host"]
    assert not Path(dirs.local_dir, "got").exists()


async def test_a_name_that_is_no_utf8_arrives_and_can_be_told(dirs: TaskDirs) -> None:
    name = os.fsdecode(b"n\xff")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz", format=tarfile.GNU_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo(name))
    await fetch(dirs, put(dirs, "x.tar.gz", data.getvalue()))
    assert [path.name for path in Path(dirs.local_dir, "got").iterdir()] == [name]
    Path(dirs.local_dir, "other", name).mkdir(parents=True)
    with pytest.raises(YurtError, match="cannot take the place of the folder"):
        await fetch(dirs, put(dirs, "x.tar.gz", data.getvalue()), "local/other")


async def test_links_that_stay_inside_a_tar_arrive(dirs: TaskDirs) -> None:
    await fetch(
        dirs,
        put(
            dirs,
            "x.tar.gz",
            tar_of(
                ("./", FOLDER, b""),
                ("/lib/libx.so", LINK, "libx.so.1"),
                ("lib/libx.so.1", FILE, b"code"),
                ("bin/a/tool", LINK, "../../lib/../lib/libx.so"),
                ("copy", HARD, "lib/libx.so.1"),
                ("twice", FILE, b"old"),
                ("twice", FILE, b"new"),
                ("dangling", LINK, "nowhere"),
            ),
        ),
    )
    got = Path(dirs.local_dir, "got")
    assert (got / "bin/a/tool").read_bytes() == (got / "lib/libx.so").read_bytes() == b"code"
    assert os.path.samefile(got / "copy", got / "lib/libx.so.1")
    assert (got / "twice").read_bytes() == b"new" and (got / "dangling").is_symlink()


async def test_a_later_file_of_a_hard_link_s_name_leaves_the_first_name_alone(dirs: TaskDirs) -> None:
    await fetch(dirs, put(dirs, "x.tar.gz", tar_of(("a", FILE, b"1"), ("b", HARD, "a"), ("b", FILE, b"2"))))
    got = Path(dirs.local_dir, "got")
    assert (got / "a").read_bytes() == b"1" and (got / "b").read_bytes() == b"2"


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([(f"f{number}", FILE, b"") for number in range(11)], "more than 10 files"),
        ([(f"{number}/a/b/c/x", FILE, b"") for number in range(5)], "more than 10 folders"),
        ([("a", FILE, b"x" * 600), ("b", FILE, b"x" * 600)], "more than 1000 bytes"),
    ],
)
async def test_the_limits_of_an_archive_count_files_folders_and_bytes(
    dirs: TaskDirs, members: list[tuple[str, bytes, str | bytes]], said: str
) -> None:
    limits = ArtifactLimits(file_count_max=10, unpacked_bytes_max=1000)
    with pytest.raises(Invalid, match=said):
        await fetch(dirs, put(dirs, "x.tar.gz", tar_of(*members)), limits=limits)


@pytest.mark.parametrize("is_confined", [True, False])
async def test_what_arrives_belongs_to_the_agent_with_and_without_confinement(
    dirs: TaskDirs, is_confined: bool
) -> None:
    data = tar_of(("a/b", FILE, b"1"), ("h", HARD, "a/b"), ("l", LINK, "a"))
    limits = ArtifactLimits(is_confined=is_confined)
    await fetch(dirs, put(dirs, "x.tar.gz", data), limits=limits)
    await fetch(dirs, put(dirs, "y", b"1"), limits=limits)
    arrived = list(Path(dirs.local_dir, "got").rglob("*"))
    assert {path.name for path in arrived} == {"a", "b", "h", "l", "y"}
    assert {path.lstat().st_uid for path in arrived} == {os.geteuid()}


def test_a_file_of_another_user_in_a_staging_folder_does_not_arrive(dirs: TaskDirs, tmp_path: Path) -> None:
    (tmp_path / "outside/host").write_text("of the host")
    tree = tmp_path / "tree"
    tree.mkdir()
    os.link(tmp_path / "outside/host", tree / "second")
    with pytest.raises(Invalid, match="belongs to the user"):
        destination.place_tree(str(tree), dirs.alloc_dir, "web/local/got", destination.Arrivals(os.geteuid() + 1, None))
    assert (tmp_path / "outside/host").stat().st_uid == os.geteuid()


@contextlib.contextmanager
def swapped(dirs: TaskDirs, outside: Path) -> Iterator[None]:
    """While it lasts, `local/way` is in turn a folder of the task and a link out of it."""
    inside, way = Path(dirs.local_dir, "inside"), Path(dirs.local_dir, "way")
    inside.mkdir()
    (inside / "file").write_text("harmless")
    is_over = threading.Event()

    def swap() -> None:
        spare = Path(dirs.local_dir, "spare")
        for target in itertools.cycle((None, outside)):
            if is_over.is_set():
                return
            with contextlib.suppress(OSError):
                if target is None:
                    way.unlink()
                    inside.rename(way)
                else:
                    way.rename(inside)
                    spare.symlink_to(target)
                    spare.rename(way)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        yield
    finally:
        is_over.set()
        swapper.join()


def test_a_template_never_goes_through_a_folder_that_is_being_swapped(dirs: TaskDirs, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "file").write_text("of the host")
    seen, written = set(), 0
    with swapped(dirs, outside):
        for _ in range(3000):
            with contextlib.suppress(Invalid, NotFound, YurtError):
                seen.add(template_files.read_file("local/way/file", dirs, is_sandboxed=True))
            with contextlib.suppress(Invalid):
                template_files.write(dirs.task_dir, "local/way/made", b"x", mode=0o644, owner=(-1, -1))
                written += 1
    assert seen <= {b"harmless"} and written > 0
    assert [path.name for path in outside.iterdir()] == ["file"]


async def test_an_artifact_never_goes_through_a_folder_that_is_being_swapped(dirs: TaskDirs, tmp_path: Path) -> None:
    source = put(dirs, "x", b"1")
    with swapped(dirs, tmp_path / "outside"):
        for _ in range(8):
            with contextlib.suppress(YurtError):
                await fetch(dirs, source, "local/way")
    assert not list((tmp_path / "outside").iterdir())
