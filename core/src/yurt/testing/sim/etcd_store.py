"""etcd's key space as its API defines it: revisions, transactions, compaction. Pure; checked against a real etcd.

One write moves the revision by one, whatever number of keys it changes; a deletion that finds nothing moves nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from yurt.storage.etcd.messages import Message, message

FOREVER = b"\0"
"""As `range_end`: all keys from `key` on."""


class EtcdError(Exception):
    """A refusal by etcd, with the name of its gRPC status."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(details)
        self.code = code
        self.details = f"etcdserver: {details}"


class Row(NamedTuple):
    """A key's present value."""

    value: bytes
    created: int
    modified: int
    version: int


class StoredEvent(NamedTuple):
    """A change of a key, as watches send it. `key` repeats the message's key: reading it there makes two objects."""

    key: bytes
    message: Message


class EtcdStore:
    """The keys, and the events since the last compaction."""

    def __init__(self) -> None:
        self.revision = 1
        self.compacted = 0
        self._rows: dict[bytes, Row] = {}
        self._keys: list[bytes] = []
        self._events: list[StoredEvent] = []
        self._revisions: list[int] = []
        """The revision of each event, in a list of its own: a search with a key function takes much longer."""
        self._now: dict[str, Callable[[Message], Message]] = {
            "Range": self.range, "Put": self._put, "DeleteRange": self._delete, "Txn": self._txn,
            "Compact": self._compact,
        }  # fmt: skip

    def call(self, name: str, request: Message) -> Message:
        """Execute a call of the service KV; raises EtcdError."""
        return self._now[name](request)

    def header(self) -> dict[str, int]:
        """The fields of a response's header: protobuf builds nested messages from fields faster than it copies them."""
        return {"revision": self.revision}

    def events_after(self, revision: int, key: bytes, range_end: bytes) -> list[StoredEvent]:
        """The events of a range after a revision, in order."""
        start = bisect_right(self._revisions, revision)
        return [event for event in self._events[start:] if is_within(event.key, key, range_end)]

    def keys_changed_after(self, revision: int) -> list[bytes]:
        """The keys of the events after a revision, in order."""
        return [event.key for event in self._events[bisect_right(self._revisions, revision) :]]

    def _record(self, key: bytes, kind: int, row: dict[str, Any]) -> None:
        """Add an event at the present revision."""
        self._events.append(StoredEvent(key, message("Event", type=kind, kv=row)))
        self._revisions.append(self.revision)

    def range(self, request: Message) -> Message:
        """The keys of a range request, in order."""
        keys = self._found(request.key, request.range_end)
        shown = keys[: request.limit] if request.limit else keys
        return message(
            "RangeResponse",
            header=self.header(),
            kvs=[] if request.count_only else [self._kv(key, keys_only=request.keys_only) for key in shown],
            more=len(shown) < len(keys),
            count=len(keys),
        )

    def first_key(self, key: bytes, range_end: bytes) -> bytes:
        """The first key of a range; empty when there is none."""
        at = bisect_left(self._keys, key)
        return self._keys[at] if at < len(self._keys) and is_within(self._keys[at], key, range_end) else b""

    def _kv(self, key: bytes, *, keys_only: bool = False) -> dict[str, Any]:
        """The fields of a key's message."""
        row = self._rows[key]
        return {
            "key": key,
            "create_revision": row.created,
            "mod_revision": row.modified,
            "version": row.version,
            "value": b"" if keys_only else row.value,
        }

    def _found(self, key: bytes, range_end: bytes) -> list[bytes]:
        if not range_end:
            return [key] if key in self._rows else []
        first = bisect_left(self._keys, key)
        last = len(self._keys) if range_end == FOREVER else bisect_left(self._keys, range_end)
        return self._keys[first:last]

    def _put(self, request: Message) -> Message:
        self.revision += 1
        self._store(request.key, request.value)
        return message("PutResponse", header=self.header())

    def _store(self, key: bytes, value: bytes) -> None:
        """Write a key at the present revision."""
        before = self._rows.get(key)
        if before is None:
            insort(self._keys, key)
        self._rows[key] = Row(
            value, before.created if before else self.revision, self.revision, before.version + 1 if before else 1
        )
        self._record(key, 0, self._kv(key))

    def _delete(self, request: Message) -> Message:
        found = self._found(request.key, request.range_end)
        if found:
            self.revision += 1
            self._remove(found)
        return message("DeleteRangeResponse", header=self.header(), deleted=len(found))

    def _remove(self, keys: list[bytes]) -> None:
        """Delete keys at the present revision."""
        for key in keys:
            del self._rows[key]
            del self._keys[bisect_left(self._keys, key)]
            self._record(key, 1, {"key": key, "mod_revision": self.revision})

    def _txn(self, request: Message) -> Message:
        for branch in (request.success, request.failure):
            _check_branch(branch)
        is_met = all(self._holds(compare) for compare in request.compare)
        before, responses = self.revision, []
        for operation in request.success if is_met else request.failure:
            responses.append(self._operate(operation, before))
        return message("TxnResponse", header=self.header(), succeeded=is_met, responses=responses)

    def _operate(self, operation: Message, before: int) -> Message:
        """One operation of a transaction at revision `before`; all its writes share the next revision."""
        kind = operation.WhichOneof("request")
        if kind == "request_range":
            return message("ResponseOp", response_range=self.range(operation.request_range))
        if kind == "request_put":
            self.revision = before + 1
            put = operation.request_put
            self._store(put.key, put.value)
            return message("ResponseOp", response_put={"header": self.header()})
        asked = operation.request_delete_range
        found = self._found(asked.key, asked.range_end)
        if found:
            self.revision = before + 1
            self._remove(found)
        answer = message("DeleteRangeResponse", header=self.header(), deleted=len(found))
        return message("ResponseOp", response_delete_range=answer)

    def _holds(self, compare: Message) -> bool:
        """Whether a transaction's condition holds; the numbers of a missing key are 0 and its value equals none."""
        row = self._rows.get(compare.key)
        target = compare.WhichOneof("target_union") or "mod_revision"
        if target == "value":
            return row is not None and _compared(row.value, compare.value, compare.result)
        numbers = {"version": 0, "create_revision": 0, "mod_revision": 0}
        if row is not None:
            numbers = {"version": row.version, "create_revision": row.created, "mod_revision": row.modified}
        return _compared(numbers[target], getattr(compare, target), compare.result)

    def _compact(self, request: Message) -> Message:
        if request.revision <= self.compacted:
            raise EtcdError("OUT_OF_RANGE", "mvcc: required revision has been compacted")
        if request.revision > self.revision:
            raise EtcdError("OUT_OF_RANGE", "mvcc: required revision is a future revision")
        self.compacted = request.revision
        kept = bisect_left(self._revisions, request.revision)
        del self._events[:kept], self._revisions[:kept]
        return message("CompactionResponse", header=self.header())


def _check_branch(branch: Sequence[Message]) -> None:
    """Refuse a branch that puts a key twice, or puts and deletes it."""
    if len(branch) < 2:
        return
    puts = [each.request_put.key for each in branch if each.WhichOneof("request") == "request_put"]
    removed = [each.request_delete_range for each in branch if each.WhichOneof("request") == "request_delete_range"]
    is_removed = any(is_within(key, gone.key, gone.range_end) for gone in removed for key in puts)
    if is_removed or len(puts) != len(set(puts)):
        raise EtcdError("INVALID_ARGUMENT", "duplicate key given in txn request")


def is_within(key: bytes, first: bytes, range_end: bytes) -> bool:
    """Whether a key is in the range of a request."""
    if not range_end:
        return key == first
    return key >= first and (range_end == FOREVER or key < range_end)


def _compared(found: Any, wanted: Any, how: int) -> bool:
    return bool((found == wanted, found > wanted, found < wanted, found != wanted)[how])
