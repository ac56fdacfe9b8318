"""The last applied commands and their changes, for `/v1/event/stream`.

The buffer keeps the newest `size` events: for those who ask for old ones as far as they fit into `NEWEST_BYTES_MAX`, as
a hundred commands may write ten thousand rows and each version of a row would stay; for a live reader that has not
taken them yet, all of them. Beyond them it keeps what a live reader has not taken yet: commands are applied hundreds at
a time, before any reader gets a turn. These older events are bounded by `BEHIND_EVENTS_MAX` and `BEHIND_BYTES_MAX`. The
oldest one goes when a bound is reached; a reader that has not taken it is cut off, counts no more, and what only it
still wanted goes with it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from itertools import chain, islice, takewhile
from typing import Final

import msgspec

from yurt.sdk.errors import Conflict
from yurt.sdk.value import replace
from yurt.state import Changes, Snapshot
from yurt.state.store import Change
from yurt.structs.commands.base import EventType

LET_GO: Final = ("allocs", "evals", "job_summaries")
"""Tables whose deleted rows are not kept for readers of old events."""
NEWEST_BYTES_MAX: Final = 4 * 1024 * 1024
"""The maximum size of the newest events that no live reader needs; the newest one stays whatever its size."""
BEHIND_EVENTS_MAX: Final = 10_000
BEHIND_BYTES_MAX: Final = 16 * 1024 * 1024
"""The maximum size of the events kept for slow readers beyond the configured number, for all readers together; a
single one stays whatever its size."""
ROW_BYTES: Final = 1024
"""The estimated size of a changed row in addition to its command's bytes: most of a row is shared."""
TAKEN_AT_ONCE: Final = 256
"""The number of events that a reader fetches at once; the buffer's bounds do not count them."""


class Event(msgspec.Struct, frozen=True):
    """The changes of one command."""

    index: int
    changes: Changes
    type: EventType | None
    """The event type; None: not sent to readers, so the changes are not kept. Those of garbage collection would keep
    deleted rows."""
    command_bytes: int = 0
    """The size of the command in the log."""

    @property
    def weight(self) -> int:
        """The bytes for which the event counts."""
        return self.command_bytes + ROW_BYTES * len(self.changes) if self.changes else 0


class _Place:
    """A subscriber's position: the index of the next event."""

    __slots__ = ("next_index",)

    def __init__(self, next_index: int) -> None:
        self.next_index = next_index


class EventBuffer:
    """The newest events, and older ones that live readers have not received yet.

    A reader that missed a dropped event learns so and has to start again: the events that it gets are not all.
    """

    def __init__(self, size: int = 100) -> None:
        """Up to `size` events are kept with or without readers; 0 keeps none."""
        self._size = size
        self._newest: deque[Event] = deque()
        self._newest_bytes = 0
        self._behind: deque[Event] = deque()
        """Older events, of which some live reader has not received the first."""
        self._behind_bytes = 0
        self._arrived: asyncio.Event | None = None
        """Created by the first waiting reader, so that a command costs nothing without readers."""
        self._times_broken = 0
        self._dropped_index = 0
        """The index of the newest dropped event."""
        self._places: list[_Place] = []
        self._needed_index = 0
        """A lower bound of the events that live readers need: positions are read again only when an event reaches
        it."""

    @property
    def oldest_index(self) -> int:
        """The index from which on all events are here."""
        return self._dropped_index + 1

    def begin_after(self, index: int) -> None:
        """Record that the state of an index was loaded without the events before it."""
        if not self._newest:
            self._dropped_index = max(self._dropped_index, index)

    def break_off(self, index: int) -> None:
        """Record a gap up to an index: subscribers are notified and may start again."""
        self._newest.clear()
        self._behind.clear()
        self._newest_bytes = self._behind_bytes = 0
        self._dropped_index = index
        self._times_broken += 1
        self._wake()

    def add(self, event: Event) -> None:
        """Append an event, dropping old ones that no live reader waits for and those beyond the bounds."""
        newest = self._newest
        if not newest and not self._behind:
            self._dropped_index = event.index - 1
        kept = event if event.type is not None else replace(event, changes=())
        newest.append(kept)
        self._newest_bytes += kept.weight
        while len(newest) > self._size:
            if not (self._behind or self._places):  # nobody reads, as on most servers: every command passes here
                self._newest_bytes -= self._drop(newest)
                continue
            older = newest.popleft()
            weight = older.weight
            self._newest_bytes -= weight
            self._behind.append(older)
            self._behind_bytes += weight
        if self._behind or self._newest_bytes > NEWEST_BYTES_MAX:
            self._trim()
        self._wake()

    def forget(self, state: Snapshot) -> None:
        """Release deleted allocations, evaluations and summaries: 100 events may hold a hundred thousand of them.

        What a subscriber has not taken yet stays.
        """
        next_index = self._next_needed_index()
        self._behind_bytes -= _forget(self._behind, state, before=next_index)
        self._newest_bytes -= _forget(self._newest, state, before=next_index)

    def _next_needed_index(self) -> int | None:
        """The oldest event that a live reader has not received; None without readers."""
        return min((each.next_index for each in self._places if each.next_index > self._dropped_index), default=None)

    def _is_needed(self, index: int) -> bool:
        """Whether a live reader has not received the event with this index."""
        if not self._places:
            return False
        if index >= self._needed_index:
            next_index = self._next_needed_index()
            self._needed_index = index + 1 if next_index is None else next_index
        return index >= self._needed_index

    def _trim(self) -> None:
        """Drop events beyond the size or `NEWEST_BYTES_MAX` that no live reader needs, and those beyond the bounds."""
        behind, newest = self._behind, self._newest
        while behind and (self._is_too_much_behind() or not self._is_needed(behind[0].index)):
            self._behind_bytes -= self._drop(behind)
        # A reader that needs an older event needs all later ones.
        while self._newest_bytes > NEWEST_BYTES_MAX and not behind and len(newest) > 1:
            if self._is_needed(newest[0].index):
                return
            self._newest_bytes -= self._drop(newest)

    def _is_too_much_behind(self) -> bool:
        count = len(self._behind)
        return count > BEHIND_EVENTS_MAX or (self._behind_bytes > BEHIND_BYTES_MAX and count > 1)

    def _drop(self, events: deque[Event]) -> int:
        """Drop the oldest event; returns its weight."""
        oldest = events.popleft()
        self._dropped_index = oldest.index
        return oldest.weight

    def _wake(self) -> None:
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None

    async def subscribe(self, from_index: int = 0) -> AsyncGenerator[Event]:
        """Events from `from_index` (inclusive) on, then new ones; 0 starts at the oldest one.

        Raises Conflict when events are missing: the first one is no longer here, this server took over the state of
        another one and has not seen what happened between, or the subscriber was too slow.
        """
        place, times_broken = _Place(from_index or self.oldest_index), self._times_broken
        self._places.append(place)
        self._needed_index = min(self._needed_index, place.next_index)
        try:
            while True:
                if self._times_broken != times_broken:
                    raise Conflict("this server fetched its state from another one, events are missing")
                if place.next_index <= self._dropped_index:
                    raise Conflict(f"the reader fell behind, events up to index {self._dropped_index} are missing")
                found = self._from(place.next_index)
                for event in found:
                    place.next_index = event.index + 1
                    yield event
                if not found:
                    self._trim()
                    self._arrived = self._arrived or asyncio.Event()
                    await self._arrived.wait()
        finally:
            self._places.remove(place)
            self._trim()

    def _from(self, index: int) -> list[Event]:
        """The next events from an index on, searched from the newest: another reader may be 10,000 behind."""
        found = list(
            takewhile(lambda event: event.index >= index, chain(reversed(self._newest), reversed(self._behind)))
        )
        return list(islice(reversed(found), TAKEN_AT_ONCE))


def _forget(events: deque[Event], state: Snapshot, *, before: int | None) -> int:
    """Release deleted rows in the events before an index; returns the reduction of the events' weight."""
    saved = 0
    for position, event in enumerate(events):
        if before is not None and event.index >= before:
            break
        kept = tuple(change for change in event.changes if not _is_deleted(change, state))
        if len(kept) < len(event.changes):
            events[position] = replace(event, changes=kept)
            saved += event.weight - events[position].weight
    return saved


def _is_deleted(change: Change, state: Snapshot) -> bool:
    """Whether a row belongs to a deleted allocation, evaluation or job summary."""
    return change.table in LET_GO and change.key not in state.table(change.table)
