"""Files of an allocation can be read, and nothing else can."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import stat
import threading
from pathlib import Path

import pytest
from yurt.client.files import alloc_dir, safe_files, streams
from yurt.client.files import browse as files
from yurt.client.files.secrets_dir import mount_secrets, unmount_secrets
from yurt.client.files.streams import LogSelection, StreamRoot
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
    monkeypatch.setattr(safe_files, "has_openat2", lambda: has_openat2)
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

    async with asyncio.timeout(60):
        with pytest.raises(Invalid, match="neither a file nor a directory"):
            await files.stat_file(str(root), "web/local/pipe")


def source(root: Path) -> StreamRoot:
    return StreamRoot(str(root), RealEnv())


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

    async with asyncio.timeout(60):
        await follow()

    assert [frame.data for frame in frames] == [b"lo", b" world", b"", b"x", b""]
    assert [frame.file_event for frame in frames if frame.file_event] == ["file truncated", "file deleted"]


async def test_a_quiet_file_gives_a_heartbeat_each_second(root: Path):
    stream = streams.stream_file(source(root), "web/local/page.txt", offset=0, origin="start", follow=True)
    async with asyncio.timeout(60):
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
    assert await logs(root, offset=0, origin="end") == b"eleven", "as Nomad: the newest file from its beginning"


async def test_a_followed_log_goes_on_in_the_next_file_and_ends_with_the_task(root: Path):
    write_logs(root, n0="zero ")
    over = False
    read = b""

    async with asyncio.timeout(60):
        selection = LogSelection("web", "stdout", lambda: over)
        async for frame in streams.stream_logs(source(root), selection, offset=0, origin="start", follow=True):
            if frame.data == b"zero ":
                write_logs(root, n1="one")
            over = over or frame.data == b"one"
            read += frame.data

    assert read == b"zero one"


@pytest.mark.parametrize("is_rotated", [False, True])
async def test_a_followed_log_that_is_truncated_goes_on_from_the_start_of_its_file(root: Path, is_rotated: bool):
    write_logs(root, n0="older ", n1="the first text ")
    over, found = False, list[StreamFrame]()

    async with asyncio.timeout(60):
        selection = LogSelection("web", "stdout", lambda: over)
        async for frame in streams.stream_logs(source(root), selection, offset=0, origin="start", follow=True):
            if frame.data == b"the first text ":
                write_logs(root, n1="next", **({"n2": ""} if is_rotated else {}))
            over = over or frame.data == b"next"
            found += [frame] if frame != StreamFrame() else []

    name = "alloc/logs/web.stdout.1"
    assert found[1:] == [
        StreamFrame(data=b"the first text ", file=name),
        StreamFrame(offset=len("the first text "), file=name, file_event="file truncated"),
        StreamFrame(data=b"next", file=name),
    ]


async def test_a_log_that_is_truncated_while_it_is_read_once_is_not_read_again(root: Path):
    write_logs(root, n0="the first text")
    stream = streams.stream_logs(
        source(root), LogSelection("web", "stdout", lambda: False), offset=0, origin="start", follow=False
    )
    async with asyncio.timeout(60):
        first = await anext(stream)
        write_logs(root, n0="next")
        assert [first.data, *[frame.data async for frame in stream]] == [b"the first text"]


async def test_logs_of_a_task_that_never_started_are_not_found(root: Path):
    with pytest.raises(NotFound, match="not started yet"):
        await logs(root)


@pytest.mark.parametrize("follow", [False, True])
async def test_a_task_whose_logs_are_disabled_has_none(root: Path, follow: bool):
    selection = LogSelection("web", "stdout", lambda: False, is_collected=False)
    async with asyncio.timeout(60):
        with pytest.raises(NotFound, match="disabled = true"):
            await anext(streams.stream_logs(source(root), selection, offset=0, origin="start", follow=follow))


def test_names_from_jobs_never_become_paths(tmp_path: Path):
    with pytest.raises(Invalid):
        alloc_dir.build_task_dir(str(tmp_path), "a1", "../evil")


def test_a_dispatch_payload_stays_in_the_task_directory(root: Path):
    dirs = alloc_dir.task_dirs(str(root.parent), "a1", "web")

    with pytest.raises(Invalid):
        alloc_dir.write_dispatch_payload(dirs, "../secrets/token", b"x")


def test_a_dispatch_payload_takes_the_place_of_what_a_task_put_there(root: Path):
    dirs = alloc_dir.task_dirs(str(root.parent), "a1", "web")
    local, outside = Path(dirs.local_dir), root.parent / "victim"
    outside.write_text("theirs")
    local.mkdir(parents=True, exist_ok=True)
    os.mkfifo(local / "pipe")
    (local / "link").symlink_to(outside)
    os.link(outside, local / "second-name")

    for name in ("pipe", "link", "second-name"):
        alloc_dir.write_dispatch_payload(dirs, name, b"ours")
        assert stat.S_ISREG(os.lstat(local / name).st_mode)
        assert (local / name).read_bytes() == b"ours"
    assert outside.read_text() == "theirs"


NOTHING_OUTSIDE = (
    "../outside/passwd", "web/../../../outside/passwd", "web/local/../../../../outside/passwd", "..", "/..", "./../.",
    "web/local/swapped/passwd", "proc/self/root/etc/passwd", "web/local/fd/../../x", "web/local/\0", "\0", "a" * 5000,
    "web/local/" + "x/" * 200, "//..//", "web/local/loop", "web/local/up/outside/passwd", "web/local/root/etc/passwd",
    "web/local/deep/passwd", "web/secrets", "web/secrets/token", "web/private", "web/./secrets/token",
    "web/local/to-secrets", "web/local/to-secrets/token", "web/local/device", "web/local/socket",
)  # fmt: skip


@pytest.fixture
def hostile(root: Path) -> Path:
    """What a task may put into its own directory to reach others' files."""
    local = root / "web" / "local"
    outside = root.parent.parent / "outside"
    for name, target in {
        "swapped": outside, "loop": "loop", "up": "../../../..", "root": "/proc/self/root",
        "deep": "../../../../outside", "to-secrets": "../secrets", "fd": "/proc/self/fd",
    }.items():  # fmt: skip
        (local / name).symlink_to(target)
    if os.geteuid() == 0:
        os.mknod(local / "device", 0o666 | stat.S_IFCHR, os.makedev(1, 5))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(local / "socket"))
    return root


@pytest.mark.parametrize("has_openat2", [True, False])
@pytest.mark.parametrize("path", NOTHING_OUTSIDE)
async def test_the_hostile_corpus_reaches_nothing(
    hostile: Path, monkeypatch: pytest.MonkeyPatch, path: str, has_openat2: bool
):
    monkeypatch.setattr(safe_files, "has_openat2", lambda: has_openat2)
    before = len(os.listdir("/proc/self/fd"))
    refused = (Invalid, NotFound, PermissionDenied)
    async with asyncio.timeout(60):
        with pytest.raises(refused):
            async for _ in files.read_file(str(hostile), path, offset=0, limit=0):
                break
        with pytest.raises(refused):
            await files.stat_file(str(hostile), path)
        with pytest.raises(refused):
            await files.list_files(str(hostile), path)
        with pytest.raises(refused):
            async for _ in streams.stream_file(source(hostile), path, offset=0, origin="start", follow=True):
                break
    assert len(os.listdir("/proc/self/fd")) <= before


async def test_a_link_that_is_swapped_all_the_time_never_leads_out(root: Path):
    inside, outside = root / "web" / "local" / "inside", root.parent.parent / "outside"
    inside.mkdir()
    (inside / "passwd").write_text("harmless")
    link, spare = root / "web" / "local" / "link", root / "web" / "local" / "spare"
    is_over = threading.Event()

    def swap() -> None:
        targets = itertools.cycle(("inside", str(outside), "../../../../outside"))
        while not is_over.is_set():
            spare.symlink_to(next(targets))
            spare.rename(link)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[bytes] = set()
    try:
        for tries in range(5000):
            if tries > 300 and seen:
                break
            with contextlib.suppress(Invalid, NotFound, PermissionDenied):
                seen |= {part async for part in files.read_file(str(root), "web/local/link/passwd", offset=0, limit=0)}
    finally:
        is_over.set()
        swapper.join()
    assert seen == {b"harmless"}


async def test_a_log_that_is_no_plain_file_is_not_read(hostile: Path):
    logs_dir = hostile / "alloc" / "logs"
    (logs_dir / "web.stdout.0").symlink_to(hostile.parent.parent / "outside" / "passwd")
    os.mkfifo(logs_dir / "web.stderr.0")
    for kind in ("stdout", "stderr"):
        selection = LogSelection("web", kind, lambda: True)
        frames = streams.stream_logs(source(hostile), selection, offset=0, origin="start", follow=True)
        with pytest.raises((Invalid, NotFound, PermissionDenied)):
            await asyncio.wait_for(anext(frames), 60)


async def test_a_log_folder_that_became_a_link_is_not_read(root: Path):
    outside = root.parent.parent / "outside"
    (outside / "web.stdout.0").write_text("not yours")
    (root / "alloc" / "logs").rmdir()
    (root / "alloc" / "logs").symlink_to(outside)
    with pytest.raises((Invalid, NotFound, PermissionDenied)):
        await logs(root)


async def test_secrets_in_memory_have_no_second_name_outside(root: Path):
    secrets = root / "web" / "secrets"
    if not mount_secrets(str(secrets), 1):
        pytest.skip("secrets are mounted only by root on Linux")
    try:
        (secrets / "token").write_text("s3cret")
        with pytest.raises(OSError):
            (root / "web" / "local" / "second").hardlink_to(secrets / "token")
        with pytest.raises(PermissionDenied):
            await files.stat_file(str(root), "web/secrets/token")
    finally:
        unmount_secrets(str(root))


def second_name(root: Path, *, owner: int) -> None:
    """A file of the host that a task gave a second name in its own folder."""
    host = root.parent.parent / "outside" / "passwd"
    os.link(host, root / "web" / "local" / "second")
    if os.geteuid() == 0:
        os.chown(host, owner, owner)


TASK_USER = 4242 if os.geteuid() == 0 else os.geteuid()
OTHERS = frozenset({TASK_USER})
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has files of several users")


@needs_root
async def test_a_second_name_of_another_user_s_file_is_not_read(root: Path):
    second_name(root, owner=0)
    path = "web/local/second"

    for attempt in (
        files.stat_file(str(root), path, owners=OTHERS),
        files.list_files(str(root), path, owners=OTHERS),
        anext(files.read_file(str(root), path, offset=0, limit=0, owners=OTHERS)),
        anext(
            streams.stream_file(StreamRoot(str(root), RealEnv(), OTHERS), path, offset=0, origin="start", follow=False)
        ),
    ):
        with pytest.raises(PermissionDenied, match="2 names"):
            await attempt
    with pytest.raises(PermissionDenied, match="2 names"):
        safe_files.open_inside(str(root), path, owners=OTHERS)


@needs_root
async def test_a_folder_lists_a_second_name_without_a_look_into_the_file(root: Path):
    second_name(root, owner=0)
    found = {each.name: each for each in await files.list_files(str(root), "web/local", owners=OTHERS)}

    assert found["second"].content_type == "application/octet-stream"
    assert found["page.txt"].content_type.startswith("text/plain")


async def test_files_of_several_names_of_the_task_s_own_user_are_read(root: Path):
    second_name(root, owner=TASK_USER)
    parts = [part async for part in files.read_file(str(root), "web/local/second", offset=0, limit=0, owners=OTHERS)]

    assert b"".join(parts) == b"root"


@needs_root
async def test_a_log_that_is_a_second_name_of_a_host_s_file_is_not_read(root: Path):
    os.link(root.parent.parent / "outside" / "passwd", root / "alloc" / "logs" / "web.stdout.0")
    where = StreamRoot(str(root), RealEnv(), OTHERS)
    log = LogSelection("web", "stdout", lambda: True)

    with pytest.raises(PermissionDenied, match="2 names"):
        await anext(streams.stream_logs(where, log, offset=0, origin="start", follow=False))
