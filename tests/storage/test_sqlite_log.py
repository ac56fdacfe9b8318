"""The log on disk: restarts, crashes, corruption, other processes and failing disks."""

from __future__ import annotations

import asyncio
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from yurt.sdk.errors import Conflict
from yurt.sdk.value import UnixNano
from yurt.storage import log_rows, snapshot_files
from yurt.storage.sqlite import SqliteLog
from yurt.structs.commands import AnyCommand, RecordPeriodicLaunch


def command(number: int) -> AnyCommand:
    return RecordPeriodicLaunch(namespace="default", job_id=f"job-{number}", launched_at=UnixNano(number))


async def filled(path: Path, count: int) -> None:
    log = SqliteLog(path)
    await log.open()
    for number in range(1, count + 1):
        await log.append(number, [command(number)])
    await log.close()


async def numbers(path: Path) -> list[int]:
    """What a fresh process would read, as the numbers in the commands."""
    log = SqliteLog(path)
    await log.open()
    try:
        return [one.launched_at async for entry in log.entries(0) for one in entry.commands]
    finally:
        await log.close()


@pytest.mark.parametrize("count", [1, 31, 32, 33, 64])
async def test_a_reopened_log_holds_all_and_goes_on(tmp_path: Path, count: int) -> None:
    path = tmp_path / "log.db"
    await filled(path, count)
    assert await numbers(path) == list(range(1, count + 1))
    log = SqliteLog(path)
    state = await log.open()
    assert (state.first_index, state.last_index, state.snapshot_index) == (1, count, 0)
    await log.append(count + 1, [command(count + 1)])
    await log.close()
    assert await numbers(path) == list(range(1, count + 2))


async def test_a_row_holds_the_same_bytes_whether_the_caller_encoded_the_commands_or_not(tmp_path: Path) -> None:
    commands = [command(1), command(2)]
    encoded = [msgspec.Raw(msgspec.msgpack.encode(each)) for each in commands]
    rows = []
    for path, given in ((tmp_path / "a" / "log.db", ()), (tmp_path / "b" / "log.db", encoded)):
        log = SqliteLog(path)
        await log.open()
        await log.append(1, commands, given)
        await log.close()
        with closing(log_rows.read_only(path)) as connection:
            rows.append(connection.execute("SELECT * FROM entries").fetchall())
    assert rows[0] == rows[1]


async def test_a_second_opener_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    first, second = SqliteLog(tmp_path / "log.db"), SqliteLog(tmp_path / "log.db")
    await first.open()
    with pytest.raises(Conflict, match="in use by another process"):
        await second.open()
    await first.close()
    await second.open()
    await second.close()


async def test_a_folder_of_another_format_is_refused(tmp_path: Path) -> None:
    await filled(tmp_path / "log.db", 1)
    (tmp_path / "format").write_text("yurt data 3\n")
    with pytest.raises(Conflict, match='has the format "yurt data 3", this version reads "yurt data 2"'):
        await SqliteLog(tmp_path / "log.db").open()


async def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    await filled(tmp_path / "log.db", 5)
    (tmp_path / "log.db").write_bytes(b"not a database, but long enough to be read as one" * 100)
    with pytest.raises(Conflict, match="can not be read"):
        await SqliteLog(tmp_path / "log.db").open()


async def test_a_changed_byte_in_an_entry_is_told_with_its_index(tmp_path: Path) -> None:
    await filled(tmp_path / "log.db", 5)
    with sqlite3.connect(tmp_path / "log.db") as connection:
        connection.execute("UPDATE entries SET commands = CAST(commands || x'00' AS BLOB) WHERE first_index = 3")
    connection.close()
    with pytest.raises(Conflict, match="broken at index 3"):
        await numbers(tmp_path / "log.db")


async def test_a_missing_entry_is_told_with_its_index(tmp_path: Path) -> None:
    await filled(tmp_path / "log.db", 5)
    with sqlite3.connect(tmp_path / "log.db") as connection:
        connection.execute("DELETE FROM entries WHERE first_index = 3")
    connection.close()
    with pytest.raises(Conflict, match="broken at index 3: it is missing"):
        await numbers(tmp_path / "log.db")


async def test_a_trimmed_log_without_its_snapshot_refuses_to_start_empty(tmp_path: Path) -> None:
    await filled(tmp_path / "log.db", 5)
    with sqlite3.connect(tmp_path / "log.db") as connection:
        connection.execute("DELETE FROM entries WHERE first_index < 3")
    connection.close()
    with pytest.raises(Conflict, match="begins at index 3"):
        await SqliteLog(tmp_path / "log.db").open()


async def crashed(tmp_path: Path, acknowledged: int) -> Path:
    """The files of a log of 30 entries whose process was killed, of which `acknowledged` were answered."""
    log = SqliteLog(tmp_path / "live" / "log.db")
    await log.open()
    for number in range(1, 31):
        await log.append(number, [command(number)])
        if number == acknowledged:
            shutil.copy(tmp_path / "live" / "commit-index", tmp_path / "commit-index")
    shutil.copytree(tmp_path / "live", tmp_path / "crashed")
    await log.close()
    shutil.copy(tmp_path / "commit-index", tmp_path / "crashed")
    return tmp_path / "crashed" / "log.db"


def cut_off(journal: Path, count: int) -> None:
    with journal.open("r+b") as file:
        file.truncate(journal.stat().st_size - count)


@pytest.mark.parametrize("cut", [1, 100, 3_000, 4_096, 5_000])
async def test_a_torn_journal_loses_only_what_nobody_was_answered(tmp_path: Path, cut: int) -> None:
    path = await crashed(tmp_path, acknowledged=28)
    cut_off(path.with_name("log.db-wal"), cut)
    found = await numbers(path)
    assert found == list(range(1, len(found) + 1))
    assert len(found) in (28, 29)


@pytest.mark.parametrize("cut", [1, 100, 3_000, 4_096, 5_000, 100_000])
async def test_a_journal_that_lost_what_was_answered_is_refused_with_the_range(tmp_path: Path, cut: int) -> None:
    path = await crashed(tmp_path, acknowledged=30)
    cut_off(path.with_name("log.db-wal"), cut)
    with pytest.raises(Conflict, match=r"lost acknowledged entries: commands? \d+ .*operator raft recover"):
        await numbers(path)


@pytest.mark.parametrize("names", [("log.db",), ("log.db-wal",), ("log.db", "log.db-wal"), ("commit-index",)])
async def test_a_file_that_is_gone_is_refused_and_nothing_is_changed(tmp_path: Path, names: tuple[str, ...]) -> None:
    path = await crashed(tmp_path, acknowledged=30)
    for name in names:
        path.with_name(name).unlink()
    before = {
        each.name: each.read_bytes()
        for each in path.parent.glob("log.db*")
        if "shm" not in each.name and each.stat().st_size
    }
    with pytest.raises(Conflict, match="operator raft recover"):
        await numbers(path)
    left = {
        each.name: each.read_bytes()
        for each in path.parent.glob("log.db*")
        if "shm" not in each.name and each.stat().st_size
    }
    assert left == before


async def test_an_older_copy_of_the_log_is_refused(tmp_path: Path) -> None:
    await filled(tmp_path / "one" / "log.db", 5)
    await filled(tmp_path / "two" / "log.db", 4)
    log = SqliteLog(tmp_path / "two" / "log.db")
    await log.open()
    await log.append(5, [command(99)])
    await log.close()
    shutil.copy(tmp_path / "two" / "log.db", tmp_path / "one" / "log.db")
    with pytest.raises(Conflict, match="is not the one that was acknowledged: its entry at index 5"):
        await numbers(tmp_path / "one" / "log.db")


async def test_what_was_durable_and_not_answered_is_kept(tmp_path: Path) -> None:
    path = await crashed(tmp_path, acknowledged=28)
    assert await numbers(path) == list(range(1, 31))


@pytest.mark.parametrize("slot", [0, 1])
async def test_one_damaged_slot_of_the_commit_index_does_no_harm(tmp_path: Path, slot: int) -> None:
    await filled(tmp_path / "log.db", 5)
    data = bytearray((tmp_path / "commit-index").read_bytes())
    data[slot * 4096 + 20] ^= 1
    (tmp_path / "commit-index").write_bytes(data)
    assert await numbers(tmp_path / "log.db") == [1, 2, 3, 4, 5]


async def test_a_data_directory_of_the_format_before_is_adopted(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    await filled(path, 3)
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE entries DROP COLUMN chain")
    connection.close()
    (tmp_path / "commit-index").unlink()
    (tmp_path / "format").write_text("yurt data 1\n")
    log = SqliteLog(path)
    assert (await log.open()).last_index == 3
    await log.append(4, [command(4)])
    await log.close()
    assert await numbers(path) == [1, 2, 3, 4]
    assert (tmp_path / "format").read_text() == "yurt data 2\n"
    (tmp_path / "log.db").unlink()
    with pytest.raises(Conflict, match="commands 1 to 4 are missing"):
        await numbers(path)


async def test_an_entry_that_was_exchanged_is_found_by_the_chain(tmp_path: Path) -> None:
    await filled(tmp_path / "log.db", 5)
    await filled(tmp_path / "other" / "log.db", 5)
    with sqlite3.connect(tmp_path / "log.db") as connection:
        data = msgspec.msgpack.encode([command(42)])
        connection.execute(
            "UPDATE entries SET commands = ?, digest = ? WHERE first_index = 3", (data, log_rows.row_digest(3, data))
        )
    connection.close()
    with pytest.raises(Conflict, match="broken at index 3: it does not follow on the entry before it"):
        await numbers(tmp_path / "log.db")


async def test_a_scrub_finds_damage_that_no_start_would_read(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    await log.open()
    for number in range(1, 101):
        await log.append(number, [command(number)])
    await log.save_snapshot(100, [b"state"])
    assert await log.scrub() == ""
    with sqlite3.connect(tmp_path / "log.db") as connection:
        connection.execute("UPDATE entries SET commands = CAST(commands || x'00' AS BLOB) WHERE first_index = 70")
    connection.close()
    assert "damaged at index 70" in await log.scrub()
    await log.close()


async def test_trimming_leaves_what_the_snapshot_before_the_newest_needs(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    await log.open()
    for start in range(1, 30_001, 5_000):
        await log.append(start, [command(start)] * 5_000)
    await log.save_snapshot(20_000, [b"state"])
    await log.trim(30_000)
    assert (await anext(log.entries(0))).first_index == 1
    await log.save_snapshot(30_000, [b"state"])
    await log.trim(30_000)
    with pytest.raises(Conflict, match="broken at index 1: it is missing"):
        await anext(log.entries(0))
    assert (await anext(log.entries(19_000))).first_index == 15_001
    newest = snapshot_files.newest_whole(tmp_path / "snapshots")
    assert newest is not None
    await log.close()
    newest.write_bytes(newest.read_bytes()[:-1])
    assert (await log.open()).snapshot_index == 20_000
    assert [entry.first_index async for entry in log.entries(20_000)] == [20_001, 25_001]
    await log.close()


async def test_an_older_snapshot_serves_when_the_newest_is_broken(tmp_path: Path) -> None:
    await filled(tmp_path / "log.db", 3)
    snapshot_files.save(tmp_path / "snapshots", 2, [b"two"])
    snapshot_files.save(tmp_path / "snapshots", 3, [b"three"])
    newest = snapshot_files.newest_whole(tmp_path / "snapshots")
    assert newest is not None
    data = bytearray(newest.read_bytes())
    data[20] ^= 1
    newest.write_bytes(data)
    log = SqliteLog(tmp_path / "log.db")
    assert (await log.open()).snapshot_index == 2
    await log.close()


WRITER = """
import asyncio, sys
from pathlib import Path
from yurt.sdk.value import UnixNano
from yurt.storage.sqlite import SqliteLog
from yurt.structs.commands import RecordPeriodicLaunch

async def main():
    log = SqliteLog(Path(sys.argv[1]))
    last = (await log.open()).last_index
    async for entry in log.entries(0):
        pass
    waiting = asyncio.Semaphore(8)
    async def write(number):
        command = RecordPeriodicLaunch(namespace="default", job_id="j" * 300, launched_at=UnixNano(number))
        await log.append(number, [command])
        print(number, flush=True)
        waiting.release()
    async with asyncio.TaskGroup() as group:
        for number in range(last + 1, last + 100_000):
            await waiting.acquire()
            group.create_task(write(number))

asyncio.run(main())
"""


def test_killing_the_writer_at_any_moment_loses_nothing_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    chance = random.Random(3)
    acknowledged = 0
    for _ in range(6):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for _ in range(chance.randrange(1, 400)):
            acknowledged = max(acknowledged, int(writer.stdout.readline()))
        writer.send_signal(signal.SIGKILL)
        rest = [int(line) for line in writer.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
        writer.wait(timeout=10)
        writer.stdout.close()
        acknowledged = max([acknowledged, *rest])
        found = asyncio.run(numbers(path))
        assert found == list(range(1, len(found) + 1))
        assert len(found) >= acknowledged
    assert acknowledged > 100


FULL_DISK = """
import asyncio, resource, sys
from pathlib import Path
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import UnixNano
from yurt.storage.sqlite import SqliteLog
from yurt.structs.commands import RecordPeriodicLaunch

def command(number):
    return RecordPeriodicLaunch(namespace="default", job_id="j" * 3000, launched_at=UnixNano(number))

async def main():
    log = SqliteLog(Path(sys.argv[1]))
    await log.open()
    campaign = log.campaign()
    assert (await anext(campaign)).is_leader
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    number = 1
    try:
        while number < 1000:
            await log.append(number, [command(number)])
            number += 1
    except Unavailable as error:
        print(number - 1, error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    try:
        await log.append(number, [command(number)])
        print("acknowledged")
    except Unavailable as error:
        print("refused", error)
    print("lost" if not (await anext(campaign)).is_leader else "leads")
    await log.close()

asyncio.run(main())
"""


async def test_after_a_failed_write_nothing_is_acknowledged_again(tmp_path: Path) -> None:
    run = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", FULL_DISK, str(tmp_path / "log.db")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    failed, refused, campaign = run.stdout.splitlines()
    acknowledged = int(failed.split()[0])
    assert 0 < acknowledged < 999
    assert "takes no more changes" in failed
    assert refused.startswith("refused")
    assert campaign == "lost"
    assert (await numbers(tmp_path / "log.db"))[:acknowledged] == list(range(1, acknowledged + 1))
