"""The keys in etcd below `/yurt/<region>/` and the encoding of their values.

`format` holds the version of the layout and the id of the cluster. `log/<index>` holds the commands from that index on,
with a digest of them and of the entry before, so that an entry identifies all the history that led to it. `lead/` has
`epoch` (the leader), `alive` (the leader's heartbeat) and `head` (the last index and its entry's digest); all servers
watch the first two. `snapshots/<server>` holds the index of a server's snapshot on its own disk, and the time of that
report. `turn` names the server whose member is being defragmented.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from yurt import __version__
from yurt.sdk.errors import Conflict, Invalid
from yurt.sdk.value import Value
from yurt.storage.etcd.messages import Message, message
from yurt.storage.log import Entry
from yurt.structs.commands import AnyCommand, decode_commands

LAYOUT: Final = "yurt log 1"
COMMAND_VERSION: Final = 1
"""Incremented when the encoding of commands changes."""
INDEX_DIGITS: Final = 20
ENTRY_BYTES_MAX: Final = 1_400_000
"""The maximum size of an encoded entry: COMMAND_BYTES_MAX plus the log's own fields, below etcd's limit of a
request."""
REPLACE_MEMBER: Final = (
    "When other servers go on without this message, only the etcd member of this server is damaged: stop this "
    "agent, move the folder server/etcd of its data_dir away, and start it again; its member joins again and gets "
    "everything from the others"
)
RESTORE_ETCD: Final = (
    f"{REPLACE_MEMBER}. Otherwise restore etcd from its own snapshot, or the cluster from one of Yurt's"
)
REGIONS: Final = b"/yurt/"
"""The prefix of the keys of all regions."""
REGION: Final = re.compile(r"[\w.-]+")
EQUAL, MOD, VALUE = 0, 2, 3

_commands_out = msgspec.msgpack.Encoder()


class Format(Value, rename=None):
    """The layout version of the keys, and a random cluster id that servers' folders store."""

    layout: str
    id: str


class Epoch(Value, rename=None):
    """A term: its number and its server; the server is "" after a resignation in favour of `heir`, or of any server if
    that is ""."""

    number: int = 0
    server: str = ""
    heir: str = ""


class Report(Value, rename=None):
    """The index of a server's snapshot, and the time of the report, unix ns."""

    index: int
    at: int


class LogMark(Value, rename=None):
    """The end of an entry and its digest ("": unknown), which identifies the history up to it."""

    index: int = 0
    digest: str = ""


class StoredEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An entry as stored; `before` is the digest of its predecessor."""

    version: int
    written_by: str
    count: int
    digest: bytes
    commands: bytes
    before: bytes = b""


class FoundEntry(NamedTuple):
    """An entry that was read, with the marks before and after it."""

    entry: Entry
    mark: LogMark
    before: str


_entry_out = msgspec.msgpack.Encoder()
_entry_in = msgspec.msgpack.Decoder(StoredEntry)


class KeyLayout:
    """The keys of one region."""

    def __init__(self, region: str) -> None:
        """Raises Invalid for a region whose name is not valid as part of a key."""
        if REGION.fullmatch(region) is None:
            raise Invalid(
                f'the region "{region}" has characters that etcd\'s keys may not have; use letters, digits, .-_'
            )
        self.root = REGIONS + f"{region}/".encode()
        self.format = self.root + b"format"
        self.log = self.root + b"log/"
        self.log_end = end_of(self.log)
        self.lead = self.root + b"lead/"
        self.lead_end = end_of(self.lead)
        self.epoch, self.head, self.alive = (self.lead + name for name in (b"epoch", b"head", b"alive"))
        self.signs = self.alive, self.head
        """The range of `alive` and `epoch`, without `head`, which each append writes."""
        self.snapshots = self.root + b"snapshots/"
        self.snapshots_end = end_of(self.snapshots)
        self.turn = self.root + b"turn"

    def entry(self, first_index: int) -> bytes:
        """The key of an entry."""
        return self.log + b"%0*d" % (INDEX_DIGITS, first_index)

    def first_index(self, key: bytes) -> int:
        """The first index of the entry at a key; raises Conflict for a damaged key."""
        digits = key[len(self.log) :]
        if not digits.isdigit():
            raise Conflict(f"the command log in etcd has a damaged key: {key!r}. {RESTORE_ETCD}")
        return int(digits)

    def snapshot(self, server: str) -> bytes:
        """The key of a server's snapshot report."""
        return self.snapshots + server.encode()


def end_of(prefix: bytes) -> bytes:
    """The first key after all keys with the prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])


def encode_head(head: LogMark) -> bytes:
    """The value of `head`."""
    return f"{head.index} {head.digest}".rstrip().encode()


def decode_head(value: bytes) -> LogMark:
    """The decoded value of `head`; raises ValueError when it is invalid."""
    index, _, digest = value.decode().partition(" ")
    return LogMark(index=int(index), digest=digest)


def encode_entry(
    first_index: int, commands: Sequence[AnyCommand | msgspec.Raw], before: str = ""
) -> tuple[bytes, LogMark]:
    """An entry's value and its mark; raises Invalid when it is too large."""
    data = _commands_out.encode(commands)
    if len(data) > ENTRY_BYTES_MAX:
        raise Invalid(f"{len(commands)} commands take {len(data)} bytes, an entry of the log {ENTRY_BYTES_MAX} at most")
    behind = bytes.fromhex(before)
    digest = digest_of(first_index, data, behind)
    stored = StoredEntry(COMMAND_VERSION, __version__, len(commands), digest, data, behind)
    return _entry_out.encode(stored), LogMark(index=first_index + len(commands) - 1, digest=digest.hex())


def decode_entry(first_index: int, value: bytes) -> FoundEntry:
    """An entry from its value; raises Conflict for a damaged entry or one of a newer version."""
    try:
        stored = _entry_in.decode(value)
    except msgspec.DecodeError as error:
        raise broken(first_index, f"the entry is malformed ({error})") from error
    if stored.digest != digest_of(first_index, stored.commands, stored.before):
        raise broken(first_index, "its content does not fit its digest")
    try:
        entry = Entry(first_index=first_index, commands=decode_commands(stored.commands))
    except msgspec.DecodeError as error:
        raise Conflict(
            f"the command log has an entry at index {first_index} that yurt {stored.written_by} wrote and yurt "
            f"{__version__} can not read ({error}); run yurt {stored.written_by} or newer on this server"
        ) from error
    if len(entry.commands) != stored.count:
        raise broken(first_index, f"it has {len(entry.commands)} commands, not {stored.count}")
    return FoundEntry(entry, LogMark(index=entry.last_index, digest=stored.digest.hex()), stored.before.hex())


def digest_of(first_index: int, data: bytes, before: bytes = b"") -> bytes:
    """The digest of commands, their position, and the digest `before` of the previous entry."""
    return hashlib.blake2b(data, digest_size=8, key=first_index.to_bytes(8, "big") + before).digest()


def broken(index: int, why: str) -> Conflict:
    """The error for a log that is damaged at an index."""
    return Conflict(f"the command log in etcd is broken at index {index}: {why}. {RESTORE_ETCD}")


def is_at(key: bytes, revision: int) -> Message:
    """The comparison that a key was last written at a revision (0: absent)."""
    return message("Compare", key=key, target=MOD, result=EQUAL, mod_revision=revision)


def is_value(key: bytes, value: bytes) -> Message:
    """The comparison that a key exists and has a value."""
    return message("Compare", key=key, target=VALUE, result=EQUAL, value=value)


def put(key: bytes, value: bytes) -> Message:
    """A put within a transaction."""
    return message("RequestOp", request_put=message("PutRequest", key=key, value=value))


def get(key: bytes, range_end: bytes = b"") -> Message:
    """A read within a transaction."""
    return message("RequestOp", request_range=message("RangeRequest", key=key, range_end=range_end))


def remove(key: bytes, range_end: bytes) -> Message:
    """A deletion within a transaction."""
    return message("RequestOp", request_delete_range=message("DeleteRangeRequest", key=key, range_end=range_end))
