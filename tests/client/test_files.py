"""Files of an allocation can be read, and nothing else can."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from yurt.client import alloc_dir, files, safe_files, streams
from yurt.client.streams import LogSelection, Source
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Invalid, NotFound, PermissionDenied
from yurt.structs.rpc import StreamFrame


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An allocation with one task and some files, and secrets outside of it."""
    alloc_dir.build_alloc_dir(str(tmp_path / "allocs"), "a1")
    alloc_dir.build_task_dir(str(tmp_path / "allocs"), "a1", "web")
    base = tmp_path / "allocs" / "a1"
    (base / "web" / "local" / "page.txt").write_text("hello")
    (base / "web" / "secrets" / "token").write_text("s3cret")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "passwd").write_text("root")
    return base


async def test_a_directory_is_listed_with_sizes_and_modes(root: Path):
    found = await files.list_files(str(root), "web/local")

    assert [(each.name, each.size, each.file_mode, each.is_dir) for each in found] == [
        ("page.txt", 5, "-rw-r--r--", False)
    ]
    assert found[0].content_type.startswith("text/plain")
    assert [each.name for each in await files.list_files(str(root), "/")] == ["alloc", "web"]


async def test_a_file_is_read_in_part(root: Path):
    parts = [part async for part in files.read_file(str(root), "web/local/page.txt", offset=1, limit=3)]

    assert b"".join(parts) == b"ell"


def links(root: Path) -> dict[str, str]:
    return {
        "absolute": str(root.parent.parent / "outside" / "passwd"),
        "relative": "../../../../outside/passwd",
        "folder": str(root.parent.parent / "outside"),
        "proc": "/proc/self/environ",
    }


@pytest.mark.parametrize("name", ["absolute", "relative", "folder", "proc"])
@pytest.mark.parametrize("has_openat2", [True, False])
async def test_no_symlink_leads_out(root: Path, monkeypatch: pytest.MonkeyPatch, name: str, has_openat2: bool):
    monkeypatch.setattr(safe_files, "_has_openat2", lambda: has_openat2)
    (root / "web" / "local" / name).symlink_to(links(root)[name])
    path = f"web/local/{name}" + ("/passwd" if name == "folder" else "")

    with pytest.raises((PermissionDenied, NotFound)):
        await files.stat_file(str(root), path)


@pytest.mark.parametrize("path", ["../outside/passwd", "web/../../outside/passwd", "web/local/\0"])
async def test_no_path_leads_out(root: Path, path: str):
    with pytest.raises(Invalid):
        await files.stat_file(str(root), path)


async def test_secrets_are_not_shown_even_through_a_symlink(root: Path):
    (root / "web" / "local" / "peek").symlink_to("../secrets/token")

    for path in ("web/secrets/token", "web/local/peek"):
        with pytest.raises(PermissionDenied, match="secret"):
            await files.stat_file(str(root), path)


async def test_a_pipe_does_not_block_the_reader(root: Path):
    os.mkfifo(root / "web" / "local" / "pipe")

    async with asyncio.timeout(2):
        with pytest.raises(Invalid, match="neither a file nor a directory"):
            await files.stat_file(str(root), "web/local/pipe")


def source(root: Path) -> Source:
    return Source(str(root), RealEnv())


async def test_a_followed_file_gives_what_is_added_and_tells_of_truncation_and_removal(root: Path):
    path = root / "web" / "local" / "page.txt"
    frames: list[StreamFrame] = []

    async def follow() -> None:
        stream = streams.stream_file(source(root), "web/local/page.txt", offset=2, origin="end", follow=True)
        async for frame in stream:
            frames.append(frame)
            match len(frames):
                case 1:
                    path.write_text("hello world")
                case 2:
                    path.write_text("x")
                case 4:
                    path.unlink()

    async with asyncio.timeout(5):
        await follow()

    assert [frame.data for frame in frames] == [b"lo", b" world", b"", b"x", b""]
    assert [frame.file_event for frame in frames if frame.file_event] == ["file truncated", "file deleted"]


async def test_a_quiet_file_gives_a_heartbeat_each_second(root: Path):
    stream = streams.stream_file(source(root), "web/local/page.txt", offset=0, origin="start", follow=True)
    async with asyncio.timeout(3):
        first = await anext(stream)
        second = await anext(stream)
    await stream.aclose()

    assert first.data == b"hello" and second == StreamFrame()


def write_logs(root: Path, **contents: str) -> None:
    for number, text in contents.items():
        (root / "alloc" / "logs" / f"web.stdout.{number[1:]}").write_text(text)


async def logs(root: Path, *, offset: int = 0, origin: str = "start") -> bytes:
    stream = streams.stream_logs(
        source(root), LogSelection("web", "stdout", lambda: True), offset=offset, origin=origin, follow=False
    )
    return b"".join([frame.data async for frame in stream])


async def test_a_log_is_read_over_its_rotated_files(root: Path):
    write_logs(root, n9="nine ", n10="ten ", n11="eleven")

    assert await logs(root) == b"nine ten eleven"
    assert await logs(root, offset=7) == b"n eleven"
    assert await logs(root, offset=8, origin="end") == b"n eleven"


async def test_a_followed_log_goes_on_in_the_next_file_and_ends_with_the_task(root: Path):
    write_logs(root, n0="zero ")
    over = False
    read = b""

    async with asyncio.timeout(5):
        selection = LogSelection("web", "stdout", lambda: over)
        async for frame in streams.stream_logs(source(root), selection, offset=0, origin="start", follow=True):
            if frame.data == b"zero ":
                write_logs(root, n1="one")
            over = over or frame.data == b"one"
            read += frame.data

    assert read == b"zero one"


async def test_logs_of_a_task_that_never_started_are_not_found(root: Path):
    with pytest.raises(NotFound, match="not started yet"):
        await logs(root)


def test_names_from_jobs_never_become_paths(tmp_path: Path):
    with pytest.raises(Invalid):
        alloc_dir.build_task_dir(str(tmp_path), "a1", "../evil")


def test_a_dispatch_payload_stays_in_the_task_directory(root: Path):
    dirs = alloc_dir.task_dirs(str(root.parent), "a1", "web")

    with pytest.raises(Invalid):
        alloc_dir.write_dispatch_payload(dirs, "../secrets/token", b"x")
