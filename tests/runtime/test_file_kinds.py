"""A file of another kind than the expected one is named by its kind."""

from __future__ import annotations

import io
import tarfile

import pytest
from yurt.runtime.file_kinds import HEAD_BYTES, kind_of, not_text
from yurt.sdk.errors import Invalid
from yurt.storage.archive import unpack


def tar_of(name: str, body: bytes, mode: str) -> bytes:
    """A tar archive with one file."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as tar:  # type: ignore[call-overload]
        info = tarfile.TarInfo(name)
        info.size = len(body)
        tar.addfile(info, io.BytesIO(body))
    return made.getvalue()


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"", "empty"),
        (b"job {}\n", "text"),
        ("naïve".encode()[:3], "text"),
        ("naïve\n".encode("latin-1"), "text in another encoding; save it as UTF-8"),
        ("job".encode("utf-16"), "text in UTF-16; save it as UTF-8"),
        (b"a\0b", "binary data"),
        (b"\x7fELF\2", "a program"),
        (tar_of("a", b"b", "w"), "a tar archive"),
        (tar_of("a", b"b", "w:gz"), "a gzip archive"),
    ],
    ids=range(9),
)
def test_kinds_by_the_first_bytes(head: bytes, kind: str) -> None:
    assert kind_of(head[:HEAD_BYTES]) == kind


def test_a_byte_far_in_a_text_is_named_with_its_line() -> None:
    data = b"a\n" * 1000 + b"\xff"
    with pytest.raises(UnicodeDecodeError) as found:
        data.decode()
    assert not_text(found.value) == "not a UTF-8 text: line 1001 has the byte 0xff; save the file as UTF-8"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "it is empty; a snapshot is a gzip archive of meta.json, state.bin and SHA256SUMS"),
        (b"job {}", "it is text; a snapshot is a gzip archive"),
        (tar_of("meta.json", b"{}", "w"), "it is a tar archive; a snapshot is"),
        (tar_of("notes", b"{}", "w:gz"), "meta.json is missing; a snapshot is"),
        (tar_of("meta.json", b"{}", "w:gz")[:30], "it ends too early"),
        (b"\x1f\x8b\x08\0\0\0\0\0\0\3" + b"\xff" * 99, "its compressed data is damaged; copy or save it again"),
    ],
    ids=range(6),
)
def test_a_file_that_is_no_snapshot_is_told_what_it_is(data: bytes, text: str) -> None:
    with pytest.raises(Invalid) as found:
        unpack(io.BytesIO(data), io.BytesIO())
    assert text in str(found.value)


@pytest.mark.parametrize(
    "meta", [b'{"ID": "2-9", "Version": 1}', b'{"Format": 1, "ID": "x", "Index": "many", "Version": "1"}', b"[]"]
)
def test_the_snapshot_of_another_program_is_named(meta: bytes) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for name, body in (("meta.json", meta), ("state.bin", b"x"), ("SHA256SUMS", b"y")):
            info = tarfile.TarInfo(name)
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    with pytest.raises(Invalid, match="of another program; the state of Nomad cannot be restored"):
        unpack(io.BytesIO(made.getvalue()), io.BytesIO())
