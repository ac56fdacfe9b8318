"""The events of a command as the event stream shows them, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from yurt.access import Access
from yurt.http.resources.events import event_wire
from yurt.server.log.event_buffer import Event
from yurt.server.views.events import ALL, EventFilter, SeenRows
from yurt.state import Changes
from yurt.structs.commands.base import EventType

EVERYTHING = EventFilter(((ALL, ALL),), ALL)


def events_of(
    index: int,
    changes: Changes,
    kind: EventType | None,
    *,
    event_filter: EventFilter = EVERYTHING,
    access: Access | None = None,
) -> Iterator[dict[str, Any]]:
    """The events of one command, as the API writes them."""
    event = Event(index, changes, kind)
    rows = SeenRows(event, event_filter, access or Access())
    found = map(rows.visible, changes)
    return (event_wire(event, row) for row in found if row is not None)
