"""A formed cluster turns to TLS once all of its servers speak it, whatever is killed and restarted meanwhile."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import suppress

import pytest
from yurt.agent.cluster.peer_address import OtherServers, PeerAddress, before_its_turn, without_tls
from yurt.agent.cluster.voters import Reach, Voter
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import replace
from yurt.structs.member import FAILED, Member
from yurt.testing.fake_cluster import member

ALL = tuple(member(name, has_tls=True) for name in "abc")
OURS = "ours"
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


class Killed(Exception):
    """The server was killed here."""


class Rested(Exception):
    """The server has looked once."""


class World:
    """Three servers, and the changes of etcd's member list on which a majority has agreed.

    A member knows a prefix of them. A kill takes it back to what an orderly end has last written, which is worse than
    what etcd does. Chance decides who learns what, where a server is killed, whose certificate another authority has
    signed, and when the operator corrects that one and restarts its server.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.kills = 40
        self.agreed: list[tuple[str, Reach]] = []
        self.servers = {each.name: Server(each, self) for each in ALL}

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
        if server.authority != OURS and self.chance.random() < 0.02:
            server.kill()
            server.authority = OURS
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
        self.authority = world.chance.choice((OURS, OURS, f"another of {own.name}"))

    def __repr__(self) -> str:
        return f"{self.member.name} (TLS: {self.has_peer_tls}, knows {self.known})"

    def reaches(self, other: Server) -> bool:
        reach = self._world.reach(other, self.known)
        is_accepted = not other.has_peer_tls or self.authority == other.authority
        return is_accepted and (reach is BOTH or (reach is TLS) == other.has_peer_tls)

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
        return "" if other.runs and other.authority == self.authority else "they do not accept each other"

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
