"""The changes that a reader of the event stream requested and may see.

What a topic needs of its reader is declared with the table (`yurt.state.schema.Topic`). Each topic that is asked for
must be allowed in the namespace that is asked for, for `*` in each namespace that exists; else the subscription is
refused, because a stream that leaves everything out looks like one in which nothing happens. Then each row is decided
about by itself: by its namespace, its node pool or its path. Both are decided again for each command, for what a reader
may do can change while its stream is open.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, NamedTuple, TypeVar

from yurt.access import Access, Capability, Need, Scope, needs
from yurt.runtime.turns import Turns
from yurt.server.log.event_buffer import Event, EventBuffer
from yurt.state import TABLES, Change
from yurt.state.schema import Topic

T = TypeVar("T")

CHANGES_A_SLICE: Final = 50
"""Rows examined before the loop gets a turn: with their conversion, a few milliseconds."""
ALL: Final = "*"
_OF_TABLES: Final[Mapping[str, Need]] = {
    table.topic.name: table.topic.needs for table in TABLES.values() if table.topic is not None
}
_WITHOUT_TABLE: Final[Mapping[str, Need]] = {
    "Operator": needs.OPERATOR_READ,
    "CSIPlugin": needs.namespace(Capability.READ_JOB),
    **dict.fromkeys(
        ("ACLPolicy", "ACLToken", "ACLRole", "ACLAuthMethod", "ACLBindingRule", "NodePool", ALL), needs.MANAGEMENT
    ),
}
"""Nomad's topics that have no events here, and all topics together."""
NEEDS: Final[Mapping[str, Need]] = {**_WITHOUT_TABLE, **_OF_TABLES}
"""What readers may subscribe to, and what each topic needs."""


class EventFilter(NamedTuple):
    """A reader's request: (topic, key) pairs, and a namespace."""

    topics: tuple[tuple[str, str], ...]
    namespace: str

    def keys_of(self, topic: str) -> frozenset[str] | None:
        """The requested keys of a topic, `*` for all; None for a topic that was not requested."""
        return frozenset(key for name, key in self.topics if name in (ALL, topic)) or None

    def takes(self, namespace: str) -> bool:
        """Whether the reader requested rows of a namespace; rows without one are for readers of any."""
        return self.namespace == ALL or namespace in ("", self.namespace)


class EventRow(NamedTuple):
    """The row of an event as one reader sees it."""

    topic: Topic[Any]
    type: str
    namespace: str
    """"" for a row without a namespace."""
    row: Any
    """As it is now, or was last."""
    is_deleted: bool


class Subscription:
    """The changes for one reader, from one server's buffer."""

    def __init__(
        self, events: EventBuffer, access: Access, event_filter: EventFilter, namespaces: tuple[str, ...]
    ) -> None:
        """`namespaces` are all that exist now. Raises PermissionDenied for a forbidden topic."""
        self._events = events
        self._access = access
        self._event_filter = event_filter
        self._slice_count = 0
        self._namespaces: tuple[str | None, ...] = (
            namespaces if event_filter.namespace == ALL else (event_filter.namespace,)
        )
        self.check()

    @property
    def oldest_index(self) -> int:
        """The index from which on no event is missing."""
        return self._events.oldest_index

    def check(self) -> None:
        """Raises PermissionDenied unless every requested topic is permitted."""
        for name in dict.fromkeys(name for name, _ in self._event_filter.topics):
            access = self._access.narrowed(NEEDS[name])
            if not access.sees_all:
                for namespace in self._namespaces:
                    access.require(Scope(namespace=namespace))

    async def rows(
        self, from_index: int, turns: Turns, render: Callable[[Event, EventRow], T]
    ) -> AsyncGenerator[tuple[int, list[T]]]:
        """The reader's changes from an index on, with the index of each command, as `render` makes them.

        Raises Conflict when events are missing, and PermissionDenied once the reader may no longer subscribe.
        """
        self._slice_count = 0
        async with aclosing(self._events.subscribe(from_index)) as events:
            async for event in events:
                if event.changes:
                    self.check()
                rows = await self._of_event(event, turns, render)
                if rows:
                    yield event.index, rows

    async def _of_event(self, event: Event, turns: Turns, render: Callable[[Event, EventRow], T]) -> list[T]:
        """The reader's changes of one command; slices may span commands."""
        rows, rendered = SeenRows(event, self._event_filter, self._access), list[T]()
        for change in event.changes:
            if self._slice_count >= CHANGES_A_SLICE:
                await turns.next()
                self._slice_count = 0
            self._slice_count += 1
            row = rows.visible(change)
            if row is not None:
                rendered.append(render(event, row))
        return rendered


class _TopicFilter(NamedTuple):
    """The filter for a command's rows of one topic."""

    keys: frozenset[str]
    access: Access


class SeenRows:
    """The rows of one command; each topic is looked up once, and each scope decided once."""

    __slots__ = ("_access", "_by_topic", "_event", "_event_filter")

    def __init__(self, event: Event, event_filter: EventFilter, access: Access) -> None:
        self._event = event
        self._event_filter = event_filter
        self._access = access
        self._by_topic: dict[str, _TopicFilter | None] = {}

    def visible(self, change: Change) -> EventRow | None:
        """The change for the reader; None when it was not requested or is not visible."""
        table, is_deleted = TABLES[change.table], change.after is None
        topic, kind = table.topic, self._event.type
        if topic is None or kind is None or (is_deleted and not kind.publishes_deletion):
            return None
        topic_filter = self._by_topic[topic.name] if topic.name in self._by_topic else self._look_up(topic)
        if topic_filter is None:
            return None
        row = change.before if is_deleted else change.after
        namespace = "" if table.namespace_of is None else table.namespace_of(change.key, row)
        if not self._event_filter.takes(namespace):
            return None
        keys, access = topic_filter
        if ALL not in keys and keys.isdisjoint((topic.key(row), *topic.filter_keys(row))):
            return None
        if not access.sees_all and not access.allows(topic.place(row)._replace(namespace=namespace or None)):
            return None
        return EventRow(topic, kind.name, namespace, row, is_deleted)

    def _look_up(self, topic: Topic[Any]) -> _TopicFilter | None:
        keys = self._event_filter.keys_of(topic.name)
        topic_filter = None if keys is None else _TopicFilter(keys, self._access.narrowed(topic.needs))
        self._by_topic[topic.name] = topic_filter
        return topic_filter
