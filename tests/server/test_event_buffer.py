"""What the buffer of the event stream keeps in memory."""

from __future__ import annotations

from yurt.http.resources.events import TYPE_OF_COMMAND
from yurt.server.log.event_buffer import UNTOLD, Event, EventBuffer
from yurt.state import Changes, Snapshot
from yurt.state.store import Change
from yurt.testing import factories


async def buffered(buffer: EventBuffer, count: int) -> list[Event]:
    """The first events."""
    found: list[Event] = []
    async for event in buffer.subscribe():
        found.append(event)
        if len(found) == count:
            break
    return found


def changes() -> Changes:
    """A job and an allocation, written."""
    alloc, job = factories.alloc(), factories.job()
    return (Change("allocs", alloc.id, None, alloc), Change("jobs", job.key, None, job))


async def test_rows_that_garbage_collection_deletes_are_not_buffered() -> None:
    buffer, (written, _) = EventBuffer(), changes()
    buffer.add(Event(1, (written._replace(before=written.after, after=None),), "DeleteEvaluations"))

    assert await buffered(buffer, 1) == [Event(1, (), "DeleteEvaluations")]


async def test_deleted_allocations_go_from_the_buffer_and_other_rows_stay() -> None:
    buffer, (alloc, job) = EventBuffer(), changes()
    buffer.add(Event(1, (alloc, job), "RegisterJob"))
    buffer.add(Event(2, (job,), "RegisterJob"))

    buffer.forget(Snapshot.empty())

    assert await buffered(buffer, 2) == [Event(1, (job,), "RegisterJob"), Event(2, (job,), "RegisterJob")]


async def test_what_a_reader_has_not_taken_yet_stays() -> None:
    buffer, (alloc, _) = EventBuffer(), changes()
    events = [Event(index, (alloc,), "RegisterJob") for index in (1, 2)]
    for event in events:
        buffer.add(event)
    reader = buffer.subscribe()
    assert await anext(reader) == events[0]

    buffer.forget(Snapshot.empty())

    assert await anext(reader) == events[1]
    await reader.aclose()
    buffer.forget(Snapshot.empty())
    assert await buffered(buffer, 2) == [Event(1, (), "RegisterJob"), Event(2, (), "RegisterJob")]


def test_only_what_readers_are_never_told_is_left_out() -> None:
    assert not UNTOLD & TYPE_OF_COMMAND.keys()
