"""Three servers and three etcd members: who leads, what survives faults, whose appends are refused."""

from __future__ import annotations

import asyncio
import contextlib
import random
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Conflict, Invalid, Unavailable, YurtError
from yurt.sdk.value import NANOSECONDS
from yurt.storage.etcd import appending, candidacy
from yurt.storage.etcd.appending import Appender
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.interruptible_waits import Interrupt
from yurt.storage.etcd.key_layout import KeyLayout, Report
from yurt.storage.etcd.leading import Candidate, EtcdTerm, Leading
from yurt.storage.etcd.log import EtcdLog
from yurt.storage.etcd.membership import list_members, member_status
from yurt.storage.etcd.quota_usage import EtcdQuotaUsage
from yurt.storage.etcd.reading import Cursor, EntryReader
from yurt.storage.log import LogTrimmed
from yurt.testing.log_server import LogServer, command, number_of, running, wait_equal, wait_leader
from yurt.testing.services.etcd import LocalEtcd, LocalMember, local_etcd, missing

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "there is etcd"),
    pytest.mark.keeps_processes,
]


@pytest.fixture(scope="module")
def etcd() -> Iterator[LocalEtcd]:
    with local_etcd(3) as cluster:
        yield cluster


@pytest.fixture
def region() -> str:
    return f"region-{uuid.uuid4()}"


def make_log(member: LocalMember, region: str, folder: Path, *, endpoints: tuple[str, ...] = ()) -> EtcdLog:
    """The log of the server beside a member; with endpoints, of a server whose etcd stands by itself."""
    return EtcdLog(
        endpoints=endpoints or (member.endpoint,),
        folder=folder / member.name,
        name=member.name,
        region=region,
        env=RealEnv(),
        own_endpoint="" if endpoints else member.endpoint,
    )


@asynccontextmanager
async def three(etcd: LocalEtcd, region: str, folder: Path) -> AsyncIterator[list[LogServer]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(running(LogServer(member.name, make_log(member, region, folder))))
            for member in etcd.members
        ]


@pytest.fixture
async def servers(etcd: LocalEtcd, region: str, tmp_path: Path) -> AsyncIterator[list[LogServer]]:
    """Three running servers of a region of their own."""
    async with three(etcd, region, tmp_path) as made:
        yield made


async def append_by_leader(servers: list[LogServer], numbers: list[int]) -> LogServer:
    """Append by whoever leads, again with the next leader when that one lost its term."""
    async with asyncio.timeout(60):
        while True:
            leader = await wait_leader(servers)
            with contextlib.suppress(YurtError):
                await leader.append(numbers)
                return leader
            await asyncio.sleep(0.02)


async def test_one_leads_and_the_others_apply_what_it_appends(servers: list[LogServer]) -> None:
    leader = await append_by_leader(servers, [1])
    for number in range(2, 30):
        await leader.append([number, -number])
    await wait_equal(servers)
    assert servers[0].applied[:4] == [1, 2, -2, 3]
    assert [server.is_ready for server in servers].count(True) == 1
    await leader.log.confirm()
    for server in servers:
        if server is not leader:
            assert server.level.leader == leader.name
            with pytest.raises(Unavailable, match="does not lead"):
                await server.log.confirm()


async def test_leadership_goes_to_the_server_beside_etcds_leader(etcd: LocalEtcd, servers: list[LogServer]) -> None:
    """Whoever began, the term ends up there, and stays."""
    await append_by_leader(servers, [1])
    client = EtcdClient(etcd.endpoints)
    leading = [m.name for m in etcd.members if (await member_status(client, m.endpoint)).is_leader]
    leader = await wait_leader([server for server in servers if server.name in leading])
    await leader.append([2])
    await wait_equal(servers)
    assert [server.name for server in servers if server.is_ready] == leading
    await client.close()


async def wait_settled(etcd: LocalEtcd, servers: list[LogServer], *, expected: LogServer | None = None) -> LogServer:
    """The leader, once it is the server beside the member that leads etcd: no other one takes its term from then on.

    With `expected` wait until it is that one.
    """
    async with asyncio.timeout(60):
        while True:
            leader = await wait_leader(servers)
            if expected in (None, leader) and await leads_etcd(etcd, leader.name) and leader.is_ready:
                return leader
            await asyncio.sleep(0.02)


async def leads_etcd(etcd: LocalEtcd, name: str) -> bool:
    """Whether the member of a server leads etcd, as far as it answers."""
    client = EtcdClient((etcd.member(name).endpoint,))
    try:
        return (await member_status(client)).is_leader
    except YurtError:
        return False
    finally:
        await client.close()


async def test_resigning_gives_the_term_to_the_server_named(etcd: LocalEtcd, servers: list[LogServer]) -> None:
    await append_by_leader(servers, [1])
    await wait_equal(servers)
    first = await wait_settled(etcd, servers)
    heir = next(server for server in servers if server is not first)

    await first.log.resign(to=heir.name)

    # Where etcd answers the heir late, the third server leads for a second: etcd's leadership, which has gone to the
    # heir's member, brings the term there.
    await wait_settled(etcd, servers, expected=heir)
    await heir.append([2])
    await wait_equal(servers)
    with pytest.raises(Invalid, match=r'server "srv9\.global" does not exist'):
        await heir.log.resign(to="srv9.global")
    await heir.log.resign(to=heir.name)
    assert heir.is_ready


async def test_resigning_lets_another_one_lead(servers: list[LogServer]) -> None:
    first = await append_by_leader(servers, [1])
    await wait_equal(servers)
    await first.log.resign()
    second = await wait_leader(servers, besides=first)
    await second.append([2])
    await wait_equal(servers)


async def test_the_leaders_etcd_member_is_killed(etcd: LocalEtcd, servers: list[LogServer]) -> None:
    for number in range(4):
        leader = await append_by_leader(servers, [number])
        await wait_equal(servers)
        member = etcd.member(leader.name)
        member.kill()
        others = [server for server in servers if server is not leader]
        await append_by_leader(others, [100 + number])
        assert {number, 100 + number} <= set(others[0].applied) | set(others[1].applied)
        member.start()
        await append_by_leader(servers, [200 + number])
        await wait_equal(servers)
    assert set(servers[0].applied) == {base + number for base in (0, 100, 200) for number in range(4)}


async def test_the_leaders_etcd_member_stands_still_for_a_while(etcd: LocalEtcd, servers: list[LogServer]) -> None:
    """Its server cannot know; what it appends is refused or unknown, and never stored beside the new leader's."""
    leader = await append_by_leader(servers, [1])
    await wait_equal(servers)
    others = [server for server in servers if server is not leader]
    stale = asyncio.ensure_future(leader.append([666]))
    with etcd.member(leader.name).frozen():
        await append_by_leader(others, [2])
    await asyncio.wait([stale])
    await append_by_leader(servers, [3])
    await wait_equal(servers)
    applied = servers[0].applied
    assert [number for number in applied if number != 666] == [1, 2, 3]
    if stale.exception() is None:
        assert 666 in applied
    else:
        assert isinstance(stale.exception(), Conflict | Unavailable)


async def test_a_follower_whose_member_stood_still_applies_all(etcd: LocalEtcd, servers: list[LogServer]) -> None:
    leader = await append_by_leader(servers, [0])
    follower = next(server for server in servers if server is not leader)
    with etcd.member(follower.name).frozen():
        for number in range(1, 50):
            await append_by_leader([server for server in servers if server is not follower], [number])
    await wait_equal(servers)
    assert sorted(servers[0].applied) == list(range(50))


async def test_a_server_that_is_gone_without_a_word_is_followed_by_another(
    etcd: LocalEtcd, region: str, tmp_path: Path
) -> None:
    """With an etcd that stands by itself only silence tells; the first endpoint of each server is dead."""
    endpoints = ("http://127.0.0.1:9", *etcd.endpoints)
    async with AsyncExitStack() as stack:
        servers = [LogServer(m.name, make_log(m, region, tmp_path, endpoints=endpoints)) for m in etcd.members]
        for server in servers[1:]:
            await stack.enter_async_context(running(server))
        async with running(servers[0]):
            first = await append_by_leader(servers, [1])
            if first is not servers[0]:
                await first.log.resign(to=servers[0].name)
                await wait_leader([servers[0]])
            await wait_equal(servers)
        await append_by_leader(servers[1:], [2])
        await wait_equal(servers[1:])
        assert servers[1].applied == [1, 2]


async def test_trimming_waits_for_a_majority(etcd: LocalEtcd, region: str, servers: list[LogServer]) -> None:
    leader = await append_by_leader(servers, [0])
    for number in range(1, 20):
        await leader.append([number] * 10)
    await wait_equal(servers)
    one, two = (server for server in servers if server is not leader)
    client = EtcdClient(etcd.endpoints)
    reader = EntryReader(client, KeyLayout(region), env=RealEnv(), closing=Interrupt())

    await leader.log.save_snapshot(190, [b"state"])
    await leader.log.trim(190, keep=0)
    assert await reader.first_index() == 1, "one of three"
    await one.log.save_snapshot(100, [b"state"])
    await two.log.trim(190, keep=0)
    assert await reader.first_index() == 1, "a follower trims nothing"
    await leader.log.trim(190, keep=0)
    assert await reader.first_index() == 92, "two of three have 100, which is in the entry from 92 on"
    await two.log.save_snapshot(150, [b"state"])
    await leader.log.trim(190, keep=60)
    assert await reader.first_index() == 122, "60 are kept"
    await client.close()


async def test_the_key_of_a_server_that_never_was_a_member_counts_for_nothing(
    etcd: LocalEtcd, region: str, servers: list[LogServer]
) -> None:
    leader = await append_by_leader(servers, [0])
    client = EtcdClient(etcd.endpoints)
    for name in ("a", "b", "c"):
        await client.put(KeyLayout(region).snapshot(name), msgspec.json.encode(Report(index=1, at=RealEnv().now())))
    await leader.append([1] * 10)
    await leader.log.save_snapshot(11, [b"state"])
    await leader.log.trim(11, keep=0)
    assert [entry.first_index async for entry in leader.log.entries(0)] == [1, 2]
    await client.close()


@pytest.mark.parametrize(("away_h", "first_index"), [(1, 1), (25, 2)])
async def test_a_standing_etcd_counts_the_servers_of_the_last_day(
    etcd: LocalEtcd, region: str, tmp_path: Path, away_h: int, first_index: int
) -> None:
    log = make_log(etcd.members[0], region, tmp_path, endpoints=etcd.endpoints)
    client = EtcdClient(etcd.endpoints)
    for name in ("gone-1", "gone-2"):
        report = Report(index=0, at=RealEnv().now() - away_h * 3600 * NANOSECONDS)
        await client.put(KeyLayout(region).snapshot(name), msgspec.json.encode(report))
    async with running(LogServer("srv1.global", log)) as server:
        await append_by_leader([server], [0])
        await server.append([1] * 10)
        await log.save_snapshot(11, [b"state"])
        await log.trim(11, keep=0)
        assert (await anext(log.entries(1))).first_index == 2
        state = EntryReader(client, KeyLayout(region), env=RealEnv(), closing=Interrupt())
        assert await state.first_index() == first_index
        if first_index == 1:
            for name in ("gone-1", "gone-2"):
                await client.delete(KeyLayout(region).snapshot(name))
            await log.trim(11, keep=0)
            assert await state.first_index() == 2
    await client.close()


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries to lead are made here once, so etcd gets time to answer on a busy machine."""
    monkeypatch.setattr(candidacy, "LIMIT_FIRST_S", 30.0)
    monkeypatch.setattr(appending, "APPEND_LIMIT_S", 30.0)


class Stale:
    """A server of which nothing is told but the answers to what it asks itself."""

    def __init__(self, number: int, etcd: LocalEtcd, region: str) -> None:
        self.keys = KeyLayout(region)
        self.client = EtcdClient((etcd.members[number].endpoint,))
        self.leading = Leading(
            self.client,
            self.keys,
            candidate=Candidate(name=f"srv{number}"),
            env=RealEnv(),
            position=lambda: 0,
            on_no_space=lambda: None,
        )
        self.appender = Appender(
            self.client,
            self.keys,
            leading=self.leading,
            reader=EntryReader(self.client, self.keys, env=RealEnv(), closing=Interrupt()),
            quota_usage=EtcdQuotaUsage(0, name=f"srv{number}"),
            on_no_space=lambda: None,
        )
        self.believed: EtcdTerm | None = None

    async def campaign(self) -> None:
        await self.leading.look()
        await self.leading.campaign("own member")
        self.believed = self.leading.term or self.believed

    async def append(self, number: int) -> bool:
        """Whether it was stored, in the term that this server believes to have."""
        term = self.believed
        assert term is not None
        self.leading.term, term.end = term, Interrupt()
        try:
            await self.appender.append_in(term, term.head.index + 1, [command(number)])
        except Conflict:
            return False
        return True


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("seed", range(12))
async def test_appends_of_a_term_that_has_ended_are_never_stored(etcd: LocalEtcd, region: str, seed: int) -> None:
    """Campaigns and appends of three servers in any order, some at once; each goes on believing in its last term."""
    chance = random.Random(seed)
    servers = [Stale(number, etcd, region) for number in range(3)]
    await servers[0].client.put(servers[0].keys.head, b"0")
    await servers[0].campaign()
    stored: list[int] = []
    refused = 0
    for step in range(60):
        acting = chance.sample(servers, chance.choice((1, 1, 2, 3)))
        if chance.random() < 0.25:
            await asyncio.gather(*(server.campaign() for server in acting))
            continue
        believers = [server for server in acting if server.believed is not None]
        newest = max(server.believed.number for server in servers if server.believed is not None)
        numbers = [step * 10 + place for place in range(len(believers))]
        taken = await asyncio.gather(*map(Stale.append, believers, numbers))
        for server, number, is_taken in zip(believers, numbers, taken, strict=True):
            is_newest = server.believed is not None and server.believed.number == newest
            assert is_taken == is_newest, (step, server.believed)
            refused += not is_taken
            stored += [number] if is_taken else []
    reader = EntryReader(servers[0].client, servers[0].keys, env=RealEnv(), closing=Interrupt())
    entries = [entry async for entry in reader.read(Cursor(0))]
    assert [entry.first_index for entry in entries] == list(range(1, len(stored) + 1))
    assert [number_of(entry.commands[0]) for entry in entries] == stored
    assert refused > 3
    for server in servers:
        await server.client.close()


@pytest.mark.usefixtures("patient")
async def test_only_one_of_those_who_campaign_at_once_leads(etcd: LocalEtcd, region: str) -> None:
    servers = [Stale(number % 3, etcd, region) for number in range(9)]
    for turn in range(1, 6):
        for server in servers:
            await server.leading.look()
        before = [server.leading.term for server in servers]
        await asyncio.gather(*(server.leading.campaign("own member") for server in servers))
        won = [
            s
            for s, old in zip(servers, before, strict=True)
            if s.leading.term is not None and s.leading.term is not old
        ]
        assert [server.leading.term.number for server in won if server.leading.term] == [turn]
    for server in servers:
        await server.client.close()


async def test_a_server_that_lags_does_not_lead(etcd: LocalEtcd, region: str, tmp_path: Path) -> None:
    """It is told only that nobody leads; it leads once it has read the log."""
    async with running(LogServer("srv1.global", make_log(etcd.members[0], region, tmp_path))) as server:
        await append_by_leader([server], [1])
    lagging = make_log(etcd.members[1], region, tmp_path)
    await lagging.open()
    levels = lagging.campaign()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2):
            while not (await anext(levels)).is_leader:
                pass
    follower = lagging.follow(0)
    await anext(follower)
    reading = asyncio.ensure_future(anext(follower))
    async with asyncio.timeout(60):
        async for level in lagging.campaign():
            if level.is_leader:
                break
    await lagging.close()
    with pytest.raises(StopAsyncIteration):
        await reading


async def test_nothing_is_trimmed_where_a_report_of_a_snapshot_cannot_be_read(
    etcd: LocalEtcd, region: str, servers: list[LogServer]
) -> None:
    leader = await append_by_leader(servers, [0])
    client = EtcdClient(etcd.endpoints)
    await client.put(KeyLayout(region).snapshot("srv9.global"), b"no report")
    with pytest.raises(Conflict, match=r"snapshots/srv9.global in etcd can not be read"):
        await leader.log.trim(1, keep=0)
    await client.close()


async def test_names_of_members_are_those_of_servers(etcd: LocalEtcd) -> None:
    client = EtcdClient(etcd.endpoints)
    assert [peer.name for peer in await list_members(client)] == [member.name for member in etcd.members]
    await client.close()


async def test_a_log_that_nobody_can_read_any_more_is_told_as_trimmed(
    etcd: LocalEtcd, region: str, servers: list[LogServer]
) -> None:
    leader = await append_by_leader(servers, [0])
    await wait_equal(servers)
    client = EtcdClient(etcd.endpoints)
    await client.delete(KeyLayout(region).log, KeyLayout(region).log_end)
    with pytest.raises(LogTrimmed, match="is empty"):
        await anext(leader.log.entries(0))
    await client.close()
