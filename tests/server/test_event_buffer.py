"""What the buffer of the event stream keeps in memory."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest
from yurt.sdk.errors import Conflict
from yurt.server.log import event_buffer
from yurt.server.log.event_buffer import (
    BEHIND_BYTES_MAX,
    BEHIND_EVENTS_MAX,
    NEWEST_BYTES_MAX,
    ROW_BYTES,
    Event,
    EventBuffer,
)
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


def filled(buffer: EventBuffer, indexes: range, *, command_bytes: int = 0) -> list[Event]:
    """Events of these indexes, added to the buffer."""
    alloc, _ = changes()
    events = [Event(index, (alloc,), REGISTERED, command_bytes) for index in indexes]
    for event in events:
        buffer.add(event)
    return events


async def test_without_readers_the_newest_events_are_kept_within_a_number_of_bytes() -> None:
    buffer = EventBuffer(size=100)
    events = filled(buffer, range(1, 11), command_bytes=NEWEST_BYTES_MAX // 4)

    assert buffer.oldest_index == 8
    assert await buffered(buffer, 3) == events[7:]
    with pytest.raises(Conflict, match="events up to index 7 are missing"):
        await anext(buffer.subscribe(7))


async def test_the_newest_event_stays_whatever_its_size() -> None:
    buffer = EventBuffer(size=100)
    *_, newest = filled(buffer, range(1, 4), command_bytes=2 * NEWEST_BYTES_MAX)

    assert await buffered(buffer, 1) == [newest]


async def test_a_live_reader_gets_events_beyond_the_bytes_that_are_kept_without_readers() -> None:
    buffer = EventBuffer(size=100)
    reader = buffer.subscribe()
    (first,) = filled(buffer, range(1, 2))
    assert await anext(reader) == first

    later = filled(buffer, range(2, 12), command_bytes=NEWEST_BYTES_MAX // 4)

    assert [await anext(reader) for _ in later] == later
    await reader.aclose()


@pytest.mark.parametrize(("count", "command_bytes"), [(60, BEHIND_BYTES_MAX // 40), (1, BEHIND_BYTES_MAX + 1)])
async def test_the_newest_events_stay_for_a_live_reader_whatever_their_size(count: int, command_bytes: int) -> None:
    buffer = EventBuffer(size=100)
    filled(buffer, range(1, 2))
    reader = buffer.subscribe()
    assert (await anext(reader)).index == 1

    later = filled(buffer, range(2, 2 + count), command_bytes=command_bytes)
    later += filled(buffer, range(2 + count, 4 + count))

    assert [await anext(reader) for _ in later] == later
    waiting = asyncio.ensure_future(anext(reader))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert buffer.oldest_index > 1, "without a reader that needs them they are bounded again"
    filled(buffer, range(4 + count, 5 + count))
    assert (await waiting).index == 4 + count  # type: ignore[attr-defined]
    await reader.aclose()


async def test_a_reader_that_ends_lets_go_what_is_beyond_the_bytes_that_are_kept_without_readers() -> None:
    buffer = EventBuffer(size=100)
    filled(buffer, range(1, 2))
    reader = buffer.subscribe()
    await anext(reader)
    filled(buffer, range(2, 12), command_bytes=NEWEST_BYTES_MAX // 4)
    assert buffer.oldest_index <= 2

    await reader.aclose()

    assert buffer.oldest_index == 9


async def test_a_single_event_beyond_the_newest_ones_stays_for_a_live_reader_whatever_its_size() -> None:
    buffer = EventBuffer(size=1)
    filled(buffer, range(1, 2))
    reader = buffer.subscribe()
    await anext(reader)
    large = filled(buffer, range(2, 3), command_bytes=2 * BEHIND_BYTES_MAX)

    small = filled(buffer, range(3, 4))

    assert [await anext(reader), await anext(reader)] == large + small
    await reader.aclose()


@pytest.mark.parametrize("seed", range(40))
async def test_in_any_order_the_sums_are_exact_and_readers_miss_nothing_unnoticed(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Small bounds, random events, readers of different speed, released rows and gaps."""
    monkeypatch.setattr(event_buffer, "NEWEST_BYTES_MAX", 20 << 10)
    monkeypatch.setattr(event_buffer, "BEHIND_BYTES_MAX", 60 << 10)
    monkeypatch.setattr(event_buffer, "BEHIND_EVENTS_MAX", 30)
    chance, size, index = random.Random(seed), (0, 1, 5, 100)[seed % 4], 0
    buffer, state = EventBuffer(size), Snapshot.empty()
    readers: list[asyncio.Task[None]] = []
    received: list[list[int | str]] = []
    for _ in range(300):
        step = chance.random()
        if step < 0.6:
            index += 1
            rows = changes() * chance.choice([0, 1, 15])
            buffer.add(Event(index, rows, chance.choice([REGISTERED, None]), chance.randrange(3000)))
        elif step < 0.7:
            buffer.forget(state)
        elif step < 0.75:
            received.append([])
            start, turns = chance.choice([0, max(1, index - 3), index + 1]), chance.choice([0, 1, 5])
            readers.append(asyncio.create_task(read(buffer, start, received[-1], turns)))
        elif step < 0.78 and readers:
            readers.pop(chance.randrange(len(readers))).cancel()
        elif step < 0.79:
            buffer.break_off(index)
        else:
            await asyncio.sleep(0)
        check_bounds(buffer, size)
    for reader in readers:
        reader.cancel()
    await asyncio.sleep(0)
    for each in received:
        indexes = [index for index in each if isinstance(index, int)]
        assert not indexes or indexes == list(range(indexes[0], indexes[0] + len(indexes)))


async def read(buffer: EventBuffer, start: int, received: list[int | str], turns: int) -> None:
    """Note the events' indexes, with some turns of the loop after each, and the end of a reader that is cut off."""
    try:
        async for event in buffer.subscribe(start):
            received.append(event.index)
            for _ in range(turns):
                await asyncio.sleep(0)
    except Conflict:
        received.append("cut off")


def check_bounds(buffer: EventBuffer, size: int) -> None:
    """Assert that the sums are those of the events, and that no more is kept than a live reader needs."""
    newest, behind = buffer._newest, buffer._behind
    assert buffer._newest_bytes == sum(each.weight for each in newest)
    assert buffer._behind_bytes == sum(each.weight for each in behind)
    assert len(newest) <= size and len(behind) <= event_buffer.BEHIND_EVENTS_MAX
    assert buffer._behind_bytes <= event_buffer.BEHIND_BYTES_MAX or len(behind) == 1
    kept = [each.index for each in (*behind, *newest)]
    assert kept == list(range(buffer.oldest_index, buffer.oldest_index + len(kept)))
    if not buffer._places:
        assert not behind and (buffer._newest_bytes <= event_buffer.NEWEST_BYTES_MAX or len(newest) == 1)


async def test_rows_that_are_released_make_room_for_more_events() -> None:
    buffer, (alloc, _) = EventBuffer(size=100), changes()
    for index in range(1, 11):
        buffer.add(Event(index, (alloc,) * (NEWEST_BYTES_MAX // ROW_BYTES // 4), REGISTERED))
        buffer.forget(Snapshot.empty())

    assert buffer.oldest_index == 1


async def test_a_reader_gets_all_that_is_applied_before_its_next_turn() -> None:
    buffer = EventBuffer(size=2)
    reader = buffer.subscribe()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(anext(reader))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        events = filled(buffer, range(1, 1000))
    assert [first.result(), *[await anext(reader) for _ in events[1:]]] == events
    await reader.aclose()


async def test_what_no_reader_wants_any_more_goes() -> None:
    buffer = EventBuffer(size=2)
    filled(buffer, range(1, 3))
    fast, slow = buffer.subscribe(), buffer.subscribe()
    await anext(fast)
    await anext(slow)
    filled(buffer, range(3, 10))
    for _ in range(8):
        await anext(fast)
    assert buffer.oldest_index == 2
    await slow.aclose()
    assert buffer.oldest_index == 8
    await fast.aclose()


@pytest.mark.parametrize(("count", "command_bytes"), [(BEHIND_EVENTS_MAX + 1, 0), (17, 1 << 20)])
async def test_a_reader_that_falls_behind_a_bound_is_told_that_events_are_missing(
    count: int, command_bytes: int
) -> None:
    buffer = EventBuffer(size=2)
    filled(buffer, range(1, 4))
    reader = buffer.subscribe()
    assert [(await anext(reader)).index, (await anext(reader)).index] == [2, 3]
    filled(buffer, range(4, 4 + count + 2), command_bytes=command_bytes)
    assert buffer.oldest_index == 4 + count, "a reader that is cut off holds nothing"
    with pytest.raises(Conflict, match=r"the reader fell behind, events up to index \d+ are missing"):
        await anext(reader)


async def test_a_reader_that_asks_for_an_event_that_is_gone_is_refused() -> None:
    buffer = EventBuffer(size=2)
    filled(buffer, range(1, 6))
    with pytest.raises(Conflict, match="events up to index 3 are missing"):
        await anext(buffer.subscribe(from_index=3))


async def test_a_buffer_of_size_0_keeps_only_what_readers_have_not_taken() -> None:
    buffer = EventBuffer(size=0)
    filled(buffer, range(1, 3))
    assert buffer.oldest_index == 3
    reader = buffer.subscribe()
    async with asyncio.TaskGroup() as group:
        first = group.create_task(anext(reader))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        filled(buffer, range(3, 5))
    assert [first.result().index, (await anext(reader)).index] == [3, 4]
    await reader.aclose()
    assert buffer.oldest_index == 5


@pytest.mark.parametrize("enter", [EventBuffer.begin_after, EventBuffer.break_off])
def test_what_led_to_a_loaded_state_is_known_to_be_missing(enter: Callable[[EventBuffer, int], None]) -> None:
    buffer = EventBuffer()
    enter(buffer, 500)
    assert buffer.oldest_index == 501
