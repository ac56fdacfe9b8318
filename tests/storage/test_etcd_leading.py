"""Signs of life, heartbeats and campaigns of servers on a simulated etcd, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec
import pytest
from yurt.storage.etcd.appending import Appender
from yurt.storage.etcd.client import EtcdClient
from yurt.storage.etcd.interruptible_waits import Interrupt
from yurt.storage.etcd.key_layout import Epoch, KeyLayout, put
from yurt.storage.etcd.leading import Candidate, Leading
from yurt.storage.etcd.messages import message
from yurt.storage.etcd.quota_usage import EtcdQuotaUsage
from yurt.storage.etcd.reading import EntryReader
from yurt.testing.log_server import command
from yurt.testing.sim.env import SimEnv
from yurt.testing.sim.etcd import SimEtcd
from yurt.testing.sim.loop import Process, SimLoop, run_on
from yurt.testing.sim.network import SimNetwork

HOST = "10.0.0.1"
KEYS = KeyLayout("global")


class Server:
    """A server of a simulated etcd, with the calls that it has made."""

    def __init__(self, name: str, etcd: SimEtcd, loop: SimLoop, *, position: int = 0, time_factor: float = 1) -> None:
        self.env = SimEnv(loop, Process(name), 1)
        self.client = EtcdClient((etcd.endpoint(HOST),), connect=etcd.channel)
        self.calls = Counter[str]()
        ask = self.client._ask

        async def counted(endpoint: str, service: str, method: str, *rest: Any, **options: Any) -> Any:
            self.calls[method] += 1
            return await ask(endpoint, service, method, *rest, **options)

        self.client._ask = counted  # type: ignore[method-assign]
        self.leading = Leading(
            self.client,
            KEYS,
            candidate=Candidate(name=name, time_factor=time_factor),
            env=self.env,
            position=lambda: max(position, self.reader.position),
            on_no_space=lambda: None,
        )
        self.reader = EntryReader(
            self.client, KEYS, env=self.env, closing=Interrupt(), on_read=lambda revision, _: self.has_read(revision)
        )
        self.appender = Appender(
            self.client,
            KEYS,
            leading=self.leading,
            reader=self.reader,
            quota_usage=EtcdQuotaUsage(0, name=name),
            on_no_space=lambda: None,
        )

    def has_read(self, revision: int) -> None:
        """What a session does for each entry read."""
        self.leading.has_read(revision)

    async def append(self) -> None:
        """Append one command in this server's term."""
        term = self.leading.term
        assert term is not None
        await self.appender.append(term.head.index + 1, [command(1)])

    async def follow(self) -> None:
        """Apply all entries."""
        async for _ in self.reader.follow(0):
            pass


class Servers:
    """A simulated etcd and its servers, whose loops run."""

    def __init__(self) -> None:
        self.loop = SimLoop(1)
        self.loop.network = SimNetwork(self.loop, 1)
        self.etcd = SimEtcd(self.loop.network, (HOST,), 1)
        self.etcd.store.call("Put", message("PutRequest", key=KEYS.head, value=b"0"))

    def server(self, name: str, *, position: int = 0, time_factor: float = 1) -> Server:
        """A server whose loops do not run yet."""
        return Server(name, self.etcd, self.loop, position=position, time_factor=time_factor)

    def run(
        self, script: Callable[[], Awaitable[None]], *loops: Coroutine[Any, Any, None], leader: Server | None = None
    ) -> None:
        """Run a script, together with loops that end with it; they begin once `leader` leads."""

        async def main() -> None:
            if leader is not None:
                await leader.leading.campaign("vacant")
            async with asyncio.TaskGroup() as group:
                running = [group.create_task(each) for each in loops]
                await script()
                for each in running:
                    each.cancel()

        run_on(self.loop, main())


@pytest.fixture
def servers() -> Servers:
    return Servers()


async def revisions(server: Server) -> dict[bytes, int]:
    """The revisions of the keys below `lead/`."""
    found = await server.client.range(KEYS.lead, KEYS.lead_end)
    return {row.key: row.mod_revision for row in found.kvs}


def test_an_append_renews_a_heartbeat_that_is_not_recent(servers: Servers) -> None:
    leader = servers.server("srv1")

    async def script() -> None:
        await leader.append()
        early = await revisions(leader)
        await leader.env.sleep(0.15)
        await leader.append()
        late = await revisions(leader)
        assert early[KEYS.alive] == early[KEYS.epoch] < early[KEYS.head]
        assert late[KEYS.alive] == late[KEYS.head]

    servers.run(script, leader=leader)


def test_a_leader_that_appends_often_writes_no_heartbeats_by_itself(servers: Servers) -> None:
    leader = servers.server("srv1")

    async def script() -> None:
        leader.calls.clear()
        for _ in range(100):
            await leader.append()
            await leader.env.sleep(0.03)
        assert leader.calls["Txn"] == 100
        await leader.env.sleep(2.1)
        assert 109 <= leader.calls["Txn"] <= 111

    servers.run(script, leader.leading.run(), leader=leader)


def test_followers_receive_heartbeats_and_epochs_but_not_each_end_of_the_log(servers: Servers) -> None:
    leader, follower = servers.server("srv1"), servers.server("srv2")

    async def script() -> None:
        await follower.env.sleep(0.2)
        received = list[bytes]()
        learn = follower.leading.learn
        follower.leading.learn = lambda rows: (received.extend(row.key for row in rows), learn(rows))[1]  # type: ignore
        for _ in range(20):
            await leader.append()
            await leader.env.sleep(0.05)
        assert received.count(KEYS.alive) in (8, 9, 10)
        assert KEYS.head not in received
        await leader.leading.vacate(leader.leading.term, "srv2")  # type: ignore[arg-type]
        await follower.env.sleep(0.1)
        assert KEYS.epoch in received

    servers.run(script, follower.leading.watch(), leader=leader)


async def append_as_an_earlier_version(old: Server, *, for_s: float) -> None:
    """Append often, as a leader that writes no heartbeat then."""
    old.leading.renewal = lambda term: []  # type: ignore[method-assign]
    for _ in range(round(for_s / 0.05)):
        await old.append()
        await old.env.sleep(0.05)


def test_an_entry_is_a_sign_of_life_of_a_leader_that_writes_no_heartbeats(servers: Servers) -> None:
    leader, follower = servers.server("srv1"), servers.server("srv2")

    async def script() -> None:
        await append_as_an_earlier_version(leader, for_s=5)
        assert follower.calls["Txn"] == 0
        assert follower.calls["Range"] < 10, "it has no doubt, so it does not look"
        assert follower.leading.seen.epoch.server == "srv1"

    servers.run(script, follower.leading.watch(), follower.leading.run(), follower.follow(), leader=leader)


def test_a_server_looks_for_signs_of_life_before_it_campaigns_because_of_silence(servers: Servers) -> None:
    """It is busy with an entry, say, and reads no others; it takes itself to have applied all."""
    leader, follower, levels = servers.server("srv1"), servers.server("srv2", position=1_000), list[str]()

    async def follow_levels() -> None:
        async for level in follower.leading.levels.follow():
            levels.append(level.leader)

    async def script() -> None:
        await append_as_an_earlier_version(leader, for_s=10)
        assert follower.calls["Txn"] == 0
        assert levels == ["srv1"]

    servers.run(script, follower.leading.watch(), follower.leading.run(), follow_levels(), leader=leader)


def test_a_server_that_etcd_does_not_answer_reports_no_leader(servers: Servers) -> None:
    leader, follower, levels = servers.server("srv1"), servers.server("srv2"), list[str]()

    async def follow_levels() -> None:
        async for level in follower.leading.levels.follow():
            levels.append(level.leader)

    async def script() -> None:
        await follower.env.sleep(0.5)
        servers.etcd.down.add(HOST)
        await follower.env.sleep(1.0)
        assert levels == ["srv1"]
        await follower.env.sleep(3.0)
        assert levels == ["srv1", ""]

    servers.run(script, follower.leading.watch(), follower.leading.run(), follow_levels(), leader=leader)


def test_a_silent_leader_is_not_reported_although_others_wait_long_before_they_campaign(servers: Servers) -> None:
    leader, follower, levels = servers.server("srv1"), servers.server("srv2", time_factor=10), list[str]()

    async def follow_levels() -> None:
        async for level in follower.leading.levels.follow():
            levels.append(level.leader)

    async def script() -> None:
        await follower.env.sleep(1.8)
        assert levels == ["srv1"]
        await follower.env.sleep(0.6)
        assert levels == ["srv1", ""]

    servers.run(script, follower.leading.watch(), follower.leading.run(), follow_levels(), leader=leader)


def test_an_entry_that_was_known_is_no_sign_of_life(servers: Servers) -> None:
    """A server that reads the log's past, or its end after its last entry, hears nothing of a dead leader."""
    leader, follower = servers.server("srv1"), servers.server("srv2")

    async def script() -> None:
        await append_as_an_earlier_version(leader, for_s=0.5)
        await follower.leading.look()
        heard_at = follower.leading._contact.heard_at
        await follower.env.sleep(0.3)
        async for _ in follower.reader.read(follower.reader.cursor(0), is_applied=True):
            pass
        await follower.leading.look()
        assert follower.leading._contact.heard_at == heard_at

    servers.run(script, leader=leader)


def test_a_server_does_not_campaign_before_it_has_applied_what_a_look_finds(servers: Servers) -> None:
    leader, lagging = servers.server("srv1"), servers.server("srv2")

    async def script() -> None:
        await lagging.env.sleep(0.3)
        for _ in range(3):
            await leader.append()
        await lagging.env.sleep(3.0)  # the leader is silent
        assert lagging.leading.term is None
        lagging.reader.has_reached(3)
        await lagging.env.sleep(0.3)
        assert lagging.leading.term is not None

    servers.run(script, lagging.leading.watch(), lagging.leading.run(), leader=leader)


def test_a_silent_leader_is_followed_in_time(servers: Servers) -> None:
    leader, follower = servers.server("srv1"), servers.server("srv2")

    async def script() -> None:
        await append_as_an_earlier_version(leader, for_s=1.0)
        silent_at = follower.env.monotonic()
        while follower.leading.term is None:
            await follower.env.sleep(0.01)
        assert 0.5 < follower.env.monotonic() - silent_at < 1.1

    servers.run(script, follower.leading.watch(), follower.leading.run(), follower.follow(), leader=leader)


def test_a_vacant_term_wakes_the_next_leader(servers: Servers) -> None:
    leader, follower = servers.server("srv1"), servers.server("srv2")

    async def script() -> None:
        for _ in range(10):
            await follower.env.sleep(0.17)
            await leader.client.put(KEYS.alive, b"")
        await leader.leading.vacate(leader.leading.term, "srv2")  # type: ignore[arg-type]
        await follower.env.sleep(0.02)
        assert follower.leading.term is not None

    servers.run(script, follower.leading.watch(), follower.leading.run(), leader=leader)


def test_a_follower_that_hears_its_leader_decides_seldom(servers: Servers, monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower, decisions = servers.server("srv1"), servers.server("srv2"), list[float]()
    decide = follower.leading._candidacy.decide

    def counted(observed: Any) -> Any:
        decisions.append(observed.now)
        return decide(observed)

    monkeypatch.setattr(follower.leading._candidacy, "decide", counted)

    async def script() -> None:
        await follower.env.sleep(1.0)
        decisions.clear()
        await follower.env.sleep(20.0)
        assert len(decisions) < 60, "every 0.1 s it would be 200"

    servers.run(script, leader.leading.run(), follower.leading.watch(), follower.leading.run(), leader=leader)


def test_an_epoch_of_another_server_is_read_before_a_campaign(servers: Servers) -> None:
    """The watch has not brought it yet."""
    server = servers.server("srv2")

    async def script() -> None:
        await server.leading.look()
        await server.env.sleep(1.0)
        epoch = msgspec.json.encode(Epoch(number=1, server="srv1"))
        await server.client.txn([], [put(KEYS.epoch, epoch)])
        server.calls.clear()
        await server.leading._follow()
        assert server.calls == {"Range": 1}
        assert server.leading.seen.epoch.server == "srv1"

    servers.run(script)
