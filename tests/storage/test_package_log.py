"""The command log on an engine of a package: what reaches it, and what becomes of its failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import pytest
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.sdk.log_engines import LogBatch, LogContent
from yurt.sdk.value import UnixNano
from yurt.storage.log import Entry, Leadership, LogBroken, LogState
from yurt.storage.package_log import PackageLog
from yurt.structs.commands import AnyCommand, RecordPeriodicLaunch, encode_command


class Engine:
    """Keeps batches in memory."""

    name = "engine"

    def __init__(self, *batches: LogBatch, content: LogContent | None = None) -> None:
        self.batches = list(batches)
        self.content = content
        self.failure: Exception | None = None
        self.trimmed = 0
        self.closed = 0

    async def open(self, folder: str) -> LogContent:
        last = self.batches[-1].first_index + len(self.batches[-1].commands) - 1 if self.batches else 0
        first = self.batches[0].first_index if self.batches else 0
        return self.content or LogContent(last_index=last, first_index=first)

    async def append(self, batch: LogBatch) -> None:
        if self.failure is not None:
            raise self.failure
        self.batches.append(batch)

    async def read(self, after: int) -> AsyncIterator[LogBatch]:
        for batch in self.batches:
            if batch.first_index + len(batch.commands) - 1 > after:
                yield batch

    async def save_snapshot(self, index: int, chunks: Iterable[bytes]) -> None:
        self.content = LogContent(last_index=index, snapshot_index=index)

    async def load_snapshot(self, up_to: int | None) -> tuple[int, Iterable[bytes]] | None:
        return None

    async def trim(self, below: int) -> None:
        self.trimmed = below

    async def scrub(self) -> str:
        if self.failure is not None:
            raise self.failure
        return ""

    async def close(self) -> None:
        self.closed += 1


def command(number: int) -> AnyCommand:
    return RecordPeriodicLaunch(namespace="default", job_id=f"job-{number}", launched_at=UnixNano(number))


async def opened(engine: Engine, folder: Path) -> PackageLog:
    log = PackageLog(engine, folder / "engines" / engine.name, env=RealEnv())
    await log.open()
    return log


async def test_commands_reach_the_engine_as_bytes_and_come_back(tmp_path: Path) -> None:
    engine = Engine()
    log = await opened(engine, tmp_path)
    assert (tmp_path / "engines" / "engine").is_dir()
    await log.append(1, [command(1), command(2)])
    await log.append(3, [])
    await log.append(3, [command(3)])
    assert engine.batches[1] == LogBatch(3, [encode_command(command(3))])
    assert [entry async for entry in log.entries(2)] == [Entry(first_index=3, commands=(command(3),))]
    with pytest.raises(Conflict, match="the next index of the command log is 4, not 6"):
        await log.append(6, [command(6)])


async def test_one_server_leads_until_the_engine_fails(tmp_path: Path) -> None:
    engine = Engine()
    log = await opened(engine, tmp_path)
    campaign = log.campaign()
    assert await anext(campaign) == Leadership(is_leader=True) and not log.has_other_servers
    await log.confirm()
    with pytest.raises(Invalid):
        await log.resign(to="other")

    engine.failure = OSError("no space left")
    with pytest.raises(LogBroken, match='the log engine "engine" failed: no space left'):
        await log.append(1, [command(1)])

    assert await anext(campaign) == Leadership(is_leader=False)
    with pytest.raises(Unavailable):
        await log.confirm()
    with pytest.raises(Conflict):
        await log.append(1, [command(1)])
    assert await log.close() is None and engine.closed == 1


@pytest.mark.parametrize(
    "batches",
    [
        [LogBatch(1, [encode_command(command(1))]), LogBatch(3, [encode_command(command(3))])],
        [LogBatch(1, [b"nonsense"])],
        [LogBatch(2, [encode_command(command(2))])],
    ],
)
async def test_a_log_with_a_gap_or_with_nonsense_is_refused(tmp_path: Path, batches: list[LogBatch]) -> None:
    log = await opened(Engine(*batches), tmp_path)
    with pytest.raises(Conflict):
        [entry async for entry in log.entries(0)]


async def test_a_log_that_ends_too_early_is_refused(tmp_path: Path) -> None:
    content = LogContent(last_index=5, first_index=1)
    log = await opened(Engine(LogBatch(1, [encode_command(command(1))]), content=content), tmp_path)
    with pytest.raises(Conflict, match="commands 2 to 5 are missing"):
        [entry async for entry in log.entries(0)]


async def test_a_log_of_which_nothing_comes_back_is_refused(tmp_path: Path) -> None:
    log = await opened(Engine(content=LogContent(last_index=5, first_index=1)), tmp_path)
    with pytest.raises(Conflict, match="commands 3 to 5 are missing"):
        [entry async for entry in log.entries(2)]
    assert [entry async for entry in log.entries(5)] == []


async def test_a_batch_is_read_as_a_whole_from_within(tmp_path: Path) -> None:
    batches = [LogBatch(1, [encode_command(command(1)), encode_command(command(2))])]
    log = await opened(Engine(*batches), tmp_path)
    assert [entry.first_index async for entry in log.entries(1)] == [1]


async def test_after_an_append_of_unknown_outcome_nothing_more_is_taken(tmp_path: Path) -> None:
    class Slow(Engine):
        async def append(self, batch: LogBatch) -> None:
            self.batches.append(batch)
            await asyncio.Event().wait()

    engine = Slow()
    log = await opened(engine, tmp_path)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await log.append(1, [command(1)])
    with pytest.raises(Conflict, match="closed"):
        await log.append(1, [command(2)])
    with pytest.raises(Unavailable):
        await log.confirm()


async def test_impossible_indexes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(Conflict, match="indexes that cannot be"):
        await opened(Engine(content=LogContent(last_index=1, snapshot_index=2)), tmp_path)


async def test_trimming_keeps_what_lagging_readers_need_and_scrubbing_reports(tmp_path: Path) -> None:
    engine = Engine(content=LogContent(last_index=9, snapshot_index=9))
    log = PackageLog(engine, tmp_path / "engine", env=RealEnv())
    assert await log.open() == LogState(last_index=9, snapshot_index=9)
    await log.trim(9, keep=4)
    assert engine.trimmed == 5
    assert await log.scrub() == ""
    engine.failure = Conflict("line 3 is damaged")
    assert await log.scrub() == "line 3 is damaged"
