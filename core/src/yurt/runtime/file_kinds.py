"""Names the kind of a file by its first bytes, for errors about a file of another kind than the expected one."""

from __future__ import annotations

from typing import Final

HEAD_BYTES: Final = 512
SIGNATURES: Final = (
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (0, b"\xfd7zXZ\0", "an xz archive"),
    (0, b"BZh", "a bzip2 archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"\x7fELF", "a program"),
    (0, b"SQLite format 3\0", "an SQLite database"),
    (0, b"%PDF-", "a PDF document"),
    (0, b"\x89PNG", "an image"),
    (0, b"\xff\xd8\xff", "an image"),
    (0, b"\xff\xfe", "text in UTF-16; save it as UTF-8"),
    (0, b"\xfe\xff", "text in UTF-16; save it as UTF-8"),
)
BINARY, EMPTY, TEXT, OTHER_TEXT = "binary data", "empty", "text", "text in another encoding; save it as UTF-8"


def kind_of(head: bytes) -> str:
    """The kind of a file that begins with these bytes, as in "it is ..."."""
    if not head:
        return EMPTY
    for start, signature, kind in SIGNATURES:
        if head.startswith(signature, start):
            return kind
    if any(byte < 9 or (13 < byte < 32 and byte != 27) for byte in head):
        return BINARY
    return TEXT if is_text(head) else OTHER_TEXT


def is_text(head: bytes) -> bool:
    """Whether bytes are UTF-8, possibly cut off in a character."""
    try:
        head.decode()
    except UnicodeDecodeError as error:
        return error.end == len(head) and "unexpected end" in error.reason
    return True


def not_text(error: UnicodeDecodeError) -> str:
    """The reason why a file could not be read as text."""
    data = error.object
    kind = kind_of(data[:HEAD_BYTES])
    if kind != TEXT:
        return f"not a UTF-8 text: it is {kind}"
    line = data.count(b"\n", 0, error.start) + 1
    return f"not a UTF-8 text: line {line} has the byte 0x{data[error.start]:02x}; save the file as UTF-8"
