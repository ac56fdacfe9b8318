"""A formed cluster turns to TLS once all of its servers speak it, whatever is killed and restarted meanwhile."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import combinations
from types import SimpleNamespace
from typing import cast

import pytest
from yurt.agent.cluster.own_etcd import OwnEtcd
from yurt.agent.cluster.peer_address import OtherServers, PeerAddress, Probe, before_its_turn, without_tls
from yurt.agent.cluster.voters import EtcdAdmin, Reach, Voter
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import replace
from yurt.structs.member import FAILED, Member
from yurt.testing.fake_cluster import member
from yurt.testing.fakes import FakeEnv

ALL = tuple(member(name, has_tls=True) for name in "abc")
PLAIN, BOTH, TLS = Reach.IN_PLAIN_TEXT, Reach.BY_BOTH, Reach.BY_TLS


def voters(a: Reach, b: Reach, c: Reach) -> list[Voter]:
    return [
        Voter(id=name, name=f"{name}.global", address=f"{name}:4649", reach=reach)
        for name, reach in zip("abc", (a, b, c), strict=True)
    ]


def test_members_turn_by_name_once_all_are_recorded_with_both_urls() -> None:
    assert before_its_turn("a.global", voters(BOTH, BOTH, BOTH)) == ""
    assert before_its_turn("b.global", voters(TLS, BOTH, BOTH)) == ""
    assert before_its_turn("c.global", voters(TLS, TLS, BOTH)) == ""
    expected = "waiting for the etcd member of a.global to turn to TLS first"
    assert before_its_turn("b.global", voters(BOTH, BOTH, BOTH)) == expected
    expected = "waiting for the etcd members of b.global, c.global to be recorded with a URL of TLS"
    assert before_its_turn("a.global", voters(BOTH, PLAIN, PLAIN)) == expected


def test_a_server_that_is_away_or_does_not_speak_tls_is_waited_for_by_name() -> None:
    for other in (replace(ALL[1], status=FAILED), replace(ALL[1], has_tls=False), replace(ALL[1], has_tls=None)):
        reason = without_tls(voters(PLAIN, PLAIN, PLAIN), (ALL[0], other, ALL[2]))
        assert "waiting for b.global: restart with `tls { rpc = true }`" in reason
        assert "`yurt server force-leave`" in reason


def test_a_member_that_has_not_begun_is_waited_for_by_its_address() -> None:
    joining = Voter(id="d", name="", address="d:4649")
    assert "waiting for d:4649: restart" in without_tls([*voters(PLAIN, PLAIN, PLAIN), joining], ALL)


class LearnersEtcd:
    """The data of etcd while `a` is a learner that has moved; it must not be changed."""

    async def voters(self) -> tuple[Voter, ...]:
        return (replace(voters(PLAIN, PLAIN, PLAIN)[0], address="a:1", is_learner=True),)

    async def move(self, voter_id: str, address: str, reach: Reach) -> None:
        raise AssertionError("etcd would forget that the member is a learner")


async def test_a_learner_corrects_its_address_after_its_promotion() -> None:
    etcd = cast("OwnEtcd", SimpleNamespace(has_peer_tls=True))
    servers = OtherServers(lambda: ALL, tuple, cast("Probe", None))
    address = PeerAddress(etcd, cast("EtcdAdmin", LearnersEtcd()), own=ALL[0], servers=servers, env=FakeEnv())
    assert not await address._look()


class Killed(Exception):
    """The server was killed here."""


class Rested(Exception):
    """The server has looked once."""


class World:
    """Three servers, and the changes of etcd's member list on which a majority has agreed.

    A member knows a prefix of them. A kill takes it back to what an orderly end has last written, which is worse than
    what etcd does. Chance decides who learns what, where a server is killed, which two servers do not accept each
    other's certificates, and when the operator corrects those of one and restarts it.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kills = 40
        self.agreed: list[tuple[str, Reach]] = []
        self.servers = {each.name: Server(each, self) for each in ALL}
        self.refusing = {frozenset(pair) for pair in combinations(self.servers, 2) if self.chance.random() < 0.3}

    def moment(self) -> None:
        """The current server may be killed here."""
        if self.kills > 0 and self.chance.random() < 0.2:
            self.kills -= 1
            raise Killed

    def is_linked(self, one: Server, other: Server) -> bool:
        """Whether one of two running members reaches the other."""
        return one.runs and other.runs and (one.reaches(other) or other.reaches(one))

    def has_majority(self, server: Server) -> bool:
        linked = [each for each in self.servers.values() if each is server or self.is_linked(server, each)]
        return server.runs and len(linked) >= 2

    def check(self) -> None:
        """All running members are linked."""
        for one in self.servers.values():
            for other in self.servers.values():
                if one.runs and other.runs and one is not other:
                    assert self.is_linked(one, other), f"{one} and {other} are parted: {self.agreed}"

    async def step(self) -> None:
        """One server starts, is killed, learns, or looks at its address."""
        server = self.chance.choice(list(self.servers.values()))
        refusals = {pair for pair in self.refusing if server.member.name in pair}
        if refusals and self.chance.random() < 0.02:
            server.kill()
            self.refusing -= refusals
        elif not server.runs:
            server.runs = True
        elif self.has_majority(server) and self.chance.random() < 0.5:
            server.known = self.chance.randint(server.known, len(self.agreed))
        else:
            try:
                self.moment()
                await server.look()
            except Killed:
                server.kill()
        self.check()

    def members(self) -> tuple[Member, ...]:
        """Who is alive, according to a gossip that may be late."""
        return tuple(
            each.member if each.runs or self.chance.random() < 0.5 else replace(each.member, status=FAILED)
            for each in self.servers.values()
        )

    @property
    def is_done(self) -> bool:
        return all(each.has_peer_tls and self.reach(each, len(self.agreed)) is TLS for each in self.servers.values())

    def reach(self, server: Server, known: int) -> Reach:
        """How a server is reached according to the first `known` changes."""
        changes = [reach for name, reach in self.agreed[:known] if name == server.member.name]
        return changes[-1] if changes else PLAIN


class Server:
    """One server: its etcd as `OwnEtcd` and `EtcdAdmin`, and an env whose sleep ends the look."""

    def __init__(self, own: Member, world: World) -> None:
        self.member, self._world = own, world
        self.runs, self.has_peer_tls = True, False
        self.known = self.written = 0

    def __repr__(self) -> str:
        return f"{self.member.name} (TLS: {self.has_peer_tls}, knows {self.known})"

    def reaches(self, other: Server) -> bool:
        reach = self._world.reach(other, self.known)
        is_accepted = not other.has_peer_tls or self.accepts(other)
        return is_accepted and (reach is BOTH or (reach is TLS) == other.has_peer_tls)

    def accepts(self, other: Server) -> bool:
        """Whether the two accept each other's certificates."""
        return frozenset((self.member.name, other.member.name)) not in self._world.refusing

    def kill(self) -> None:
        self.runs, self.known = False, self.written

    async def look(self) -> None:
        servers = OtherServers(self._world.members, lambda: (), self)
        address = PeerAddress(self, self, own=self.member, servers=servers, env=self)  # type: ignore[arg-type]
        with suppress(Rested):
            await address.run()

    async def problem_with(self, server: Member) -> str:
        self._world.moment()
        other = self._world.servers[server.name]
        return "" if other.runs and self.accepts(other) else "they do not accept each other"

    async def mismatches(self, _names: Mapping[str, str]) -> tuple[str, ...]:
        return ()

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, _seconds: float) -> None:
        raise Rested

    async def voters(self) -> tuple[Voter, ...]:
        if not self._world.has_majority(self):
            raise Unavailable("no majority")
        return tuple(
            Voter(id=name, name=name, address=each.member.etcd_addr, reach=self._world.reach(each, self.known))
            for name, each in self._world.servers.items()
        )

    async def move(self, voter_id: str, address: str, reach: Reach) -> None:
        assert (voter_id, address) == (self.member.name, self.member.etcd_addr)
        self._world.moment()
        if not self._world.has_majority(self):
            raise Unavailable("no majority")
        self._world.agreed.append((voter_id, reach))
        self._world.moment()
        self.known = len(self._world.agreed)

    async def turn_to_tls(self) -> None:
        self._world.moment()
        self.written = self.known
        self._world.moment()
        self.has_peer_tls = True
        self._world.moment()


@pytest.mark.parametrize("seed", range(100))
async def test_the_members_stay_linked_and_turn_to_tls_whatever_is_killed(seed: int) -> None:
    world = World(seed)
    for _ in range(20_000):
        await world.step()
        if world.is_done and not world.kills:
            return
    raise AssertionError(f"they do not turn: {world.servers}, {world.agreed}")


class Surroundings:
    """What one server sees: its etcd, a probe, and an env whose sleep ends the look; all voters are ready to turn."""

    has_peer_tls = False

    def __init__(self, *members: Member) -> None:
        self.known = members
        self.listed: Sequence[Voter] = [
            Voter(id=each.name, name=each.name, address=each.etcd_addr, reach=BOTH) for each in ALL
        ]
        self.meanwhile: Callable[[], None] = lambda: None
        self.asked: list[Mapping[str, str]] = []
        self.turned = self.slept = 0

    async def look(self, *addresses: str, times: int = 1) -> None:
        servers = OtherServers(lambda: self.known, lambda: addresses, self)
        self.slept = -times
        with suppress(Rested):
            await PeerAddress(self, self, own=ALL[0], servers=servers, env=self).run()  # type: ignore[arg-type]

    async def voters(self) -> tuple[Voter, ...]:
        return tuple(self.listed)

    async def problem_with(self, _server: Member) -> str:
        self.meanwhile()
        return ""

    async def mismatches(self, names: Mapping[str, str]) -> tuple[str, ...]:
        self.asked.append(dict(names))
        return ("a certificate is refused",)

    async def turn_to_tls(self) -> None:
        self.turned += 1

    def monotonic(self) -> float:
        return 0.0

    async def sleep(self, _seconds: float) -> None:
        self.slept += 1
        if not self.slept:
            raise Rested


async def test_a_member_does_not_turn_when_etcds_data_change_during_the_checks() -> None:
    around = Surroundings(*ALL)
    around.meanwhile = lambda: setattr(around, "listed", voters(BOTH, BOTH, PLAIN))
    await around.look()
    assert not around.turned
    around = Surroundings(*ALL)
    await around.look()
    assert around.turned == 1


async def test_servers_that_are_not_heard_are_asked_for_their_certificates(caplog: pytest.LogCaptureFixture) -> None:
    a, b, c = ALL
    around = Surroundings(a, replace(b, status=FAILED), c, member("e", "eu", status=FAILED))
    await around.look("d:4648", b.address, times=3)
    assert around.asked == [{b.address: b.name}], "once in ten seconds, and only servers that have an etcd member"
    assert "waiting for b.global" in caplog.text
    assert "; a certificate is refused" in caplog.text
    assert caplog.text.count("is delayed") == 1
    around.known = (a, b)
    await around.look("d:4648", b.address)
    assert around.asked[1:] == [{"d:4648": ""}], "c.global may be there"
