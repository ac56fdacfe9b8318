"""Targets for archives of artifacts: whatever the bytes, nothing is written outside of the folder."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path

from yurt.client.artifacts.fetch_request import ArtifactLimits
from yurt.client.artifacts.unpacking import unpack_file, unpack_tree
from yurt.sdk.errors import Invalid

LIMITS = ArtifactLimits(file_count_max=200, unpacked_bytes_max=1_000_000)
MEMORY_FOLDER = "/dev/shm"
SENTINEL = b"of the host"
BLOCK = 512
MEMBERS_MAX = 60


def _scratch() -> Path:
    parent = MEMORY_FOLDER if os.path.isdir(MEMORY_FOLDER) else None
    return Path(tempfile.mkdtemp(prefix="yurt-fuzz-archive-", dir=parent))


def unpacked(kind: str) -> Callable[[bytes], None]:
    """A target that unpacks a tree."""

    def run(data: bytes) -> None:
        scratch = _scratch()
        try:
            (scratch / "host").write_bytes(SENTINEL)
            (scratch / "archive").write_bytes(data)
            with contextlib.suppress(Invalid):
                unpack_tree(str(scratch / "archive"), kind, str(scratch / "tree"), LIMITS)
            _check_outside(scratch, data)
            _check_tree(scratch / "tree")
        finally:
            shutil.rmtree(scratch)

    return run


def tar_with_sums(data: bytes) -> None:
    """A tar whose headers get the checksums that they need, so that most changes reach the code behind them."""
    blocks = [data[start : start + BLOCK] for start in range(0, len(data), BLOCK)]
    unpacked("tar")(b"".join(with_sum(block) if block[257:262] == b"ustar" else block for block in blocks))


def members(data: bytes) -> None:
    """A tar of members that have few names, so that they meet: each three bytes are a kind, a name and a target."""
    made = []
    for at in range(0, min(len(data), 3 * MEMBERS_MAX) - 2, 3):
        kind, name, target = data[at : at + 3]
        header = bytearray(BLOCK)
        header[:100] = few_names(name).ljust(100, b"\0")
        header[100:108], header[124:136] = b"%07o\0" % (kind * 16), b"%011o\0" % (3 if kind % 5 == 0 else 0)
        header[156:157] = b"05126"[kind % 5 : kind % 5 + 1]
        header[157:257] = few_names(target).ljust(100, b"\0")
        header[257:265] = b"ustar\x0000"
        made.append(with_sum(bytes(header)) + (b"abc".ljust(BLOCK, b"\0") if kind % 5 == 0 else b""))
    unpacked("tar")(b"".join(made) + bytes(2 * BLOCK))


def with_sum(header: bytes) -> bytes:
    """A header with its checksum."""
    plain = header[:148] + b" " * 8 + header[156:]
    return header[:148] + b"%06o\0 " % sum(plain) + header[156:]


def few_names(chosen: int) -> bytes:
    """One of the paths of up to three parts that a byte can choose."""
    parts = (b"a", b"b", b"..", b".")
    return b"/".join(parts[chosen >> shift & 3] for shift in (0, 2, 4)[: 1 + (chosen >> 6) % 3])


def _check_outside(scratch: Path, data: bytes) -> None:
    assert sorted(os.listdir(scratch)) in (["archive", "host"], ["archive", "host", "tree"]), os.listdir(scratch)
    host = scratch / "host"
    assert host.read_bytes() == SENTINEL and host.stat().st_nlink == 1
    assert (scratch / "archive").read_bytes() == data


def _check_tree(tree: Path) -> None:
    size = 0
    for folder, names, files in os.walk(tree):
        for path in (Path(folder, name) for name in (*names, *files)):
            found = path.lstat()
            assert stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode) or stat.S_ISLNK(found.st_mode), path
            assert stat.S_ISLNK(found.st_mode) or not found.st_mode & 0o7000, path
            assert os.path.realpath(path).startswith(f"{tree.resolve()}"), path
            size += found.st_size if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 else 0
    assert size <= LIMITS.unpacked_bytes_max


def packed(data: bytes) -> None:
    """One packed file; the first byte chooses the kind."""
    kinds = ("gz", "bz2", "xz")
    scratch = _scratch()
    try:
        (scratch / "file").write_bytes(data[1:])
        try:
            unpack_file(str(scratch / "file"), kinds[data[0] % 3] if data else "gz", str(scratch / "made"), LIMITS)
        except Invalid:
            return
        assert (scratch / "made").stat().st_size <= LIMITS.unpacked_bytes_max
    finally:
        shutil.rmtree(scratch)


def _tars() -> Iterable[bytes]:
    kinds = ((tarfile.REGTYPE, ""), (tarfile.DIRTYPE, ""), (tarfile.SYMTYPE, "a"), (tarfile.LNKTYPE, "a"))
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w", format=form) as tar:
            for name in ("a", "b/c", "é" * 40, "long/" * 25 + "x"):
                for kind, link in kinds:
                    info = tarfile.TarInfo(name + ("" if kind == tarfile.REGTYPE else kind.decode()))
                    info.type, info.linkname, info.size = kind, link, 3 if kind == tarfile.REGTYPE else 0
                    tar.addfile(info, io.BytesIO(b"abc"))
        yield made.getvalue()


def _zips() -> Iterable[bytes]:
    for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", method) as archive:
            archive.writestr("a/b", b"x" * 100)
            archive.writestr("folder/", b"")
            archive.writestr("é", b"")
        yield made.getvalue()


TARGETS: dict[str, Callable[[bytes], None]] = {
    "tar": tar_with_sums,
    "members": members,
    "zip": unpacked("zip"),
    "packed": packed,
}
SEEDS: dict[str, Iterable[bytes]] = {
    "tar": tuple(_tars()),
    "members": (bytes(range(60)), b"\x03\x00\x02" * 5 + b"\x00\x40\x00" * 3, b"\x02\x05\x00\x04\x11\x05"),
    "zip": tuple(_zips()),
    "packed": (b"\0" + gzip.compress(b"x" * 50, mtime=0), b"\1" + bz2.compress(b"x" * 50), b"\2" + lzma.compress(b"x")),
}
