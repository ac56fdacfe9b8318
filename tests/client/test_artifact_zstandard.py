"""Archives packed by Zstandard, and what a hostile one cannot do."""

# ruff: noqa: ASYNC240 - small files of a test

from __future__ import annotations

import importlib
import io
import sys
import tarfile
from pathlib import Path

import pytest
from yurt.client.artifacts import task_artifacts
from yurt.client.artifacts.fetch_request import ArtifactLimits
from yurt.client.files.alloc_dir import build_alloc_dir, build_task_dir
from yurt.sdk.driver import TaskDirs
from yurt.sdk.errors import Invalid
from yurt.structs.task import TaskArtifact

zstd = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
MB = 1024**2


@pytest.fixture
def dirs(tmp_path: Path) -> TaskDirs:
    build_alloc_dir(str(tmp_path / "allocs"), "id")
    return build_task_dir(str(tmp_path / "allocs"), "id", "web")


async def fetch(dirs: TaskDirs, name: str, data: bytes, *, limits: ArtifactLimits | None = None) -> dict[str, bytes]:
    """Fetch an archive from the task's own directory; the files that came."""
    Path(dirs.local_dir, name).write_bytes(data)
    artifact = TaskArtifact(getter_source=f"file::local/{name}", relative_dest="local/got")
    place = task_artifacts.TaskPlace(task_name="web", dirs=dirs)
    expected = task_artifacts.plan((artifact,), place, lookup=lambda _name: None, limits=limits or ArtifactLimits())
    await task_artifacts.fetch_all(expected, on_done=lambda _digest: None)
    got = Path(dirs.local_dir, "got")
    return {str(path.relative_to(got)): path.read_bytes() for path in got.rglob("*") if path.is_file()}


def tar_of(name: str, content: bytes, *, link: str = "") -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        info = tarfile.TarInfo(name)
        info.size, info.mode = len(content), 0o755
        if link:
            info.type, info.linkname = tarfile.SYMTYPE, link
        tar.addfile(info, io.BytesIO(content))
    return made.getvalue()


@pytest.mark.parametrize("is_confined", [True, False])
@pytest.mark.parametrize("ending", ["tar.zst", "tzst"])
async def test_a_tar_is_unpacked(dirs: TaskDirs, ending: str, is_confined: bool) -> None:
    packed = zstd.compress(tar_of("bin/tool", b"hello"))
    limits = ArtifactLimits(is_confined=is_confined)
    assert await fetch(dirs, f"x.{ending}", packed, limits=limits) == {"bin/tool": b"hello"}


async def test_one_file_loses_its_ending_and_may_have_several_frames(dirs: TaskDirs) -> None:
    skippable = b"\x50\x2a\x4d\x18\x04\x00\x00\x00note"
    packed = zstd.compress(b"one ") + skippable + zstd.compress(b"two")
    assert await fetch(dirs, "words.txt.zst", packed) == {"words.txt": b"one two"}


@pytest.mark.parametrize("ending", ["tar.zst", "zst"])
async def test_a_bomb_ends_at_the_limit(dirs: TaskDirs, ending: str) -> None:
    bomb = zstd.compress(tar_of("zeros", bytes(64 * MB)))
    assert len(bomb) < MB // 8
    with pytest.raises(Invalid, match="unpacks to more than 1000000 bytes"):
        await fetch(dirs, f"x.{ending}", bomb, limits=ArtifactLimits(unpacked_bytes_max=1_000_000))
    assert not Path(dirs.local_dir, "got").exists()


async def test_a_window_beyond_128_mib_is_refused(dirs: TaskDirs) -> None:
    parameter = zstd.CompressionParameter
    packer = zstd.ZstdCompressor(options={parameter.window_log: 31, parameter.enable_long_distance_matching: 1})
    packed = packer.compress(b"x" * MB) + packer.flush()
    with pytest.raises(Invalid, match=r"cannot be unpacked.*memory"):
        await fetch(dirs, "x.zst", packed)


@pytest.mark.parametrize(
    "packed", [b"", b"not zstandard", zstd.compress(b"x" * 1000)[:-7], zstd.compress(tar_of("l", b"", link="/etc"))]
)
async def test_what_is_damaged_or_leads_out_is_refused(dirs: TaskDirs, packed: bytes) -> None:
    with pytest.raises(Invalid, match=r"archive|artifact"):
        await fetch(dirs, "x.tar.zst", packed)
    assert not Path(dirs.local_dir, "got").exists()
