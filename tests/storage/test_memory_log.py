"""What a log in memory keeps."""

from __future__ import annotations

import pytest
from yurt.sdk.value import UnixNano
from yurt.storage.log import Entry, LogTrimmed
from yurt.storage.memory import KEPT_BYTES, MemoryLog
from yurt.structs.commands import AnyCommand, RecordPeriodicLaunch


def command(number: int, *, size: int = 0) -> AnyCommand:
    return RecordPeriodicLaunch(namespace="default", job_id=f"job-{number}-" + "x" * size, launched_at=UnixNano(number))


async def read(log: MemoryLog, after: int = 0) -> list[Entry]:
    return [entry async for entry in log.entries(after)]


async def appended(log: MemoryLog, count: int, *, size: int) -> list[Entry]:
    entries = [Entry(first_index=number, commands=(command(number, size=size),)) for number in range(1, count + 1)]
    for entry in entries:
        await log.append(entry.first_index, entry.commands)
    return entries


async def test_the_newest_entries_are_kept_within_a_number_of_bytes() -> None:
    log = MemoryLog()
    entries = await appended(log, 12, size=KEPT_BYTES // 4)

    with pytest.raises(LogTrimmed, match="begins at index 10"):
        await read(log)
    assert await read(log, after=9) == entries[9:]
    assert (await log.open()).first_index == 10


async def test_the_newest_entry_stays_whatever_its_size() -> None:
    log = MemoryLog()
    *_, newest = await appended(log, 3, size=2 * KEPT_BYTES)

    assert await read(log, after=2) == [newest]


async def test_a_log_without_a_bound_keeps_all_until_they_are_trimmed() -> None:
    log = MemoryLog(keep=None)
    entries = await appended(log, 12, size=KEPT_BYTES // 4)
    assert await read(log) == entries

    await log.trim(12, keep=0)

    assert await read(log, after=11) == entries[11:]
