"""Room in etcd: an exhausted quota is told, made good, and never costs what was acknowledged."""

from __future__ import annotations

import asyncio
import logging
import uuid
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Conflict, Unavailable
from yurt.storage.etcd import compaction, quota_recovery, quota_usage
from yurt.storage.etcd.client import Compacted, EtcdClient
from yurt.storage.etcd.log import EtcdLog
from yurt.storage.etcd.maintenance_lock import MaintenanceLock
from yurt.storage.etcd.membership import member_status, no_space_alarms
from yurt.storage.etcd.messages import message
from yurt.storage.log import DatabaseSize, LogFull
from yurt.testing.agent import wait_for
from yurt.testing.log_server import LogServer, running, wait_equal, wait_leader
from yurt.testing.services.etcd import LocalMember, local_etcd, missing

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "there is etcd"),
    pytest.mark.keeps_processes,
]
QUOTA_BYTES = 1024 * 1024
LARGE_QUOTA_BYTES, LARGE_BATCH_BYTES = 32 * QUOTA_BYTES, 100_000
BATCH_BYTES = 20_000


async def fill(server: LogServer) -> int:
    """Append until etcd takes nothing more; the last number that was acknowledged."""
    number = len(server.applied)
    while True:
        try:
            await server.append([number + 1], size=BATCH_BYTES)
        except (Unavailable, Conflict):
            return number
        number += 1


@pytest.mark.parametrize("is_own", [True, False])
async def test_an_exhausted_quota_is_told_and_ends_when_a_snapshot_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_own: bool
) -> None:
    monkeypatch.setattr(quota_recovery, "PAUSE_S", 0.3)
    with local_etcd(quota_bytes=QUOTA_BYTES) as etcd:
        (member,) = etcd.members
        log = EtcdLog(
            endpoints=etcd.endpoints,
            folder=tmp_path,
            name=member.name,
            region=f"region-{uuid.uuid4()}",
            env=RealEnv(),
            own_endpoint=member.endpoint if is_own else "",
        )
        client = EtcdClient(etcd.endpoints)
        async with running(LogServer(member.name, log)) as server:
            await wait_leader([server])
            acknowledged = await fill(server)
            assert acknowledged > 20

            told = "etcd's quota is exhausted, it stores nothing more"
            await asyncio.to_thread(wait_for, "it is told", lambda: told in caplog.text)
            await log.save_snapshot(len(server.applied), [b"state"])
            await wait_room(client)
            await wait_leader([server])
            before = len(server.applied)
            assert before >= acknowledged
            assert server.applied == list(range(1, before + 1))
            await server.append([before + 1], size=BATCH_BYTES)
        assert (await member_status(client)).size < QUOTA_BYTES
        await client.close()
    assert "was defragmented" in caplog.text
    assert {record.levelno for record in caplog.records if "exhausted" in record.getMessage()} == {logging.ERROR}


async def test_three_servers_store_twice_their_quota_and_never_exhaust_it(tmp_path: Path) -> None:
    """Snapshots make room, appends are refused where they come too late; files are rewritten one after another."""
    with local_etcd(3, quota_bytes=LARGE_QUOTA_BYTES) as etcd:
        async with AsyncExitStack() as stack:
            servers = [
                await stack.enter_async_context(running(LogServer(each.name, crowded_log(each, tmp_path))))
                for each in etcd.members
            ]
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            for server in servers:
                stack.callback(tasks.create_task(keep_short(server)).cancel)
                stack.callback(tasks.create_task(ask_rooms(server, servers)).cancel)
            alarmed: set[str] = set()
            stack.callback(tasks.create_task(watch_alarms(etcd.members[0], alarmed)).cancel)
            leader = await wait_leader(servers)
            refusals = await append_many(servers, LARGE_QUOTA_BYTES * 2 // LARGE_BATCH_BYTES)
            assert all("etcd is nearly full" in text and "nothing was stored" in text for text in refusals)
            await wait_equal(servers)
            assert leader.applied == [*range(LARGE_QUOTA_BYTES * 2 // LARGE_BATCH_BYTES)]
            client = EtcdClient((etcd.members[0].endpoint,))
            await wait_room(client, 2 * LARGE_QUOTA_BYTES)
            await client.close()
            assert not alarmed


async def ask_rooms(server: LogServer, servers: list[LogServer]) -> None:
    """What servers tell each other, without the way between them."""
    while True:
        await server.log.wait_sizes_due()
        for other in servers:
            if other is not server and other.log.database_size is not None:
                server.log.record_size(other.name, other.log.database_size)


async def watch_alarms(member: LocalMember, alarmed: set[str]) -> None:
    """Gather the alarms that are raised, also those that are taken back."""
    client = EtcdClient((member.endpoint,))
    try:
        while True:
            with suppress(Conflict, Unavailable):
                alarmed.update(f"{alarm.memberID:x}" for alarm in await no_space_alarms(client))
            await asyncio.sleep(0.1)
    finally:
        await client.close()


async def test_a_follower_whose_file_is_nearly_full_stops_appends_until_it_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quota_usage, "FORGOTTEN_S", 1.0)
    monkeypatch.setattr(quota_usage, "SILENT_S", 0.5)
    with local_etcd(quota_bytes=LARGE_QUOTA_BYTES) as etcd:
        (member,) = etcd.members
        log = crowded_log(member, tmp_path)
        async with running(LogServer(member.name, log)) as server:
            await wait_leader([server])
            await server.append([1])
            log.record_size("srv2.global", DatabaseSize(size=LARGE_QUOTA_BYTES, revision=1))
            with pytest.raises(LogFull, match=r"etcd is nearly full .* at srv2.global.*, nothing was stored"):
                await server.append([2])
            server.is_ready = True
            await log.wait_sizes_due()  # and it does not answer
            await appended_in_the_end(server)
        assert server.level.epoch == 1


async def appended_in_the_end(server: LogServer) -> None:
    """Append 2 behind 1 as soon as there is room."""
    async with asyncio.timeout(30):
        while server.applied != [1, 2]:
            with suppress(LogFull):
                await server.append([2])
            server.is_ready = True
            await asyncio.sleep(0.05)


async def test_one_server_at_a_time_has_the_turn_and_a_dead_ones_ends() -> None:
    with local_etcd() as etcd:
        client = EtcdClient(etcd.endpoints)
        first, second = (
            MaintenanceLock(client, b"turn", name=name, limit_s=1.0, env=RealEnv()) for name in ("srv1", "srv2")
        )
        async with first.turn() as is_own:
            assert is_own
            async with second.turn() as is_others:
                assert not is_others
        async with second.turn() as is_own:
            assert is_own
        await client.put(b"turn", b"srv1")  # as one leaves it who dies
        async with asyncio.timeout(30):
            while not await has_turn(second):  # noqa: ASYNC110 - another process decides
                await asyncio.sleep(0.05)
        await client.put(b"turn", b"srv2")  # as this server itself left it
        assert await has_turn(second)
        await client.close()


async def has_turn(turns: MaintenanceLock) -> bool:
    async with turns.turn() as is_own:
        return is_own


def crowded_log(member: LocalMember, folder: Path) -> EtcdLog:
    """The log of a server that knows its member's quota."""
    return EtcdLog(
        endpoints=(member.endpoint,),
        folder=folder / member.name,
        name=member.name,
        region="global",
        env=RealEnv(),
        own_endpoint=member.endpoint,
        quota_bytes=LARGE_QUOTA_BYTES,
    )


async def keep_short(server: LogServer) -> None:
    """What a server does when its log runs short of room, slowly."""
    while True:
        await server.log.wait_crowded()
        await asyncio.sleep(0.5)
        index = len(server.applied)
        await server.log.save_snapshot(index, [b"state"])
        with suppress(Conflict, Unavailable):
            await server.log.trim(index, keep=0)


async def append_many(servers: list[LogServer], count: int) -> list[str]:
    """Append as many entries at whoever leads; what was refused for lack of room."""
    refusals, number = [], 0
    async with asyncio.timeout(120):
        while number < count:
            leader = await wait_leader(servers)
            try:
                await leader.append([number], size=LARGE_BATCH_BYTES)
                number += 1
            except LogFull as error:
                refusals.append(str(error))
                leader.is_ready = True
                await asyncio.sleep(0.05)
            except (Conflict, Unavailable):
                number = len((await wait_leader(servers)).applied)
    return refusals


async def wait_room(client: EtcdClient, quota_bytes: int = QUOTA_BYTES) -> None:
    async with asyncio.timeout(60):
        while True:
            if not await no_space_alarms(client) and (await member_status(client)).size < quota_bytes // 2:
                return
            await asyncio.sleep(0.05)


async def test_revisions_are_forgotten_while_a_server_leads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "COMPACT_EVERY_S", 0.3)
    with local_etcd() as etcd:
        (member,) = etcd.members
        log = EtcdLog(
            endpoints=etcd.endpoints,
            folder=tmp_path,
            name=member.name,
            region="global",
            env=RealEnv(),
            own_endpoint=member.endpoint,
        )
        client = EtcdClient(etcd.endpoints)
        async with running(LogServer(member.name, log)) as server:
            await wait_leader([server])
            first = (await client.range(b"a")).header.revision
            await wait_forgotten(client, first)
            await server.append([1])
        await client.close()


async def test_forgetting_a_part_of_a_long_log_needs_no_room_for_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old values between entries are taken out as the log grows, not all at once, which would write it all anew."""
    monkeypatch.setattr(quota_usage, "LOOK_S", 0.05)
    monkeypatch.setattr(quota_usage, "LOOK_CROWDED_S", 0.05)
    with local_etcd(quota_bytes=LARGE_QUOTA_BYTES) as etcd:
        (member,) = etcd.members
        log = crowded_log(member, tmp_path)
        client = EtcdClient(etcd.endpoints)
        async with running(LogServer(member.name, log)) as server:
            await wait_leader([server])
            for first in range(0, 100, 20):
                await append_and_forget(server, client, range(first, first + 20))
            size = (await member_status(client)).size
            await log.save_snapshot(10, [b"state"])
            revision = (await client.range(b"a")).header.revision
            await log.trim(10, keep=0)
            await wait_forgotten(client, revision)
            await client.put(b"a", b"")
            assert (await member_status(client)).size < size + 40 * LARGE_BATCH_BYTES
        await client.close()


async def append_and_forget(server: LogServer, client: EtcdClient, numbers: range) -> None:
    """Append large entries, and wait until etcd has compacted the revisions before them."""
    revision = (await client.range(b"a")).header.revision
    for number in numbers:
        await server.append([number], size=LARGE_BATCH_BYTES)
    await wait_forgotten(client, revision)


async def wait_forgotten(client: EtcdClient, revision: int) -> None:
    """Wait until what was at a revision can no longer be read."""
    request = message("RangeRequest", key=b"a", revision=revision)
    async with asyncio.timeout(60):
        while True:
            try:
                await client.read("KV", "Range", request)
            except Compacted:
                return
            await asyncio.sleep(0.1)
