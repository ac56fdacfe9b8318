"""What every log engine promises."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Conflict, Unavailable
from yurt.sdk.value import UnixNano
from yurt.storage.etcd.log import EtcdLog
from yurt.storage.log import KEPT_ENTRIES, CommandLog, Entry, LogState
from yurt.storage.memory import MemoryLog
from yurt.storage.sqlite import SqliteLog
from yurt.structs.commands import AnyCommand, RecordPeriodicLaunch
from yurt.testing.services.etcd import LocalEtcd, local_etcd, missing


def command(number: int) -> AnyCommand:
    return RecordPeriodicLaunch(namespace="default", job_id=f"job-{number}", launched_at=UnixNano(number))


async def read(log: CommandLog, after: int = 0) -> list[Entry]:
    return [entry async for entry in log.entries(after)]


@pytest.fixture(scope="module")
def etcd() -> Iterator[LocalEtcd]:
    if missing():
        pytest.skip(missing())
    with local_etcd() as cluster:
        yield cluster


def make(engine: str, request: pytest.FixtureRequest, folder: Path) -> CommandLog:
    """A log that is empty; with etcd each has a region of its own."""
    if engine == "memory":
        return MemoryLog()
    if engine == "sqlite":
        return SqliteLog(folder / "server" / "log.db")
    (member,) = request.getfixturevalue("etcd").members
    return EtcdLog(
        endpoints=(member.endpoint,),
        folder=folder,
        name=member.name,
        region=f"region-{uuid.uuid4()}",
        env=RealEnv(),
        own_endpoint=member.endpoint,
    )


@pytest.fixture(params=["memory", "sqlite", pytest.param("etcd", marks=pytest.mark.keeps_processes)])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CommandLog]:
    made = make(request.param, request, tmp_path)
    assert await made.open() == LogState()
    async for level in made.campaign():
        if level.is_leader:
            break
    yield made
    await made.close()


async def test_entries_come_back_in_order_with_their_indexes(log: CommandLog) -> None:
    await log.append(1, [command(1)])
    await log.append(2, [command(2), command(3)])
    assert await read(log) == [
        Entry(first_index=1, commands=(command(1),)),
        Entry(first_index=2, commands=(command(2), command(3))),
    ]


async def test_commands_that_the_caller_encoded_are_stored_as_the_engine_would_encode_them(log: CommandLog) -> None:
    commands = [command(1), command(2)]
    await log.append(1, commands, [msgspec.Raw(msgspec.msgpack.encode(each)) for each in commands])
    assert await read(log) == [Entry(first_index=1, commands=tuple(commands))]


@pytest.mark.parametrize(("after", "first"), [(0, 1), (1, 2), (2, 2), (3, 4), (4, None), (9, None)])
async def test_reading_begins_with_the_entry_that_holds_the_next_index(
    log: CommandLog, after: int, first: int | None
) -> None:
    await log.append(1, [command(1)])
    await log.append(2, [command(2), command(3)])
    await log.append(4, [command(4)])
    found = await read(log, after)
    assert (found[0].first_index if found else None) == first


@pytest.mark.parametrize("index", [0, 1, 3])
async def test_an_append_at_another_than_the_next_index_is_refused(log: CommandLog, index: int) -> None:
    await log.append(1, [command(1)])
    with pytest.raises(Conflict, match="next index of the command log is 2"):
        await log.append(index, [command(9)])
    await log.append(2, [command(2)])
    assert len(await read(log)) == 2


async def test_appends_in_flight_together_keep_their_order(log: CommandLog) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(1, 101):
            group.create_task(log.append(number, [command(number)]))
    assert [entry.first_index for entry in await read(log)] == list(range(1, 101))


async def test_a_closed_log_takes_nothing(log: CommandLog) -> None:
    await log.close()
    with pytest.raises(Conflict, match="closed"):
        await log.append(1, [command(1)])


async def test_leadership_is_gained_at_once_and_the_stream_ends_with_the_log(log: CommandLog) -> None:
    stream = aiter(log.campaign())
    assert (await anext(stream)).is_leader
    await log.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(stream), 60)


async def test_the_newest_snapshot_comes_back(log: CommandLog) -> None:
    assert await log.load_snapshot() is None
    await log.save_snapshot(5, [b"one", b"two"])
    await log.save_snapshot(9, iter([b"three", b"", b"x" * 100_000]))
    found = await log.load_snapshot()
    assert found is not None
    assert found[0] == 9
    assert b"".join(found[1]) == b"three" + b"x" * 100_000


async def test_trimming_keeps_a_margin_below_the_index(log: CommandLog) -> None:
    for number in range(1, 8):
        await log.append(1 + (number - 1) * 2_000, [command(number)] * 2_000)
    await log.save_snapshot(13_999, [b"state"])
    await log.save_snapshot(14_000, [b"state"])
    await log.trim(13_000)
    found = await read(log, after=12_000)
    assert found[0].first_index == 12_001
    with pytest.raises(Conflict):
        await read(log)
    first = (await read(log, after=2_000))[0]
    assert first.first_index <= 13_000 - KEPT_ENTRIES < 14_000


async def test_trimming_keeps_as_many_commands_as_it_is_told_to(log: CommandLog) -> None:
    for number in range(1, 8):
        await log.append(1 + (number - 1) * 2_000, [command(number)] * 2_000)
    await log.save_snapshot(13_999, [b"state"])
    await log.save_snapshot(14_000, [b"state"])

    await log.trim(14_000, keep=3_000)

    assert (await read(log, after=10_000))[0].first_index == 10_001
    with pytest.raises(Conflict):
        await read(log, after=8_000)
    await log.close()


async def test_following_begins_with_what_there_is_and_ends_with_the_log(log: CommandLog) -> None:
    await log.append(1, [command(1)])
    await log.append(2, [command(2), command(3)])
    followed = aiter(log.follow(1))
    assert (await anext(followed)).first_index == 2
    waiting = asyncio.ensure_future(anext(followed))
    await asyncio.sleep(0)
    await log.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 60)


async def test_who_leads_is_confirmed_until_the_log_is_closed(log: CommandLog) -> None:
    await asyncio.gather(*(log.confirm() for _ in range(10)))
    await log.resign()
    await log.confirm()
    await log.close()
    with pytest.raises(Unavailable):
        await log.confirm()
