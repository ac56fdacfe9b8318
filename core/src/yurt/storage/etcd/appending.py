"""Appends an entry: a transaction that compares the epoch, which a new leader raises, and the log's end.

It stores the commands at their first index together with the new end. When etcd does not answer it in time nobody knows
whether it is stored: the term ends, and the next one begins with reading the log's end. It is never sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from yurt.sdk.errors import Conflict, Unavailable, YurtError
from yurt.storage.etcd.client import EtcdClient, NoSpace
from yurt.storage.etcd.interruptible_waits import Interrupted
from yurt.storage.etcd.key_layout import KeyLayout, encode_entry, encode_head, get, is_value, put
from yurt.storage.etcd.leading import CLOSED, NO_LEADER, EtcdTerm, Leading
from yurt.storage.etcd.quota_usage import EtcdQuotaUsage
from yurt.storage.etcd.reading import EntryReader
from yurt.storage.log import LogFull
from yurt.structs.commands import AnyCommand

APPEND_LIMIT_S: Final = 5.0
UNKNOWN: Final = "it may or may not be stored"


class Appender:
    """Appends for one server, one entry at a time; `lock` excludes appends."""

    def __init__(
        self,
        client: EtcdClient,
        keys: KeyLayout,
        *,
        leading: Leading,
        reader: EntryReader,
        quota_usage: EtcdQuotaUsage,
        on_no_space: Callable[[], None],
    ) -> None:
        self.lock = asyncio.Lock()
        self._client = client
        self._keys = keys
        self._leading = leading
        self._reader = reader
        self._quota_usage = quota_usage
        self._on_no_space = on_no_space

    async def append(self, first_index: int, commands: Sequence[AnyCommand | msgspec.Raw]) -> None:
        """Store commands in this server's term; raises as `append_in` does, and Conflict when the index is not the next
        one."""
        async with self.lock:
            term = self._leading.term
            if term is None:
                raise Conflict(CLOSED if self._leading.levels.is_closed else f"{NO_LEADER}, nothing was stored")
            if first_index != term.head.index + 1:
                raise Conflict(f"the next index of the command log is {term.head.index + 1}, not {first_index}")
            if commands:
                await self.append_in(term, first_index, commands)
                self._reader.has_applied(term.head)

    async def append_in(self, term: EtcdTerm, first_index: int, commands: Sequence[AnyCommand | msgspec.Raw]) -> None:
        """Store commands in the given term of this server.

        Raises Conflict when the term has ended, Invalid when they are too large, LogFull when etcd has no room for
        them: nothing was stored. Raises Unavailable when the outcome is unknown; the term has ended then.
        """
        value, head = encode_entry(first_index, commands, term.head.digest)
        self._check_quota(len(value))
        renewal = self._leading.renewal(term)
        store = [put(self._keys.entry(first_index), value), put(self._keys.head, encode_head(head)), *renewal]
        compare = [self._leading.fence(term), is_value(self._keys.head, encode_head(term.head))]
        look = get(self._keys.lead, self._keys.lead_end)
        try:
            answer = await term.end.guard(self._client.txn(compare, store, [look], timeout_s=APPEND_LIMIT_S))
        except asyncio.CancelledError:
            self._leading.lose(term, f"an append was cancelled, {UNKNOWN}")
            raise
        except Interrupted:
            raise Unavailable(f"the term ended during an append, {UNKNOWN}") from None
        except YurtError as error:
            if isinstance(error, NoSpace):
                self._on_no_space()
            self._leading.lose(term, f"an append failed, {UNKNOWN}: {error}")
            raise Unavailable(f"an append failed, {UNKNOWN}: {error}") from error
        if not answer.succeeded:
            self._leading.lose(term, "another one has begun")
            self._leading.learn(answer.responses[0].response_range.kvs)
            raise Conflict("another server leads by now, nothing was stored")
        term.head = head
        self._quota_usage.appended.add(answer.header.revision, len(value))
        term.answered(self._leading.env.monotonic(), is_renewed=bool(renewal))

    def _check_quota(self, size: int) -> None:
        """Raises LogFull when the quota leaves no space for an entry of this size."""
        quota, now = self._quota_usage.quota_bytes, self._leading.env.monotonic()
        if quota and self._quota_usage.is_full(size, now):
            self._quota_usage.refused(size)
            used_bytes, server = self._quota_usage.largest(now)
            raise LogFull(
                f"etcd is nearly full ({used_bytes} bytes of {quota} at {server}, compaction needs "
                f"{self._quota_usage.reserve(now)}), nothing was stored; room is being made"
            )
