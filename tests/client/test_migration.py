"""Data of allocations on its way to another node: all of it arrives, and nothing hostile gets out of its folders."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import tarfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path

import pytest
from yurt.client.allocations import migration
from yurt.client.allocations.migration import pack, unpack
from yurt.sdk.errors import Invalid, Unavailable

OLD, NEW = "11111111-0000-4000-8000-000000000001", "11111111-0000-4000-8000-000000000002"
LIMIT = 10 * 1024 * 1024


def make_tree(root: Path, alloc_id: str) -> Path:
    base = root / alloc_id
    for folder in ("alloc/data", "alloc/logs", "web/local", "web/secrets"):
        (base / folder).mkdir(parents=True)
    return base


async def pieces_of(data: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(data), 1000):
        yield data[start : start + 1000]


async def test_files_modes_owners_and_links_arrive(tmp_path: Path) -> None:
    old, new = make_tree(tmp_path / "a", OLD), make_tree(tmp_path / "b", NEW)
    big = os.urandom(3_000_000)
    (old / "alloc/data/big").write_bytes(big)
    (old / "web/local/deep/er").mkdir(parents=True)
    script = old / "web/local/deep/er/run"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o4750)
    os.link(old / "alloc/data/big", old / "alloc/data/again")
    os.symlink("/alloc/data/big", old / "web/local/link")
    os.mkfifo(old / "web/local/pipe")
    (old / "web/secrets/token").write_text("secret")
    if os.geteuid() == 0:
        os.chown(script, 1234, 4321)

    await unpack(pack(str(tmp_path / "a"), OLD, ["web"]), str(tmp_path / "b"), NEW, tasks=["web"], limit=LIMIT)

    assert (new / "alloc/data/big").read_bytes() == big
    assert (new / "alloc/data/again").samefile(new / "alloc/data/big")
    assert os.readlink(new / "web/local/link") == "/alloc/data/big"
    found = (new / "web/local/deep/er/run").stat()
    assert stat.S_IMODE(found.st_mode) == 0o750
    if os.geteuid() == 0:
        assert (found.st_uid, found.st_gid) == (1234, 4321)
    assert not (new / "web/local/pipe").exists()
    assert not (new / "web/secrets/token").exists()


async def test_an_allocation_without_data_moves_too(tmp_path: Path) -> None:
    new = make_tree(tmp_path, NEW)
    await unpack(pack(str(tmp_path), OLD, ["web"]), str(tmp_path), NEW, tasks=["web"], limit=LIMIT)
    assert list((new / "alloc/data").iterdir()) == []


def entry(name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", size: int = 0) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size = kind, link, size
    return member


def archive(*members: tarfile.TarInfo) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size) if member.size else None)
    return file.getvalue()


HOSTILE: dict[str, Callable[[Path], bytes]] = {
    "a name above the folder": lambda _: archive(entry("alloc/data/../../../out", size=3)),
    "an absolute name": lambda out: archive(entry(f"{out}/out", size=3)),
    "another folder of the allocation": lambda _: archive(entry("web/secrets/out", size=3)),
    "another task": lambda _: archive(entry("db/local/out", size=3)),
    "a file behind a link": lambda out: archive(
        entry("alloc/data/link", tarfile.SYMTYPE, link=str(out)), entry("alloc/data/link/out", size=3)
    ),
    "a link behind a link": lambda out: archive(
        entry("alloc/data/link", tarfile.SYMTYPE, link=str(out)),
        entry("alloc/data/link/out", tarfile.SYMTYPE, link="/etc/passwd"),
    ),
    "a hard link to elsewhere": lambda _: archive(entry("alloc/data/out", tarfile.LNKTYPE, link="/etc/passwd")),
    "a hard link to what did not come": lambda _: archive(
        entry("alloc/data/out", tarfile.LNKTYPE, link="web/local/kept")
    ),
    "too much": lambda _: archive(entry("alloc/data/big", size=LIMIT + 1)),
    "no archive": lambda _: b"nonsense" * 1000,
    "half an archive": lambda _: archive(entry("alloc/data/big", size=5000))[:3000],
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_stream_writes_nothing_outside(tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (make_tree(tmp_path / "b", NEW) / "web/local/kept").write_text("kept")
    with pytest.raises(Invalid):
        await unpack(pieces_of(HOSTILE[name](outside)), str(tmp_path / "b"), NEW, tasks=["web"], limit=LIMIT)
    assert list(outside.iterdir()) == []
    assert not (tmp_path / "b" / "out").exists()
    assert list((tmp_path / "b" / NEW / "web/secrets").iterdir()) == []


@pytest.mark.parametrize("end", [0, 3000, 10_752, 11_264])
async def test_data_that_do_not_come_whole_are_left_out(tmp_path: Path, end: int) -> None:
    """Also where the stream ends between two entries, so that the part of it looks like a whole archive."""
    new, whole = make_tree(tmp_path, NEW), archive(
        entry("alloc/data/first", size=10_000),
        entry("web/local/link", tarfile.SYMTYPE, link="/etc"), entry("web/local/second", size=5000),
    )  # fmt: skip

    async def failing() -> AsyncGenerator[bytes]:
        yield whole[:end]
        raise Unavailable("node n sent nothing for 60 s")

    with pytest.raises(Unavailable):
        await unpack(failing(), str(tmp_path), NEW, tasks=["web"], limit=LIMIT)
    assert [*(new / "alloc/data").iterdir(), *(new / "web/local").iterdir()] == []
    assert os.listdir("/etc")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of several users")
async def test_a_second_name_of_a_file_of_the_host_does_not_move(tmp_path: Path) -> None:
    old, new = make_tree(tmp_path, OLD), make_tree(tmp_path, NEW)
    (tmp_path / "host").write_text("of the host")
    os.link(tmp_path / "host", old / "web/local/second")
    (old / "web/local/own").write_text("1")
    pieces = pack(str(tmp_path), OLD, ["web"], owners=frozenset({4242}))
    await unpack(pieces, str(tmp_path), NEW, tasks=["web"], limit=LIMIT)
    assert [path.name for path in (new / "web/local").iterdir()] == ["own"]


async def test_who_gives_up_in_the_midst_of_a_read_leaves_no_descriptor_closed_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    goes_on, opened = threading.Event(), []

    def slow(base: Path, folders: tuple[str, ...], writer: int, _owners: object) -> None:
        opened.append(writer)
        goes_on.wait(20)
        with os.fdopen(writer, "wb") as file:
            file.write(b"late")

    monkeypatch.setattr(migration, "_pack", slow)
    before = len(os.listdir("/proc/self/fd"))
    pieces = pack(str(tmp_path), OLD, ["web"])
    reading = asyncio.ensure_future(anext(pieces))
    while not opened:  # noqa: ASYNC110 - a thread does it
        await asyncio.sleep(0.01)
    reading.cancel()
    done, _ = await asyncio.wait([reading], timeout=0.2)
    assert not done, "the pipe was closed while a thread read from it"
    goes_on.set()
    with pytest.raises(asyncio.CancelledError):
        await reading
    await pieces.aclose()
    assert len(os.listdir("/proc/self/fd")) == before
