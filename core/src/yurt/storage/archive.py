"""A snapshot as a file that people keep: a gzipped tar with `meta.json`, `state.bin` and `SHA256SUMS`.

Nothing in a file from outside is believed: names, sizes, digests and the state itself are checked before use.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import tempfile
from typing import IO, Final, NamedTuple

from yurt.fsm import snapshot
from yurt.fsm.restore import framed, unframed
from yurt.sdk.errors import Invalid
from yurt.state import Snapshot

FORMAT: Final = 1
META, STATE, SUMS = "meta.json", "state.bin", "SHA256SUMS"
STATE_BYTES_MAX: Final = 4 * 1024**3
SMALL_BYTES_MAX: Final = 64 * 1024
FOREIGN: Final = "the file is no snapshot of Yurt"


class Archive(NamedTuple):
    """A snapshot that was read and checked: where it comes from, and the framed state."""

    id: str
    state_index: int
    version: str
    data: bytes


class TableFacts(NamedTuple):
    """How many rows a table has."""

    table: str
    rows: int


def write_archive(state: Snapshot, out: IO[bytes], *, version: str) -> None:
    """Write the state as an archive."""
    with tempfile.TemporaryFile() as body:
        digest = hashlib.sha256()
        for piece in framed(snapshot.encode(state)):
            body.write(piece)
            digest.update(piece)
        size = body.tell()
        body.seek(0)
        facts = {"Format": FORMAT, "ID": f"1-{state.index}", "Index": state.index, "Term": 1, "Version": version}
        meta = json.dumps(facts).encode()
        sums = _sums(meta, digest.hexdigest())
        with tarfile.open(fileobj=out, mode="w:gz", compresslevel=6) as tar:
            _add(tar, META, io.BytesIO(meta), len(meta))
            _add(tar, STATE, body, size)
            _add(tar, SUMS, io.BytesIO(sums), len(sums))


def read_archive(source: IO[bytes]) -> Archive:
    """Read and check an archive; raises Invalid."""
    try:
        with tarfile.open(fileobj=source, mode="r:gz") as tar:
            meta_text, data, sums = (_member(tar, name) for name in (META, STATE, SUMS))
        meta = json.loads(meta_text)
        form, found = meta["Format"], Archive(str(meta["ID"]), int(meta["Index"]), str(meta["Version"]), data)
    except (tarfile.TarError, OSError, EOFError, ValueError, LookupError, TypeError) as error:
        raise Invalid(f"{FOREIGN}: {error}") from None
    if form != FORMAT:
        raise Invalid(f"the snapshot has format {form}, this version reads {FORMAT}")
    if sums != _sums(meta_text, hashlib.sha256(data).hexdigest()):
        raise Invalid("the snapshot is damaged: its digests do not fit")
    return found


def state_of(archive: Archive) -> Snapshot:
    """The state itself; raises Invalid where it cannot be read."""
    return snapshot.decode(unframed(archive.data))


def table_facts(archive: Archive) -> tuple[TableFacts, ...]:
    """The tables of the state that have rows, by name."""
    state = state_of(archive)
    return tuple(sorted(TableFacts(table.name, len(table)) for table in state.tables() if len(table)))


def _sums(meta: bytes, state_digest: str) -> bytes:
    return f"{hashlib.sha256(meta).hexdigest()}  {META}\n{state_digest}  {STATE}\n".encode()


def _add(tar: tarfile.TarFile, name: str, body: IO[bytes], size: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o600
    tar.addfile(info, body)


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    """The next member, which must have this name and a bearable size."""
    info = tar.next()
    if info is None or info.name != name or not info.isreg():
        raise Invalid(f"{FOREIGN}: {name} is missing")
    if info.size > (STATE_BYTES_MAX if name == STATE else SMALL_BYTES_MAX):
        raise Invalid(f"{FOREIGN}: {name} has {info.size} bytes")
    body = tar.extractfile(info)
    assert body is not None, name
    return body.read()
