"""Snapshot archives: a gzipped tar with `meta.json`, `state.bin` and `SHA256SUMS`.

Nothing in a file from outside is believed: names, sizes, digests and the state itself are checked before use. A few
bytes of gzip or tar can stand for any number of others, so a file is unpacked in pieces onto a disk, in bounded size
and proportion, by a reader that knows plain members alone: `tarfile` would take sparse members, and would read extended
headers of any size into memory. The state is decoded in a child process first (`archive_child`), whose memory the
system bounds.
"""

from __future__ import annotations

import hashlib
import io
import json
import resource
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, Final, NamedTuple

from yurt.fsm import snapshot
from yurt.fsm.restore import LENGTH_BYTES, framed
from yurt.sdk.errors import Invalid
from yurt.state import Snapshot

FORMAT: Final = 1
META, STATE, SUMS = "meta.json", "state.bin", "SHA256SUMS"
ARCHIVE_BYTES_MAX: Final = 1024**3
STATE_BYTES_MAX: Final = 4 * 1024**3
SMALL_BYTES_MAX: Final = 64 * 1024
RATIO_MAX: Final = 100
"""The maximum ratio of the size of a state to that of its archive, above `FREE_BYTES`; a state with thousands of equal
jobs has a ratio of 50."""
FREE_BYTES: Final = 64 * 1024**2
PIECE_BYTES: Final = 256 * 1024
BLOCK: Final = tarfile.BLOCKSIZE
PLAIN: Final = (tarfile.REGTYPE, tarfile.AREGTYPE)
FOREIGN: Final = "the file is not a snapshot of Yurt"
EXPECTED: Final = f"a snapshot is a gzip archive of {META}, {STATE} and {SUMS}"
GZIP: Final = 16 + zlib.MAX_WBITS
GZIP_MAGIC: Final = b"\x1f\x8b"
EXTREMES: Final = (RecursionError, OverflowError)
"""What JSON that is too deep, or an infinite number in it, raises."""
MEMORY_FREE: Final = 512 * 1024**2
MEMORY_RATIO: Final = 24
"""The factor by which the objects of a state exceed its encoded size."""


class Archive(NamedTuple):
    """An unpacked, checked archive: its origin and the size of its state in bytes.

    `term` is the leader's when the archive was made, as its server knew it.
    """

    id: str
    state_index: int
    term: int
    version: str
    size: int


class TableFacts(NamedTuple):
    """A table of the state and the number of its rows."""

    table: str
    rows: int


def write_archive(state: Snapshot, out: IO[bytes], *, version: str, term: int = 1) -> None:
    """Write the state as an archive; `term` is the present leader's, 1 for a state that no server has."""
    with tempfile.TemporaryFile() as body:
        digest = hashlib.sha256()
        for piece in framed(snapshot.encode(state)):
            body.write(piece)
            digest.update(piece)
        size = body.tell()
        body.seek(0)
        origin = {"ID": f"{term}-{state.index}", "Index": state.index, "Term": term, "Version": version}
        meta = json.dumps({"Format": FORMAT} | origin).encode()
        sums = _sums(meta, digest.hexdigest())
        with tarfile.open(fileobj=out, mode="w:gz", compresslevel=6) as tar:
            _add(tar, META, io.BytesIO(meta), len(meta))
            _add(tar, STATE, body, size)
            _add(tar, SUMS, io.BytesIO(sums), len(sums))


def unpack(source: IO[bytes], state: IO[bytes]) -> Archive:
    """Check an archive and write its framed state to an empty file, rewound to the start; raises Invalid."""
    reader = _Unzipped(source)
    try:
        meta_text = _small(reader, META)
        digest, size = hashlib.sha256(), _header(reader, STATE, STATE_BYTES_MAX)
        for piece in _pieces(reader, size):
            state.write(piece)
            digest.update(piece)
        sums = _small(reader, SUMS)
        meta = json.loads(meta_text)
        form, found = meta["Format"], _archive(meta, size)
    except (tarfile.TarError, zlib.error, EOFError, ValueError, LookupError, TypeError, *EXTREMES) as error:
        raise Invalid(f"{FOREIGN}: {_fault(error)}") from None
    if form != FORMAT:
        raise Invalid(f"the snapshot has format {form!r:.20}, this version reads {FORMAT}")
    if sums != _sums(meta_text, digest.hexdigest()):
        raise Invalid("the snapshot is damaged: its digests do not fit")
    state.seek(0)
    return found


def _archive(meta: dict[str, Any], size: int) -> Archive:
    return Archive(str(meta["ID"]), int(meta["Index"]), int(meta["Term"]), str(meta["Version"]), size)


def _fault(error: Exception) -> str:
    """What is wrong with a file, in words for its owner."""
    match error:
        case EOFError():
            return str(error)
        case zlib.error():
            return "its compressed data is damaged; copy or save it again"
        case tarfile.TarError():
            return f"it has no files in it; {EXPECTED}"
        case json.JSONDecodeError() | UnicodeDecodeError() | RecursionError():
            return f"its {META} is not valid JSON"
        case _:
            return f"its {META} is of another program; the state of Nomad cannot be restored, only its job files run"


def frames(state: IO[bytes], size: int) -> Iterator[bytes]:
    """The chunks of a framed state in a file, one at a time; raises Invalid for a truncated one."""
    left = size
    while left:
        length = int.from_bytes(state.read(LENGTH_BYTES), "big")
        left -= LENGTH_BYTES + length
        if left < 0:
            raise Invalid("the snapshot is cut off")
        yield state.read(length)


def state_of(archive: Archive, state: IO[bytes]) -> Snapshot:
    """The state in a file written by `unpack`; raises Invalid when it cannot be read."""
    try:
        return snapshot.decode(frames(state, archive.size))
    except (ValueError, LookupError, TypeError, OverflowError, MemoryError, RecursionError) as error:
        raise Invalid(f"the snapshot is broken: {str(error) or 'it needs too much memory'}") from None


def table_facts(state: Snapshot) -> tuple[TableFacts, ...]:
    """The non-empty tables of the state, by name."""
    return tuple(sorted(TableFacts(table.name, len(table)) for table in state.tables() if len(table)))


def bound_memory(state_bytes: int) -> None:
    """Limit the memory of this process to the need of a state of that size; for single-purpose processes."""
    most = MEMORY_FREE + MEMORY_RATIO * state_bytes
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard == resource.RLIM_INFINITY or most < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


class _Unzipped:
    """Decompresses a gzip stream in pieces of bounded size; raises Invalid when the total exceeds the limit."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._zip = zlib.decompressobj(GZIP)
        self._read = 0
        self._unpacked_bytes = 0

    def take(self, size: int) -> bytes:
        """Exactly this number of bytes; raises EOFError when there are fewer."""
        parts: list[bytes] = []
        while size:
            part = self._some(size)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _some(self, most: int) -> bytes:
        while not self._zip.eof:
            data = self._zip.unconsumed_tail
            if not data:
                data = self._source.read(PIECE_BYTES)
                self._read += len(data)
                if not data:
                    break
                self._require_gzip(data)
            part = self._zip.decompress(data, most)
            self._unpacked_bytes += len(part)
            if self._unpacked_bytes > FREE_BYTES + RATIO_MAX * self._read:
                raise Invalid(f"{FOREIGN}: it would become more than {RATIO_MAX} times as large")
            if part:
                return part
        raise EOFError("it ends too early" if self._read else f"it is empty; {EXPECTED}")

    def _require_gzip(self, data: bytes) -> None:
        """Raise Invalid with the kind of the file when its first bytes are not those of gzip."""
        if self._read == len(data) and not data.startswith(GZIP_MAGIC):
            from yurt.runtime.file_kinds import HEAD_BYTES, kind_of

            raise Invalid(f"{FOREIGN}: it is {kind_of(data[:HEAD_BYTES])}; {EXPECTED}")


def _header(reader: _Unzipped, name: str, most: int) -> int:
    """The size of the next member; it must be a regular file with this name and at most `most` bytes."""
    info = tarfile.TarInfo.frombuf(reader.take(BLOCK), "utf-8", "surrogateescape")
    if info.name != name or info.type not in PLAIN:
        raise Invalid(f"{FOREIGN}: {name} is missing; {EXPECTED}")
    if not 0 <= info.size <= most:
        raise Invalid(f"{FOREIGN}: {name} has {info.size} bytes")
    return info.size


def _pieces(reader: _Unzipped, size: int) -> Iterator[bytes]:
    """The content of a member in pieces; consumes the padding up to the next block."""
    for start in range(0, size, PIECE_BYTES):
        yield reader.take(min(PIECE_BYTES, size - start))
    reader.take(-size % BLOCK)


def _small(reader: _Unzipped, name: str) -> bytes:
    return b"".join(_pieces(reader, _header(reader, name, SMALL_BYTES_MAX)))


def _sums(meta: bytes, state_digest: str) -> bytes:
    return f"{hashlib.sha256(meta).hexdigest()}  {META}\n{state_digest}  {STATE}\n".encode()


def _add(tar: tarfile.TarFile, name: str, body: IO[bytes], size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    tar.addfile(info, body)
