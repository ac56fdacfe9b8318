"""What the buffer of the event stream keeps in memory."""

from __future__ import annotations

import pytest
from yurt.sdk.errors import Conflict
from yurt.server.log.event_buffer import Event, EventBuffer
from yurt.state import Changes, Snapshot
from yurt.state.store import Change
from yurt.structs.commands.base import EventType
from yurt.structs.summary import JobSummary
from yurt.testing import factories

REGISTERED = EventType("JobRegistered")


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
    buffer.add(Event(1, (written._replace(before=written.after, after=None),), None))

    assert await buffered(buffer, 1) == [Event(1, (), None)]


async def test_deleted_allocations_and_summaries_go_from_the_buffer_and_other_rows_stay() -> None:
    buffer, (alloc, job) = EventBuffer(), changes()
    summary = Change("job_summaries", job.key, None, JobSummary(job_id="j"))
    buffer.add(Event(1, (alloc, summary, job), REGISTERED))
    buffer.add(Event(2, (job,), REGISTERED))

    buffer.forget(Snapshot.empty())

    assert await buffered(buffer, 2) == [Event(1, (job,), REGISTERED), Event(2, (job,), REGISTERED)]


async def test_what_a_reader_has_not_taken_yet_stays() -> None:
    buffer, (alloc, _) = EventBuffer(), changes()
    events = [Event(index, (alloc,), REGISTERED) for index in (1, 2)]
    for event in events:
        buffer.add(event)
    reader = buffer.subscribe()
    assert await anext(reader) == events[0]

    buffer.forget(Snapshot.empty())

    assert await anext(reader) == events[1]
    await reader.aclose()
    buffer.forget(Snapshot.empty())
    assert await buffered(buffer, 2) == [Event(1, (), REGISTERED), Event(2, (), REGISTERED)]


async def test_a_reader_that_falls_behind_is_told_that_events_are_missing() -> None:
    buffer, (alloc, _) = EventBuffer(size=2), changes()
    events = [Event(index, (alloc,), REGISTERED) for index in range(1, 6)]
    for event in events[:3]:
        buffer.add(event)
    reader = buffer.subscribe(from_index=1)
    assert [await anext(reader), await anext(reader)] == events[1:3]  # it begins with the oldest that is here
    for event in events[3:]:
        buffer.add(event)
    assert [await anext(reader), await anext(reader)] == events[3:]
    for index in range(6, 9):
        buffer.add(Event(index, (alloc,), REGISTERED))
    with pytest.raises(Conflict, match="the reader fell behind, events up to index 6 are missing"):
        await anext(reader)
