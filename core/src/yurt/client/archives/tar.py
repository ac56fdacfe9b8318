"""Reads a tar archive as a stream: ustar, pax (POSIX.1-2001) and the GNU forms of long names and large numbers.

Yurt has its own reader, because the standard library's trusts the archive: it seeks where a header points, holds a
header of any size in memory, and takes quadratic time for some. This reader never goes back, bounds the headers, and
refuses forms that it does not implement:

    header block [, data blocks] ...     an entry
    x, L, K                              a header that holds names for the next entry, with a bound on its size
    two zero blocks, or the end          the end

Only regular files have data. Sparse files, multi-volume parts and unknown types cannot be written, so they are returned
as `OTHER` or raise `Invalid`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import IO, Final, NamedTuple

from yurt.sdk.errors import Invalid

FILE, FOLDER, LINK, HARD_LINK, OTHER = "file", "folder", "link", "hard link", "other"
BLOCK: Final = 512
CHUNK_BYTES: Final = 256 * 1024
HEADER_BYTES_MAX: Final = 64 * 1024
"""The size limit of one header with names; paths have at most 4096 bytes."""
HEADERS_MAX: Final = 16
"""The largest number of such headers before an entry."""
NUMBER_MAX: Final = 2**63 - 1
_ZERO: Final = bytes(BLOCK)
_KINDS: Final = {
    b"0": FILE, b"\0": FILE, b"7": FILE, b"1": HARD_LINK, b"2": LINK, b"5": FOLDER,
    b"3": OTHER, b"4": OTHER, b"6": OTHER,
}  # fmt: skip
_OCTAL: Final = frozenset(b"01234567")
_NEXT, _GLOBAL, _LONG_NAME, _LONG_LINK, _LABEL = (b"x", b"X"), b"g", b"L", b"K", b"V"


class TarEntry(NamedTuple):
    """The header of one entry. `target` is that of a link; `mtime` is in seconds."""

    name: str
    kind: str
    size: int = 0
    mode: int = 0
    target: str = ""
    uid: int = 0
    gid: int = 0
    mtime: int = 0


class TarReader:
    """Reads the entries of a stream in order; the data of an entry is read before the next entry, or skipped."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._left = 0
        self._padding = 0

    def entries(self) -> Iterator[TarEntry]:
        """All entries; raises Invalid when the stream is not a tar archive."""
        is_empty = True
        while (entry := self._next(is_empty=is_empty)) is not None:
            is_empty = False
            self._left = entry.size
            self._padding = -entry.size % BLOCK
            yield entry
            for _ in self.data():
                pass
            self._exactly(self._padding)

    def data(self) -> Iterator[bytes]:
        """The remaining data of the current entry."""
        while self._left:
            piece = self._stream.read(min(CHUNK_BYTES, self._left))
            if not piece:
                raise Invalid("the archive ends in the middle of a file; it is damaged, or was not stored whole")
            self._left -= len(piece)
            yield piece

    def _next(self, *, is_empty: bool) -> TarEntry | None:
        """The next entry with the names from preceding extension headers; None at the end."""
        named: dict[str, bytes] = {}
        for _ in range(HEADERS_MAX):
            header = self._stream.read(BLOCK)
            if not header and is_empty:
                raise Invalid("the archive is empty")
            if not header or header == _ZERO:
                return None
            if len(header) < BLOCK or not _is_header(header):
                raise Invalid("not a tar archive, or a damaged one: the checksum of a header is wrong")
            kind = header[156:157]
            if kind not in (*_NEXT, _GLOBAL, _LONG_NAME, _LONG_LINK, _LABEL):
                return _entry(header, named)
            named |= self._names(kind, _number(header[124:136]))
        raise Invalid(f"more than {HEADERS_MAX} headers stand before an entry of the archive")

    def _names(self, kind: bytes, size: int) -> Mapping[str, bytes]:
        """Names from extension headers of the next entry; a later header replaces only one of its own kind."""
        if size > HEADER_BYTES_MAX:
            raise Invalid(f"a header of the archive holds {size} bytes, more than the {HEADER_BYTES_MAX} that are read")
        data = self._exactly(size)
        self._exactly(-size % BLOCK)
        if kind in _NEXT:
            return pax_values(data)
        if kind == _LONG_NAME:
            return {"long path": data.partition(b"\0")[0]}
        return {"long linkpath": data.partition(b"\0")[0]} if kind == _LONG_LINK else {}

    def _exactly(self, size: int) -> bytes:
        pieces, left = [], size
        while left:
            piece = self._stream.read(left)
            if not piece:
                raise Invalid("the archive ends too early; it is damaged, or was not stored whole")
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)


def pax_values(data: bytes) -> dict[str, bytes]:
    """The records `LENGTH KEY=VALUE newline` of a pax header; raises Invalid for sparse files."""
    values, at = {}, 0
    while at < len(data) and data[at] != 0:
        digits, mark, _ = data[at : at + 8].partition(b" ")
        if not mark or not digits.isdigit():
            raise Invalid("a pax header of the archive has a record without its length")
        record = data[at + len(digits) + 1 : at + int(digits)]
        key, mark, value = record.partition(b"=")
        if not mark or not record.endswith(b"\n") or int(digits) > len(data) - at:
            raise Invalid("a pax header of the archive has a record that is cut off")
        if key.startswith(b"GNU.sparse."):
            raise Invalid("the archive holds a sparse file; pack it without tar's option --sparse")
        values[key.decode(errors="replace")] = value[:-1]
        at += int(digits)
    return {key: value for key, value in values.items() if value}


def _is_header(header: bytes) -> bool:
    """Whether the checksum is correct, with its own field counted as spaces; old programs summed signed bytes."""
    expected = _digits(header[148:156])
    plain = header[:148] + b" " * 8 + header[156:]
    unsigned = sum(plain)
    return expected is not None and expected in (unsigned, unsigned - 256 * sum(byte > 127 for byte in plain))


def _entry(header: bytes, named: Mapping[str, bytes]) -> TarEntry:
    kind = _KINDS.get(header[156:157], OTHER)
    name = named.get("path") or named.get("long path") or _name(header)
    target = named.get("linkpath") or named.get("long linkpath") or header[157:257].partition(b"\0")[0]
    if kind == FILE and name.endswith(b"/"):
        kind = FOLDER
    size = _decimal(named["size"]) if "size" in named else _number(header[124:136])
    return TarEntry(
        name=os.fsdecode(name),
        kind=kind,
        size=size if kind in (FILE, OTHER) else 0,
        mode=_lenient(header[100:108]) & 0o7777,
        target=os.fsdecode(target) if kind in (LINK, HARD_LINK) else "",
        uid=_decimal(named["uid"]) if "uid" in named else _lenient(header[108:116]),
        gid=_decimal(named["gid"]) if "gid" in named else _lenient(header[116:124]),
        mtime=_seconds(named["mtime"]) if "mtime" in named else _lenient(header[136:148]),
    )


def _name(header: bytes) -> bytes:
    """The name with its ustar or star prefix; GNU uses the prefix field for other data."""
    name = header[:100].partition(b"\0")[0]
    if header[257:263] != b"ustar\0":
        return name
    end = 476 if header[508:512] == b"tar\0" else 500
    prefix = header[345:end].partition(b"\0")[0]
    return prefix + b"/" + name if prefix else name


def _digits(field: bytes) -> int | None:
    """An octal number between spaces and NULs."""
    text = field.partition(b"\0")[0].strip(b" ")
    return int(text or b"0", 8) if _OCTAL.issuperset(text) else None


def _number(field: bytes) -> int:
    """A number, octal or in GNU's base 256; raises Invalid for a negative one."""
    if field[0] == 0x80:
        value: int | None = int.from_bytes(field[1:], "big")
    else:
        value = _digits(field)
    if value is None or value > NUMBER_MAX:
        raise Invalid("a header of the archive holds an invalid number")
    return value


def _lenient(field: bytes) -> int:
    """An unimportant number; 0 when it is missing or malformed."""
    try:
        return _number(field)
    except Invalid:
        return 0


def _decimal(text: bytes) -> int:
    if not text.isdigit() or len(text) > 19 or int(text) > NUMBER_MAX:
        raise Invalid("a pax header of the archive holds an invalid number")
    return int(text)


def _seconds(text: bytes) -> int:
    """A time in seconds with a fraction; times before 1970 become 1970."""
    return 0 if text.startswith(b"-") else _decimal(text.partition(b".")[0])
