"""The log on one etcd member: what it stores, what it refuses to believe, how it is trimmed and read across that."""

from __future__ import annotations

import asyncio
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.storage.etcd import appending, candidacy
from yurt.storage.etcd.client import Compacted, EtcdClient, HistoryLost
from yurt.storage.etcd.confirmation import Confirmation
from yurt.storage.etcd.interruptible_waits import Interrupt
from yurt.storage.etcd.key_layout import KeyLayout, LogMark, StoredEntry, digest_of, encode_entry, encode_head
from yurt.storage.etcd.leading import Candidate, Leading
from yurt.storage.etcd.log import EtcdLog
from yurt.storage.etcd.messages import Message
from yurt.storage.etcd.reading import EntryReader
from yurt.storage.log import Entry, Leadership, LogTrimmed
from yurt.testing.agent import wait_for
from yurt.testing.log_server import LogServer, command, running, wait_leader
from yurt.testing.services.etcd import LocalEtcd, local_etcd, missing

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "there is etcd"),
    pytest.mark.keeps_processes,
]


@pytest.fixture(scope="module")
def etcd() -> Iterator[LocalEtcd]:
    with local_etcd() as cluster:
        yield cluster


@pytest.fixture
def region() -> str:
    return f"region-{uuid.uuid4()}"


@pytest.fixture
async def client(etcd: LocalEtcd) -> AsyncIterator[EtcdClient]:
    made = EtcdClient(etcd.endpoints)
    yield made
    await made.close()


def make_log(etcd: LocalEtcd, region: str, folder: Path, *, name: str = "", standing: bool = False) -> EtcdLog:
    (member,) = etcd.members
    return EtcdLog(
        endpoints=etcd.endpoints,
        folder=folder / (name or "server"),
        name=name or member.name,
        region=region,
        env=RealEnv(),
        own_endpoint="" if standing else member.endpoint,
    )


@pytest.fixture
async def log(etcd: LocalEtcd, region: str, tmp_path: Path) -> AsyncIterator[EtcdLog]:
    """An open log that leads."""
    made = make_log(etcd, region, tmp_path)
    await made.open()
    await wait_level(made, is_leader=True)
    yield made
    await made.close()


async def wait_level(log: EtcdLog, *, is_leader: bool) -> Leadership:
    async with asyncio.timeout(60):
        async for level in log.campaign():
            if level.is_leader is is_leader:
                return level
    raise AssertionError("the campaign has ended")


async def read(log: EtcdLog, after: int = 0) -> list[Entry]:
    return [entry async for entry in log.entries(after)]


async def test_a_reopened_log_holds_all_and_goes_on(etcd: LocalEtcd, region: str, tmp_path: Path, log: EtcdLog) -> None:
    for number in range(1, 41):
        await log.append(number, [command(number)])
    await log.close()

    state = await log.open()
    assert (state.first_index, state.last_index, state.snapshot_index) == (1, 40, 0)
    assert len(await read(log)) == 40
    await wait_level(log, is_leader=True)
    await log.append(41, [command(41)])
    assert (await read(log, 40))[0].commands == (command(41),)


async def test_a_second_opener_of_the_folder_is_refused(
    etcd: LocalEtcd, region: str, tmp_path: Path, log: EtcdLog
) -> None:
    with pytest.raises(Conflict, match="in use by another process"):
        await make_log(etcd, region, tmp_path).open()


async def test_a_folder_of_another_cluster_is_refused(etcd: LocalEtcd, tmp_path: Path, log: EtcdLog) -> None:
    await log.close()
    with pytest.raises(Conflict, match="belongs to another cluster"):
        await make_log(etcd, f"region-{uuid.uuid4()}", tmp_path).open()


async def test_the_folder_of_a_single_server_is_refused(etcd: LocalEtcd, region: str, tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "server" / "log.db").write_bytes(b"")
    with pytest.raises(Conflict, match="holds the log of a single server"):
        await make_log(etcd, region, tmp_path).open()


async def test_another_layout_of_the_keys_is_refused(
    etcd: LocalEtcd, region: str, tmp_path: Path, client: EtcdClient
) -> None:
    await client.put(KeyLayout(region).format, b'{"layout": "yurt log 2", "id": "x"}')
    with pytest.raises(Conflict, match='layout "yurt log 2", this version reads "yurt log 1"'):
        await make_log(etcd, region, tmp_path).open()


async def test_a_snapshot_ahead_of_the_log_is_told_as_lost_data(
    etcd: LocalEtcd, region: str, tmp_path: Path, log: EtcdLog
) -> None:
    await log.append(1, [command(1)])
    await log.save_snapshot(5, [b"state"])
    await log.close()
    with pytest.raises(Conflict, match="at index 5, the log in etcd ends at 1: etcd has lost data"):
        await log.open()


async def test_an_etcd_that_lost_what_this_server_knew_is_refused(
    log: EtcdLog, region: str, client: EtcdClient, tmp_path: Path
) -> None:
    for number in range(1, 6):
        await log.append(number, [command(number)])
    await log.close()
    await client.put(KeyLayout(region).head, encode_head(await mark_of(client, region, 3)))
    with pytest.raises(Conflict, match=r"recorded commands up to 5, .* ends at 3: commands 4 to 5 are lost"):
        await log.open()


async def test_an_etcd_with_another_history_than_this_server_knew_is_refused(
    log: EtcdLog, region: str, client: EtcdClient
) -> None:
    for number in range(1, 6):
        await log.append(number, [command(number)])
    await log.close()
    value, _ = encode_entry(5, [command(50)], (await mark_of(client, region, 4)).digest)
    await client.put(KeyLayout(region).entry(5), value)
    with pytest.raises(Conflict, match="differs from the record of this server at index 5"):
        await log.open()


@pytest.mark.parametrize("name", ["cluster", "history"])
async def test_a_damaged_mark_of_the_folder_is_refused(log: EtcdLog, tmp_path: Path, name: str) -> None:
    await log.append(1, [command(1)])
    await log.save_snapshot(1, [b"state"])
    await log.close()
    path = tmp_path / "server" / name
    data = bytearray(path.read_bytes())
    data[4] ^= 1
    path.write_bytes(data)
    with pytest.raises(Conflict, match=f"{name} is damaged"):
        await log.open()


async def test_a_damaged_witness_is_made_anew(log: EtcdLog, tmp_path: Path) -> None:
    await log.append(1, [command(1)])
    await log.close()
    (tmp_path / "server" / "commit-index").write_bytes(b"x" * 8192)
    assert (await log.open()).last_index == 1


@pytest.mark.parametrize("region", ["a/b", "", "a b"])
def test_a_region_that_is_no_part_of_a_key_is_refused(etcd: LocalEtcd, region: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="region"):
        make_log(etcd, region, tmp_path)


async def test_only_the_leader_appends(etcd: LocalEtcd, region: str, tmp_path: Path, log: EtcdLog) -> None:
    other = make_log(etcd, region, tmp_path, name="srv2.global", standing=True)
    await other.open()
    try:
        with pytest.raises(Conflict, match="does not lead, nothing was stored"):
            await other.append(1, [command(1)])
        assert await wait_level(other, is_leader=False) == Leadership(is_leader=False, epoch=1, leader="srv1.global")
    finally:
        await other.close()


async def test_an_entry_too_large_for_etcd_is_refused_before_it_is_sent(log: EtcdLog) -> None:
    with pytest.raises(Invalid, match="an entry of the log 1400000 at most"):
        await log.append(1, [command(1, size=1_500_000)])
    await log.append(1, [command(1, size=1_048_576)])
    assert len(await read(log)) == 1


async def test_a_changed_byte_in_an_entry_is_told_with_its_index(log: EtcdLog, region: str, client: EtcdClient) -> None:
    for number in range(1, 4):
        await log.append(number, [command(number)])
    key = KeyLayout(region).entry(2)
    value = bytearray((await client.range(key)).kvs[0].value)
    value[-1] ^= 1
    await client.put(key, bytes(value))
    with pytest.raises(Conflict, match="broken at index 2: its content does not fit its digest"):
        await read(log)


async def test_a_damaged_key_is_told(log: EtcdLog, region: str, client: EtcdClient) -> None:
    await log.append(1, [command(1)])
    entry = (await client.range(KeyLayout(region).entry(1))).kvs[0]
    await client.put(entry.key[:-1] + b"x", entry.value)
    with pytest.raises(Conflict, match=r"has a damaged key: .*0x'\. When other servers go on"):
        await read(log)


async def test_a_missing_entry_is_told_with_its_index(log: EtcdLog, region: str, client: EtcdClient) -> None:
    for number in range(1, 6):
        await log.append(number, [command(number)])
    await client.delete(KeyLayout(region).entry(3))
    with pytest.raises(Conflict, match="broken at index 3: it is missing"):
        await read(log)


async def test_an_entry_of_a_newer_version_is_told_with_that_version(
    log: EtcdLog, region: str, client: EtcdClient
) -> None:
    await log.append(1, [command(1)])
    commands = msgspec.msgpack.encode([{"type": "BrewCoffee"}])
    stored = StoredEntry(1, "9.1.0", 1, digest_of(1, commands), commands)
    await client.put(KeyLayout(region).entry(1), msgspec.msgpack.encode(stored))
    with pytest.raises(Conflict, match=r"entry at index 1 that yurt 9\.1\.0 wrote.*run yurt 9\.1\.0 or newer"):
        await read(log)


async def test_an_etcd_that_went_back_is_told_as_lost_data(log: EtcdLog, region: str, client: EtcdClient) -> None:
    for number in range(1, 6):
        await log.append(number, [command(number)])
    await client.put(KeyLayout(region).head, b"3")
    with pytest.raises(Conflict, match=r"etcd has lost data.*: its log ends at index 3, this server has read up to 5"):
        await read(log)


async def test_an_etcd_that_was_restored_to_an_older_state_is_told_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with local_etcd() as etcd:
        log = make_log(etcd, "global", tmp_path)
        await log.open()
        await wait_level(log, is_leader=True)
        await log.append(1, [command(1)])
        old = set_back(etcd, tmp_path)
        await wait_level(log, is_leader=True)
        for number in range(2, 30):
            await log.append(number, [command(number)])
        old()
        told = "etcd has lost data, or was restored to an older state under this server: it is at revision"
        await asyncio.to_thread(wait_for, "it is told", lambda: told in caplog.text)
        await wait_level(log, is_leader=False)
        with pytest.raises(Unavailable):
            await log.confirm()
        with pytest.raises(Conflict, match="does not lead"):
            await log.append(30, [command(30)])
        with pytest.raises(Conflict, match="restored to an older state"):
            await read(log, 29)
        await log.close()


def set_back(etcd: LocalEtcd, folder: Path) -> Callable[[], None]:
    """Keep what etcd holds now; what is given back sets it there again."""
    (member,) = etcd.members
    data, kept = member.config.etcd_folder, folder / "kept"

    def restart(before: Path, after: Path) -> None:
        member.kill()
        shutil.rmtree(after, ignore_errors=True)
        shutil.copytree(before, after)
        member.start()
        etcd.wait_ready()

    restart(data, kept)
    return lambda: restart(kept, data)


async def test_a_log_of_another_history_is_not_followed_however_long_it_is(
    log: EtcdLog, region: str, client: EtcdClient
) -> None:
    for number in range(1, 6):
        await log.append(number, [command(number)])
    reader = EntryReader(client, KeyLayout(region), env=RealEnv(), closing=Interrupt())
    right = await reader.mark_at(3)
    reader.has_applied(right)
    assert (await anext(reader.follow(3))).first_index == 4
    reader.has_applied(LogMark(index=4, digest=right.digest))
    with pytest.raises(HistoryLost, match="what follows index 4 of its log continues another history"):
        await anext(reader.follow(4))


async def test_a_snapshot_of_another_history_is_refused(
    log: EtcdLog, region: str, client: EtcdClient, tmp_path: Path
) -> None:
    for number in range(1, 6):
        await log.append(number, [command(number)])
    await log.save_snapshot(4, [b"state"])
    await log.close()
    await log.open()
    await log.close()

    value, _ = encode_entry(4, [command(40)], (await mark_of(client, region, 3)).digest)
    await client.put(KeyLayout(region).entry(4), value)
    with pytest.raises(Conflict, match="another history than the log in etcd, they differ at index 4"):
        await log.open()


async def mark_of(client: EtcdClient, region: str, index: int) -> LogMark:
    return await EntryReader(client, KeyLayout(region), env=RealEnv(), closing=Interrupt()).mark_at(index)


async def test_who_reads_without_applying_is_not_taken_to_have_caught_up(
    log: EtcdLog, region: str, client: EtcdClient
) -> None:
    for number in range(1, 6):
        await log.append(number, [command(number)])
    reader = EntryReader(client, KeyLayout(region), env=RealEnv(), closing=Interrupt())
    assert len([entry async for entry in reader.read(reader.cursor(0))]) == 5
    assert reader.position == 0
    assert len([entry async for entry in reader.read(reader.cursor(0), is_applied=True)]) == 5
    assert reader.position == 5


async def test_closing_ends_a_confirmation_that_etcd_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yurt.storage.etcd.confirmation.CONFIRM_LIMIT_S", 60.0)
    with local_etcd() as etcd:
        log = make_log(etcd, "global", tmp_path)
        await log.open()
        await wait_level(log, is_leader=True)
        with etcd.members[0].frozen():
            confirming = asyncio.ensure_future(log.confirm())
            await asyncio.sleep(0.1)
            began = time.monotonic()
            await log.close()
            with pytest.raises(Unavailable, match="the command log is closed"):
                await confirming
            assert time.monotonic() - began < 30


async def test_what_cannot_be_read_of_who_leads_ends_neither_the_term_nor_the_watch(
    log: EtcdLog, region: str, client: EtcdClient, caplog: pytest.LogCaptureFixture
) -> None:
    """The fence is the revision, not the text; the next term writes it anew."""
    epoch = KeyLayout(region).epoch
    before = (await client.range(epoch)).kvs[0].value
    await client.put(epoch, b"?")
    await asyncio.to_thread(wait_for, "it is told", lambda: "lead/epoch in etcd can not be read" in caplog.text)
    with pytest.raises(Conflict):
        await log.append(1, [command(1)])
    await client.put(epoch, before)
    await wait_level(log, is_leader=True)
    await log.append(1, [command(1)])


async def test_trimming_deletes_and_a_reader_behind_it_is_told(log: EtcdLog, region: str, client: EtcdClient) -> None:
    for start in range(1, 30_001, 500):
        await log.append(start, [command(start)] * 500)
    await log.trim(30_000, keep=0)
    assert (await anext(log.entries(0))).first_index == 1, "nobody has a snapshot"

    await log.save_snapshot(20_250, [b"state"])
    await log.trim(30_000, keep=0)

    with pytest.raises(LogTrimmed, match="begins at index 20001, what follows index 0 was trimmed"):
        await read(log)
    assert (await read(log, 20_000))[0].first_index == 20_001
    with pytest.raises(LogTrimmed):
        await anext(log.follow(19_999))
    revision = (await client.range(KeyLayout(region).head)).header.revision
    with pytest.raises(Compacted, match="has compacted the revisions"):
        async for _ in client.watch(b"a", b"b", start_revision=revision - 40):
            pass


async def test_a_server_far_behind_opens_and_is_told_when_it_reads(
    etcd: LocalEtcd, region: str, tmp_path: Path, log: EtcdLog
) -> None:
    for number in range(1, 11):
        await log.append(number, [command(number)])
    await log.save_snapshot(10, [b"state"])
    await log.trim(10, keep=2)
    await log.close()
    other = make_log(etcd, region, tmp_path, name="srv2.global", standing=True)

    state = await other.open()

    assert (state.first_index, state.last_index, state.snapshot_index) == (8, 10, 0)
    with pytest.raises(LogTrimmed):
        await read(other)
    await other.close()


async def test_following_goes_on_across_compaction_and_deletions(log: EtcdLog, region: str, client: EtcdClient) -> None:
    follower = log.follow(0)
    for number in range(1, 101):
        await log.append(number, [command(number)])
        if number % 10 == 0:
            await client.compact((await client.range(b"a")).header.revision)
        if number == 50:
            first = [(await anext(follower)).first_index for _ in range(30)]
        if number == 70:
            await log.save_snapshot(70, [b"state"])
            await log.trim(30, keep=0)
    rest = [(await anext(follower)).first_index for _ in range(70)]
    assert first + rest == list(range(1, 101))


async def test_a_follower_that_stands_still_while_the_log_passes_it_is_told(log: EtcdLog, client: EtcdClient) -> None:
    follower = log.follow(0)
    await log.append(1, [command(1)])
    assert (await anext(follower)).first_index == 1
    for number in range(2, 40):
        await log.append(number, [command(number)])
    await log.save_snapshot(39, [b"state"])
    await log.trim(39, keep=0)
    # What etcd has put on the way before that still comes, in order; then the gap shows.
    expected = 2
    with pytest.raises(LogTrimmed):
        async with asyncio.timeout(60):
            other = log.follow(1)
            while True:
                assert (await anext(other)).first_index == expected
                expected += 1
    await log.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(anext(follower), 60)


async def test_closing_ends_those_who_follow_and_confirm(log: EtcdLog) -> None:
    follower = log.follow(0)
    waiting = asyncio.ensure_future(anext(follower))
    await asyncio.sleep(0.1)
    await log.close()
    with pytest.raises(StopAsyncIteration):
        await asyncio.wait_for(waiting, 60)
    with pytest.raises(Unavailable):
        await log.confirm()


async def test_an_append_without_an_answer_ends_the_term_and_is_stored_once_or_not_at_all(
    etcd: LocalEtcd, region: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (member,) = etcd.members
    async with running(LogServer(member.name, make_log(etcd, region, tmp_path))) as server:
        await wait_leader([server])
        await server.append([1])
        with member.frozen(), monkeypatch.context() as patch:
            patch.setattr(appending, "APPEND_LIMIT_S", 0.3)
            with pytest.raises(Unavailable, match="may or may not be stored"):
                await server.append([2])
            with pytest.raises((Unavailable, Conflict), match="does not lead"):
                await server.append([3])
        await wait_leader([server])
        await server.append([4])
        assert server.applied in ([1, 4], [1, 2, 4])
        assert [level.is_leader for level in server.levels if level.epoch].count(True) >= 2


async def test_a_cancelled_append_ends_the_term(etcd: LocalEtcd, region: str, tmp_path: Path) -> None:
    (member,) = etcd.members
    async with running(LogServer(member.name, make_log(etcd, region, tmp_path))) as server:
        await wait_leader([server])
        with member.frozen():
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(server.append([1]), 0.2)
            with pytest.raises(Conflict, match="does not lead"):
                await server.log.append(1, [command(1)])
        await wait_leader([server])
        await server.append([2])
        assert server.applied in ([2], [1, 2])


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries to lead are made here once, so etcd gets time to answer on a busy machine."""
    monkeypatch.setattr(candidacy, "LIMIT_FIRST_S", 30.0)


class CountingClient(EtcdClient):
    """Counts reads."""

    reads = 0

    async def range(self, *args: object, **kwargs: object) -> Message:
        self.reads += 1
        return await super().range(*args, **kwargs)  # type: ignore[arg-type]


def make_leading(client: EtcdClient, region: str, name: str = "srv1") -> Leading:
    return Leading(
        client,
        KeyLayout(region),
        candidate=Candidate(name=name),
        env=RealEnv(),
        position=lambda: 0,
        on_no_space=lambda: None,
    )


@pytest.mark.usefixtures("patient")
async def test_all_who_wait_share_one_confirming_read(etcd: LocalEtcd, region: str) -> None:
    client = CountingClient(etcd.endpoints)
    leading = make_leading(client, region)
    await leading.campaign("vacant")
    confirmation = Confirmation(client, KeyLayout(region), leading=leading)
    answering = asyncio.ensure_future(confirmation.answer_confirms())
    await asyncio.gather(*(confirmation.confirm() for _ in range(100)))
    first_reads = client.reads
    late = [asyncio.ensure_future(confirmation.confirm())]
    await asyncio.sleep(0)
    late.append(asyncio.ensure_future(confirmation.confirm()))
    await asyncio.gather(*late)
    assert first_reads == 1
    assert client.reads in (2, 3)

    other = make_leading(client, region, "srv2")
    await other.look()
    await other.campaign("own member")
    with pytest.raises(Unavailable, match="does not lead"):
        await confirmation.confirm()
    answering.cancel()
    await client.close()


@pytest.mark.usefixtures("patient")
async def test_a_slow_reader_of_the_campaign_sees_the_end_of_its_term_and_the_present(
    region: str, client: EtcdClient
) -> None:
    mine, other = make_leading(client, region), make_leading(client, region, "srv2")
    levels = mine.levels.follow()
    await mine.campaign("vacant")
    assert await anext(levels) == Leadership(is_leader=True, epoch=1, leader="srv1")
    for _ in range(20):
        for leading in (other, mine):
            await leading.look()
            await leading.campaign("own member")
    assert mine.term is not None

    assert await anext(levels) == Leadership(is_leader=False, epoch=1)
    assert await anext(levels) == Leadership(is_leader=True, epoch=41, leader="srv1")
    mine.close()
    with pytest.raises(StopAsyncIteration):
        await anext(levels)


@pytest.mark.usefixtures("patient")
async def test_a_try_because_of_silence_is_void_when_a_sign_of_life_has_come(region: str, client: EtcdClient) -> None:
    mine, other = make_leading(client, region), make_leading(client, region, "srv2")
    await mine.campaign("vacant")
    await other.look()
    await client.put(KeyLayout(region).alive, b"")
    await other.campaign("silence")
    assert other.term is None
    await other.campaign("silence")
    assert other.term is not None
