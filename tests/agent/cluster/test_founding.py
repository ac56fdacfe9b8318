"""Servers that flap while they form: one cluster at most, and one in the end, whatever dies when.

Membership, memory and the steps of forming are the real ones; the network is a call, etcd is a table. A server may be
killed wherever forming writes something down or starts something.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st
from yurt.agent.cluster import cluster_files, own_etcd, promotion, voters
from yurt.agent.cluster.exchange import Exchange
from yurt.agent.cluster.formation import decide
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.own_etcd import OwnEtcd
from yurt.agent.cluster.records import FAILED_AFTER_S
from yurt.agent.cluster.security import ServerSecurity
from yurt.agent.cluster.voters import Admitter, Voter
from yurt.agent.config import make_config
from yurt.agent.tls import TlsSettings
from yurt.sdk.errors import Conflict, Unavailable, YurtError
from yurt.sdk.value import replace
from yurt.storage.etcd.settings import EtcdMemberConfig, has_member_data
from yurt.structs.cluster import AutopilotConfiguration
from yurt.structs.member import Member
from yurt.testing.fake_cluster import member
from yurt.testing.fakes import FakeEnv

NAMES = "abcd"
POINTS = 8
"""So many moments of a step at which a server may be killed; a step with fewer of them ends."""
ROUNDS_MAX = 30


class Killed(BaseException):
    """kill -9."""


class World(FakeEnv):
    """The clock, and which etcd clusters there are: `kept` is the cluster that each server's data belongs to."""

    def __init__(self, folder: Path, expects: dict[str, int]) -> None:
        super().__init__()
        self.folder = folder
        self.kept: dict[str, str] = {}
        self.clusters: dict[str, list[Voter]] = {}
        self.lives = -1
        """The server that takes a step is killed after so many moments; below 0 it is not."""
        self.servers = {name: Server(name, expect, self) for name, expect in expects.items()}

    async def sleep(self, seconds: float) -> None:
        """Time is moved by the test."""

    def moment(self) -> None:
        """Something has just become durable, or is about to."""
        self.lives -= 1
        if self.lives == 0:
            raise Killed

    def has_quorum(self, cluster: str) -> bool:
        names = [voter.name for voter in self.clusters[cluster] if not voter.is_learner]
        there = [name for name in names if name and self.servers[name[0]].runs and self.kept.get(name) == cluster]
        return len(there) > len(names) // 2

    def check(self) -> None:
        assert len(set(self.kept.values())) <= 1, f"two clusters: {self.kept}"


class Etcd:
    """The etcd member of a server, and the calls about members that it answers."""

    def __init__(self, config: EtcdMemberConfig, world: World) -> None:
        self.config = config
        self._world = world
        self.pid = 1

    async def start(self) -> None:
        world, config = self._world, self.config
        world.moment()
        if not has_member_data(config.data_dir):
            world.kept[config.name] = self._found() if config.is_new_cluster else self._joined()
            write_something(config.data_dir)
        world.moment()

    def _found(self) -> str:
        config = self.config
        text = f"{config.token} {sorted(config.initial_cluster)}"
        made = [Voter(id=name, name=name, address=f"{name[0]}:4649") for name in sorted(config.initial_cluster)]
        self._world.clusters.setdefault(text, made)
        return text

    def _joined(self) -> str:
        name = self.config.name
        for cluster, found in self._world.clusters.items():
            for place, voter in enumerate(found):
                if voter.address == f"{name[0]}:4649" and not voter.name:
                    found[place] = replace(voter, name=name)
                    return cluster
        raise Unavailable("member is not in the cluster")

    async def stop(self) -> None:
        """It is gone with its server."""


def write_something(data_dir: str) -> None:
    """What shows that etcd has run there: a raft log with a received snapshot of index 1."""
    wal = Path(data_dir, "data", "member", "wal")
    wal.mkdir(parents=True)
    record = b"\x08\x05\x1a\x02\x08\x01"
    (wal / f"{0:016x}-{0:016x}.wal").write_bytes(len(record).to_bytes(8, "little") + record)


class Admin:
    """`EtcdAdmin` at one server."""

    def __init__(self, name: str, world: World) -> None:
        self._name = name
        self._world = world

    def _cluster(self) -> list[Voter]:
        cluster = self._world.kept.get(self._name)
        if cluster is None or not self._world.has_quorum(cluster):
            raise Unavailable("no quorum")
        return self._world.clusters[cluster]

    async def voters(self) -> tuple[Voter, ...]:
        return tuple(self._cluster())

    async def add(self, address: str, *, is_tls: bool, is_learner: bool) -> Voter:
        found = self._cluster()
        if is_learner and any(voter.is_learner for voter in found):
            raise Conflict("too many learner members in cluster")
        added = Voter(id=self._world.uuid(), name="", address=address, is_learner=is_learner)
        found.append(added)
        return added

    async def promote(self, voter_id: str) -> None:
        """The server that asks may be killed before and after."""
        self._world.moment()
        found = self._cluster()
        for place, voter in enumerate(found):
            if voter.id == voter_id and voter.name and voter.is_learner:
                found[place] = replace(voter, is_learner=False)
                return self._world.moment()
        raise Conflict("can only promote a learner member which is in sync with leader")

    async def remove(self, voter_id: str) -> None:
        found = self._cluster()
        found[:] = [voter for voter in found if voter.id != voter_id]

    async def move(self, voter_id: str, address: str, reach: voters.Reach) -> None:
        """Nobody moves."""

    async def db_bytes(self) -> int:
        return 0

    async def close(self) -> None:
        """There is nothing to free."""


class Near(Membership):
    """Waits for nothing."""

    async def wait_change(self, limit_s: float) -> None:
        """The next step looks again."""


class NearExchange(Exchange):
    """Asks other servers by a call."""

    world: World

    async def ask_once(self, address: str, region: str, ask: Callable[..., Awaitable[object]], **_: object) -> object:  # type: ignore[override]
        other = self.world.servers[address[0]]
        if other.membership is None:
            raise Unavailable(f"{address}: connection refused")
        return await ask(other.admitter)


class Server:
    """A server: what it is while it lives, and its folder."""

    def __init__(self, name: str, expect: int, world: World) -> None:
        self.full = f"{name}.global"
        self.expect = expect
        self.membership: Near | None = None
        self.admitter: Admitter
        self.etcd: OwnEtcd | None = None
        self.runs = False
        """Its etcd runs."""
        self._world = world
        self._folder = world.folder / name
        self._folder.mkdir()

    def start(self) -> None:
        if self.membership is not None:
            return
        name, world = self.full[0], self._world
        block = {"enabled": True, "bootstrap_expect": self.expect}
        given = {"server": block, "data_dir": str(self._folder), "bind_addr": "127.0.0.1", "name": name}
        own: Member = member(name, has_data=False, expect=self.expect)
        self.membership = Near(own, env=world)
        exchange = NearExchange(self.membership, security=ServerSecurity(TlsSettings()), env=world)
        exchange.world = world
        self.admitter = Admitter(Admin(self.full, world), self.membership, AutopilotConfiguration, env=world)
        config = make_config(given, {}, is_dev=False)
        self.etcd = OwnEtcd(
            config, self._folder, membership=self.membership, exchange=exchange, env=world, tls=TlsSettings()
        )

    def kill(self) -> None:
        self.membership = self.etcd = None
        self.runs = False

    async def step(self, lives: int) -> None:
        """One step of forming, in which it may die; what it could not do it does in the next one."""
        etcd, world = self.etcd, self._world
        if etcd is None or self.runs:
            return
        world.lives = lives
        try:
            if etcd.has_begun:
                await etcd._start({self.full: etcd.peer_url}, is_new=False)
                self.runs = True
            else:
                self.runs = await etcd._form_once()
        except Killed:
            self.kill()
        except YurtError:
            self.runs = False
        finally:
            world.lives = -1

    def hear(self, other: Server) -> None:
        if self.membership is not None and other.membership is not None and self is not other:
            self.membership.merge_update(other.membership.update())
            other.membership.merge_update(self.membership.update())


Op = tuple[str, int, int]
OPS = st.one_of(
    st.tuples(st.just("start"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("kill"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("meet"), st.integers(0, 3), st.integers(0, 3)),
    st.tuples(st.just("step"), st.integers(0, 3), st.integers(-1, POINTS)),
    st.tuples(st.just("wait"), st.just(0), st.integers(1, 7)),
)


async def act(world: World, op: Op) -> None:
    kind, one, other = op
    servers = list(world.servers.values())
    server = servers[one % len(servers)]
    match kind:
        case "start":
            server.start()
        case "kill":
            server.kill()
        case "meet":
            server.hear(servers[other % len(servers)])
        case "step":
            await server.step(other)
        case _:
            world._now_s += other
    world._now_s += 0.001
    world.check()


async def settle_down(world: World) -> None:
    """The faults are over: all run, meet and go on; they are one cluster then."""
    for _ in range(ROUNDS_MAX):
        for server in world.servers.values():
            server.start()
            for other in world.servers.values():
                server.hear(other)
            await server.step(-1)
            world._now_s += 0.1
            world.check()
        if all(server.runs for server in world.servers.values()):
            break
    told = {server.full: server.etcd._reported for server in world.servers.values() if server.etcd is not None}
    assert all(server.runs for server in world.servers.values()), told
    assert set(world.kept) == {server.full for server in world.servers.values()}


def run(ops: list[Op], expects: dict[str, int], *, ends_well: bool = True) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory(prefix="f") as folder:
            world = World(Path(folder), expects)
            with patched(world):
                for op in ops:
                    await act(world, op)
                if ends_well:
                    await settle_down(world)

    asyncio.run(play())


class patched:  # noqa: N801 - a context, read as a word
    """Memory and etcd of the world in the place of the real ones."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._before = (cluster_files.save, own_etcd.EtcdMember, voters._answers, shutil.rmtree)
        self._limit_s = promotion.PROMOTION_LIMIT_S

    def __enter__(self) -> None:
        world, rmtree = self._world, self._before[3]

        def durable_save(path: Path, remembered: cluster_files.Founding | cluster_files.KnownServers) -> None:
            world.moment()
            path.write_bytes(msgspec.json.encode(remembered))
            world.moment()

        def lose_data(folder: Path, **_: object) -> None:
            rmtree(folder, ignore_errors=True)
            for server in world.servers.values():
                if Path(folder).is_relative_to(world.folder / server.full[0]):
                    world.kept.pop(server.full, None)

        async def answers(address: str) -> bool:
            return world.servers[address[0]].runs

        cluster_files.save, voters._answers = durable_save, answers
        promotion.PROMOTION_LIMIT_S = -1.0  # type: ignore[misc] - a step asks once
        own_etcd.EtcdMember = lambda config, env: Etcd(config, world)  # type: ignore[assignment,misc]
        own_etcd.shutil.rmtree = lose_data  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        cluster_files.save, own_etcd.EtcdMember, voters._answers, own_etcd.shutil.rmtree = self._before  # type: ignore[misc]
        promotion.PROMOTION_LIMIT_S = self._limit_s  # type: ignore[misc]


START: list[Op] = [("start", number, 0) for number in range(3)]
MEET: list[Op] = [("meet", one, other) for one in range(3) for other in range(3)] * 2


@settings(max_examples=100, deadline=None)
@given(st.lists(OPS, max_size=40))
@example([*START, *MEET, ("step", 0, 2), *MEET, ("step", 1, 3), ("kill", 2, 0), ("step", 1, -1)])
@example([*START, *MEET, ("step", 0, -1), ("step", 1, -1), ("kill", 0, 0), ("step", 2, -1)])
def test_servers_that_flap_while_they_form_are_one_cluster_in_the_end(ops: list[Op]) -> None:
    run(ops, dict.fromkeys("abc", 3))


WITHOUT_A: list[Op] = [("meet", one, other) for one in (1, 2, 3) for other in (1, 2, 3)] * 2
STEPS: list[Op] = [("step", number, -1) for number in (1, 2, 3)]


@settings(max_examples=100, deadline=None)
@given(st.lists(OPS, max_size=40))
@example([("step", 0, 2), ("start", 3, 0), ("wait", 0, 6), *WITHOUT_A, *STEPS])
@example([("step", 0, 4), ("start", 3, 0), ("wait", 0, 6), *WITHOUT_A, *STEPS])
@example([("step", 0, 4), *[("kill", n, 0) for n in (1, 2)], *[("start", n, 0) for n in (1, 2, 3)], *WITHOUT_A, *STEPS])
def test_a_server_too_many_makes_no_second_cluster(ops: list[Op]) -> None:
    run([*START, *MEET, *ops], dict.fromkeys(NAMES, 3))


@settings(max_examples=30, deadline=None)
@given(st.lists(OPS, max_size=40))
def test_servers_that_expect_different_numbers_found_nothing_and_say_so(ops: list[Op]) -> None:
    async def play() -> None:
        with tempfile.TemporaryDirectory(prefix="f") as folder:
            world = World(Path(folder), {"a": 3, "b": 3, "c": 2})
            with patched(world):
                for op in [*ops, *START, *MEET]:
                    await act(world, op)
                assert world.kept == {}
                own = world.servers["a"].membership
                assert own is not None
                told = decide(own.own, own.members(), own.reports)
                assert "a.global says 3, b.global says 3, c.global says 2" in str(told)

    asyncio.run(play())


def test_the_example_kills_at_every_moment() -> None:
    """Each number of lives ends in another place, and more than a step has ends nowhere."""
    ended = []
    for lives in range(1, 12):
        with tempfile.TemporaryDirectory(prefix="f") as folder:
            world = World(Path(folder), dict.fromkeys("abc", 3))

            async def play(world: World = world, lives: int = lives) -> None:
                with patched(world):
                    for op in [*START, *MEET, ("step", 0, lives)]:
                        await act(world, op)

            with suppress(Killed):
                asyncio.run(play())
            ended.append(world.servers["a"].membership is None)
    assert ended.index(False) >= POINTS
    assert FAILED_AFTER_S < 6
