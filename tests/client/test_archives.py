"""Tar archives read as a stream, and where links of a tree may lead."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.client.archives import tar
from yurt.client.archives.links import leads_inside
from yurt.client.archives.tar import FILE, FOLDER, HARD_LINK, LINK, TarEntry, TarReader, pax_values
from yurt.client.archives.tree import Attributes, TreeWriter
from yurt.sdk.errors import Invalid

FORMATS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)
LONG = "long/" * 30 + "name"


class Unlimited:
    """A budget that is never used up."""

    def add(self, size: int) -> None:
        """More bytes."""

    def add_folder(self) -> None:
        """One more folder."""


def entries_of(data: bytes) -> list[tuple[TarEntry, bytes]]:
    """All entries with their content."""
    reader = TarReader(io.BytesIO(data))
    return [(entry, b"".join(reader.data())) for entry in reader.entries()]


def header(name: str = "x", kind: bytes = b"0", size: bytes = b"00000000000\0", magic: bytes = b"ustar\x0000") -> bytes:
    """One header block with its checksum."""
    made = bytearray(512)
    made[:100] = name.encode().ljust(100, b"\0")
    made[100:108] = b"0000644\0"
    made[124:136], made[156:157], made[257:265] = size, kind, magic
    made[148:156] = b" " * 8
    made[148:156] = b"%06o\0 " % sum(made)
    return bytes(made)


@pytest.mark.parametrize("form", FORMATS)
def test_every_form_of_tar_is_read(form: int) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as packed:
        for name, kind, target in (
            (LONG, tarfile.REGTYPE, ""),
            ("folder", tarfile.DIRTYPE, ""),
            ("ü", tarfile.SYMTYPE, "folder"),
            ("hard", tarfile.LNKTYPE, "ü"),
        ):
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode, info.mtime, info.uid = kind, target, 0o640, 1_700_000_000, 1000
            info.size = 700 if kind == tarfile.REGTYPE else 0
            packed.addfile(info, io.BytesIO(b"x" * 700))
    found = entries_of(made.getvalue())
    assert [(entry.name.rstrip("/"), entry.kind, entry.target) for entry, _ in found] == [
        (LONG, FILE, ""), ("folder", FOLDER, ""), ("ü", LINK, "folder"), ("hard", HARD_LINK, "ü"),
    ]  # fmt: skip
    entry, content = found[0]
    assert (content, entry.mode, entry.mtime, entry.uid) == (b"x" * 700, 0o640, 1_700_000_000, 1000)


def test_content_that_nobody_read_is_skipped() -> None:
    data = header("a", size=b"00000001130\0") + b"x" * 1024 + header("b") + bytes(1024)
    assert [entry.name for entry in TarReader(io.BytesIO(data)).entries()] == ["a", "b"]


def test_a_size_of_eight_gigabytes_and_more_is_read_in_base_256() -> None:
    size = b"\x80" + (9 * 1024**3).to_bytes(11, "big")
    reader = TarReader(io.BytesIO(header(size=size)))
    assert next(reader.entries()).size == 9 * 1024**3


PAX_SPARSE = b"22 GNU.sparse.major=1\n"
REFUSED = {
    "nothing": b"",
    "no tar": b"x" * 1024,
    "a damaged header": header().replace(b"ustar", b"USTAR"),
    "half a header": header()[:300],
    "a file that is cut off": header(size=b"00000001130\0") + b"x" * 100,
    "a negative size": header(size=b"\xff" * 12),
    "a size that is no number": header(size=b"0000_000010\0"),
    "a header without end": header(kind=b"x", size=b"77777777777\0"),
    "a long name without end": header(kind=b"L", size=b"00000400000\0") + bytes(1024 * 1024),
    "headers without end": (header(kind=b"g")) * 20,
    "a sparse file": header(kind=b"x", size=b"00000000026\0") + PAX_SPARSE.ljust(512, b"\0") + header() + bytes(1024),
    "a pax record of no length": header(kind=b"x", size=b"00000000005\0") + b"0 a=\n".ljust(512, b"\0") + header(),
    "a pax record that is too long": header(kind=b"x", size=b"00000000005\0") + b"9 a=\n".ljust(512, b"\0") + header(),
}


@pytest.mark.parametrize("what", list(REFUSED))
def test_what_is_no_tar_is_refused(what: str) -> None:
    with pytest.raises(Invalid):
        entries_of(REFUSED[what])


def test_no_header_costs_more_than_its_size() -> None:
    begun = time.thread_time()
    for data in (b"1" * tar.HEADER_BYTES_MAX, b"6 a=b\n" * (tar.HEADER_BYTES_MAX // 6)):
        try:
            pax_values(data)
        except Invalid:
            continue
    assert time.thread_time() - begun < 1


def test_a_pax_value_may_hold_any_byte_and_an_empty_one_says_nothing() -> None:
    assert pax_values(b"12 path=a=\n\n" + b"12 comment=\n") == {"path": b"a=\n"}


@pytest.mark.parametrize(
    ("folder", "target", "is_inside"),
    [
        ((), "a", True), ((), "missing/deep", True), (("a",), "../b", True), (("a",), "../a/../b", True),
        (("a",), ".//./b", True), ((), ".", True),
        ((), "..", False), (("a",), "../..", False), ((), "/a", False), ((), "", False), ((), "b/..", False),
        (("a",), "../missing/../a", False), ((), "x" * 5000, False),
    ],
)  # fmt: skip
def test_a_link_climbs_over_real_folders_alone(folder: tuple[str, ...], target: str, is_inside: bool) -> None:
    assert leads_inside(folder, target, {(), ("a",)}) is is_inside


NAMES = st.sampled_from(("a", "b", "c"))
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
TARGETS = st.lists(st.sampled_from(("a", "b", "c", "..", ".")), min_size=1, max_size=5).map("/".join)


@given(st.lists(st.tuples(PATHS, TARGETS), max_size=8), st.lists(PATHS, max_size=3))
def test_no_tree_of_links_and_files_leads_out(links: list[tuple[str, str]], files: list[str]) -> None:
    with scratch() as folder:
        top = os.open(folder, os.O_RDONLY)
        writer = TreeWriter(top, Unlimited())
        try:
            for name in files:
                writer.file(name, [b"x"], Attributes(0o644))
            for name, target in links:
                writer.link(name, target)
            writer.finish()
        except Invalid:
            return
        finally:
            os.close(top)
        for path in folder.rglob("*"):
            assert Path(os.path.realpath(path)).is_relative_to(folder)


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A folder that is gone afterwards."""
    path = Path(os.path.realpath(tempfile.mkdtemp(prefix="yurt-archives-")))
    try:
        yield path
    finally:
        shutil.rmtree(path)


def test_folders_keep_modes_that_forbid_writing_and_nothing_is_set_user_id(tmp_path: Path) -> None:
    top = os.open(tmp_path, os.O_RDONLY)
    try:
        writer = TreeWriter(top, Unlimited())
        writer.folder("a", Attributes(0o4555))
        writer.file("a/b", iter([b"1", b"2"]), Attributes(0o6755, 1_000_000_000))
        writer.finish()
    finally:
        os.close(top)
    made = (tmp_path / "a/b").stat()
    assert (tmp_path / "a").stat().st_mode & 0o7777 == 0o555 and made.st_mode & 0o7777 == 0o755
    assert made.st_mtime == 1_000_000_000 and (tmp_path / "a/b").read_bytes() == b"12"


def test_a_budget_ends_the_writing(tmp_path: Path) -> None:
    class Spent(Unlimited):
        def add_folder(self) -> None:
            raise Invalid("spent")

    top = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(Invalid, match="spent"):
            TreeWriter(top, Spent()).file("a/b", _endless(), Attributes(0o644))
    finally:
        os.close(top)


def _endless() -> Iterator[bytes]:
    while True:
        yield b"x"
