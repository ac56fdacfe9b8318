"""Snapshots of the state: a stream of chunks, and a digest by which states are compared.

A stream is a header, then for each table chunks of at most 1,000 rows, then an end mark with the number of rows. How
the rows of a table are written says its codec (`yurt.state.row_codecs`); what they share stands in chunks of its own
before the first row that refers to it by number. Columns are derived and are not in the stream.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec

from yurt.sdk.errors import Invalid
from yurt.sdk.value import replace
from yurt.state import TABLES, Snapshot
from yurt.state.persistent_table import TableEditor
from yurt.state.row_codecs import CHUNK_ROWS, SHARED, SharedReader, SharedWriter
from yurt.state.store import Followed
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job
from yurt.structs.rules import RULES_VERSION, UNPUBLISHED_RULES

FORMAT: Final = 3
"""The format of states under rules that servers publish: versions that publish none cannot read it."""
UNRULED: Final = 2
"""The format of other states, for these versions; otherwise it is the same."""
FIRST: Final = 1
"""The first readable format, which had the scores of each allocation in its row."""
END: Final = "*end"

T = TypeVar("T")

_encoder = msgspec.msgpack.Encoder()
_envelope = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_count_decoder = msgspec.msgpack.Decoder(int)


class Header(msgspec.Struct, frozen=True):
    """The first chunk: the format, the index of the state, and the index of each table."""

    format: int
    index: int
    tables: dict[str, int]
    rules: int = 0
    """The newest rules that a command before the snapshot followed: a version without them does not know all rows."""
    last_rules: int | None = None
    """The rules that the last command before the snapshot followed; None in snapshots of versions that do not write
    it: then `rules` stand for them until the next command."""


_header_decoder = msgspec.msgpack.Decoder(Header)


def encode(state: Snapshot) -> Iterator[bytes]:
    """The state as a stream of chunks."""
    form = FORMAT if state.rules > UNPUBLISHED_RULES else UNRULED
    indexes = {each.name: each.index for each in state.tables()}
    yield _encoder.encode(Header(form, state.index, indexes, state.rules, state.last_rules))
    shared = SharedWriter()
    for table in state.tables():
        codec = TABLES[table.name].codec
        for rows in _batches(codec.ordered(table)):
            written = codec.written(rows, shared)
            yield from shared.flush()
            yield _encoder.encode((table.name, written))
    yield _encoder.encode((END, sum(len(table) for table in state.tables())))


def decode(chunks: Iterable[bytes]) -> Snapshot:
    """The state from a stream; raises Invalid for a truncated stream or another format."""
    stream = iter(chunks)
    try:
        header = _header_decoder.decode(next(stream, b""))
        if not FIRST <= header.format <= FORMAT:
            raise Invalid(f"the snapshot has format {header.format}, this version reads {FIRST} to {FORMAT}")
        if header.rules > RULES_VERSION:
            raise Invalid(
                f"the snapshot follows rules {header.rules}, this version applies {RULES_VERSION}; "
                "run the version that wrote it"
            )
        reader = _SnapshotReader(header.format)
        for chunk in stream:
            reader.read(chunk)
        return reader.finish(header)
    except (msgspec.DecodeError, KeyError, IndexError) as error:
        raise Invalid(f"the snapshot is broken: {error}") from error


def digest(state: Snapshot) -> str:
    """A hash of the complete state; equal for equal states, whatever led to them.

    It is made from texts that hold every field: which of them an encoder leaves out depends on more than content.
    """
    hasher = hashlib.blake2b(repr(state.index).encode(), digest_size=16)
    jobs: dict[int, str] = {}
    for table in state.tables():
        hasher.update(repr((table.name, table.index, len(table))).encode())
        for key in sorted(table.keys()):
            row = table[key]
            whose = ""
            if isinstance(row, Allocation) and row.job is not None:
                whose = jobs.get(id(row.job)) or jobs.setdefault(id(row.job), _text_digest(row.job))
                row = replace(row, job=None)
            hasher.update(repr((key, whose, row)).encode())
    return hasher.hexdigest()


def _text_digest(job: Job) -> str:
    return hashlib.blake2b(repr(job).encode(), digest_size=16).hexdigest()


def _batches(rows: Iterable[T]) -> Iterator[Sequence[T]]:
    rest = iter(rows)
    while batch := list(islice(rest, CHUNK_ROWS)):
        yield batch


class _SnapshotReader:
    """The tables that are read from a stream."""

    def __init__(self, form: int) -> None:
        self._shared = SharedReader(has_scores_in_rows=form == FIRST)
        self._editors: dict[str, TableEditor[Any, Any]] = {
            name: schema.empty().edit() for name, schema in TABLES.items()
        }
        self._rows = 0
        self._expected_rows = -1

    def read(self, chunk: bytes) -> None:
        kind, body = _envelope.decode(chunk)
        if kind in SHARED:
            self._shared.read(kind, body)
        elif kind == END:
            self._expected_rows = _count_decoder.decode(body)
        else:
            self._rows += TABLES[kind].codec.read(body, self._shared, self._editors[kind])

    def finish(self, header: Header) -> Snapshot:
        if self._rows != self._expected_rows:
            raise Invalid(f"the snapshot is incomplete: {self._rows} rows, not {max(self._expected_rows, 0)}")
        for editor in self._editors.values():
            editor.is_changed = True
        tables = {name: editor.finish(header.tables.get(name, 0)) for name, editor in self._editors.items()}
        assert tables.keys() == TABLES.keys(), "a state has every table, if only an empty one"
        last_rules = header.rules if header.last_rules is None else header.last_rules
        return Snapshot(header.index, tables, followed=Followed(header.rules, last_rules))
