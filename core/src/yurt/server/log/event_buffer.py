"""The last applied commands and their changes, for `/v1/event/stream`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final, NamedTuple

from yurt.sdk.errors import Conflict
from yurt.state import Changes, Snapshot
from yurt.state.store import Change
from yurt.structs.commands.base import EventType

LET_GO: Final = ("allocs", "evals", "job_summaries")
"""Tables of which deleted rows need not be kept for those who ask for old events."""


class Event(NamedTuple):
    """The changes of one command."""

    index: int  # type: ignore[assignment]
    changes: Changes
    type: EventType | None
    """None: no reader is told, so the changes are not kept. Those of garbage collection would keep deleted rows."""


class _Place:
    """A subscriber's position: the index of the next event."""

    __slots__ = ("next_index",)

    def __init__(self, next_index: int) -> None:
        self.next_index = next_index


class EventBuffer:
    """The newest events.

    A subscriber begins at the oldest one that it asks for and that is still here. One that falls behind later, so that
    an event which it has not taken is dropped, is told so and has to begin anew: it must not take what it gets for all
    that happened.
    """

    def __init__(self, size: int = 100) -> None:
        self._events: deque[Event] = deque(maxlen=size)
        self._arrived: asyncio.Event | None = None
        """Made by the first who waits: where nobody does, a command costs nothing."""
        self._times_broken = 0
        self._dropped_index = 0
        """The index of the newest event that is no longer here."""
        self._places: list[_Place] = []

    def break_off(self) -> None:
        """Record a gap: subscribers are notified and may start again."""
        self._events.clear()
        self._times_broken += 1
        self._wake()

    def add(self, event: Event) -> None:
        """Append an event, dropping the oldest one when full."""
        if len(self._events) == self._events.maxlen:
            self._dropped_index = self._events[0].index
        self._events.append(event if event.type is not None else event._replace(changes=()))
        self._wake()

    def forget(self, state: Snapshot) -> None:
        """Release deleted allocations, evaluations and summaries: 100 events may hold a hundred thousand of them.

        What a subscriber has not taken yet stays.
        """
        wanted = min((place.next_index for place in self._places), default=None)
        for position, event in enumerate(self._events):
            if wanted is not None and event.index >= wanted:
                break
            kept = tuple(change for change in event.changes if not _is_deleted(change, state))
            if len(kept) < len(event.changes):
                self._events[position] = event._replace(changes=kept)

    def _wake(self) -> None:
        if self._arrived is not None:
            self._arrived.set()
            self._arrived = None

    async def subscribe(self, from_index: int = 0) -> AsyncGenerator[Event]:
        """Buffered events from `from_index` (inclusive) on, then new ones.

        Raises Conflict when events are missing from here on: this server took over the state of another one and has not
        seen what happened between, or the subscriber was too slow and the buffer has dropped what it had not taken.
        """
        place, times_broken = _Place(max(from_index, self._dropped_index + 1)), self._times_broken
        self._places.append(place)
        try:
            while True:
                if self._times_broken != times_broken:
                    raise Conflict("this server fetched its state from another one, events are missing")
                if place.next_index <= self._dropped_index:
                    raise Conflict(f"the reader fell behind, events up to index {self._dropped_index} are missing")
                found = [event for event in self._events if event.index >= place.next_index]
                for event in found:
                    place.next_index = event.index + 1
                    yield event
                if not found:
                    self._arrived = self._arrived or asyncio.Event()
                    await self._arrived.wait()
        finally:
            self._places.remove(place)


def _is_deleted(change: Change, state: Snapshot) -> bool:
    """Whether it belongs to a deleted allocation, evaluation or job summary."""
    return change.table in LET_GO and change.key not in state.table(change.table)
