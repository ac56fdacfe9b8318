"""Servers over real connections on loopback: they meet, notice silence, refuse what is not theirs, and leave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import zip_longest

import pytest
from yurt.agent.blocks.cluster import ClusterSettings
from yurt.agent.cluster.exchange import Exchange
from yurt.agent.cluster.joining import Joiner
from yurt.agent.cluster.members_listener import MembersListener
from yurt.agent.cluster.members_port import AdmissionAnswer, MemberAdmission, MembersPort, NoAdmission
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.records import FAILED_AFTER_S, MembershipUpdate
from yurt.agent.cluster.security import ServerSecurity
from yurt.agent.config import AgentConfig
from yurt.agent.peers import ServerLinks
from yurt.agent.tls import TlsSettings
from yurt.rpc.dialling import Dialler
from yurt.rpc.frames import Hello
from yurt.rpc.link import Link
from yurt.runtime.env import RealEnv
from yurt.sdk.errors import Conflict, NotFound, PermissionDenied, Unavailable
from yurt.sdk.value import replace
from yurt.structs.member import ALIVE, FAILED, LEAVING, LEFT, Member
from yurt.testing.fake_cluster import member
from yurt.testing.fakes import FakeEnv, eventually

LIMIT_S = 60.0


def statuses_of(members: Iterable[Member]) -> dict[str, str]:
    return {each.name: each.status for each in members}


class Directory:
    """The servers that one membership knows."""

    def __init__(self, membership: Membership) -> None:
        self.members, self.subscribe = membership.members, membership.subscribe

    def published_rules(self) -> dict[str, int]:
        return {each.name: each.rules for each in self.members()}


NO_ADMISSION = NoAdmission()


class Node:
    """A server that listens on a port of its own."""

    def __init__(self, each: Member, admission: MemberAdmission = NO_ADMISSION, index: int = 0) -> None:
        security = ServerSecurity(TlsSettings())
        self.membership = Membership(each, env=RealEnv(), applied_index=lambda: index)
        self.exchange = Exchange(self.membership, security=security, env=RealEnv())
        self.listener = MembersListener(self.membership, security=security, admission=admission)
        self.running: asyncio.Task[None]

    async def start(self, group: asyncio.TaskGroup, address: str = "127.0.0.1:0") -> None:
        port = await self.listener.start(address)
        self.membership.change_own(address=f"127.0.0.1:{port}")
        self.running = group.create_task(self.exchange.run())

    @property
    def address(self) -> str:
        return self.membership.own.address

    def statuses(self) -> dict[str, str]:
        return statuses_of(self.membership.members())

    async def wait(self, **expected: str) -> None:
        """Wait until it sees these statuses."""
        async with asyncio.timeout(LIMIT_S):
            while any(self.statuses().get(f"{name}.global") != status for name, status in expected.items()):
                await self.membership.wait_change(0.05)

    async def stop(self) -> None:
        self.running.cancel()
        with suppress(asyncio.CancelledError):
            await self.running
        await self.listener.stop()


@asynccontextmanager
async def nodes(
    *members: Member, admission: MemberAdmission = NO_ADMISSION, indexes: Sequence[int] = ()
) -> AsyncIterator[list[Node]]:
    """Servers that do not know each other yet."""
    async with asyncio.TaskGroup() as group:
        found = []
        for each, index in zip_longest(members, indexes, fillvalue=0):
            assert isinstance(each, Member)
            found.append(Node(each, admission, index))
            await found[-1].start(group)
        try:
            yield found
        finally:
            for node in (each for each in found if not each.running.done()):
                await node.stop()


def joiner(node: Node, *retry: str, **settings: int) -> Joiner:
    made = ClusterSettings(retry_join=retry, retry_interval_s=0.1, **settings)
    return Joiner(made, membership=node.membership, exchange=node.exchange, peers=())


async def test_servers_that_join_one_know_all(tmp_path: object) -> None:
    async with nodes(member("a"), member("b"), member("c", region="global", has_data=True)) as (a, b, c):
        assert await b.exchange.join(a.address) == "a.global"
        assert await c.exchange.join(a.address) == "a.global"
        for node in (a, b, c):
            await node.wait(a=ALIVE, b=ALIVE, c=ALIVE)
        assert next(each for each in b.membership.members() if each.name == "c.global").has_data


async def test_a_silent_server_fails_and_one_that_comes_back_is_alive() -> None:
    async with nodes(member("a"), member("b")) as (a, b):
        await b.exchange.join(a.address)
        await a.wait(b=ALIVE)
        address = b.address
        await b.stop()
        await a.wait(b=FAILED)
        a.membership.force_leave("a.global", forget=True)
        assert a.statuses()["a.global"] == ALIVE
        again = Node(replace(member("b"), address=address))
        async with asyncio.TaskGroup() as group:
            await again.start(group, address)
            await a.wait(b=ALIVE)
            await again.stop()


async def test_a_server_that_leaves_and_one_that_is_forced_out_have_left() -> None:
    async with nodes(member("a"), member("b"), member("c")) as (a, b, c):
        for node in (b, c):
            await node.exchange.join(a.address)
        await a.wait(b=ALIVE, c=ALIVE)
        await c.wait(b=ALIVE)
        await b.exchange.leave()
        await b.stop()
        await a.wait(b=LEFT)
        await c.stop()
        await a.wait(c=FAILED)
        a.membership.force_leave("c.global", forget=True)
        assert "c.global" not in a.statuses()
        with pytest.raises(NotFound, match="server members"):
            a.membership.force_leave("c.global", forget=False)


@pytest.mark.parametrize(("forget", "shown"), [(False, LEAVING), (True, None)])
@pytest.mark.parametrize("name", ["a.global", "b.global", "c.eu"])
async def test_a_live_server_that_is_forced_out_is_shown_so_for_a_while_and_stays_in_use(
    name: str, forget: bool, shown: str | None
) -> None:
    env = FakeEnv()
    membership, others = Membership(member("a"), env=env), (member("b"), member("c", region="eu"))
    heard = [MembershipUpdate(sender=each.name, members=others) for each in others]
    for update in heard:
        membership.merge_update(update)
    changes: list[bool] = []
    membership.subscribe(lambda: changes.append(True))
    before = membership.update()
    membership.force_leave(name, forget=forget)
    for expected in (shown, shown, shown, shown, shown, ALIVE, ALIVE):
        membership.reap()
        statuses = statuses_of(membership.shown_members())
        assert statuses.pop(name, None) == expected
        assert list(statuses.values()) == [ALIVE, ALIVE]
        assert membership.update() == before
        await env.advance(1)
        for update in heard:
            membership.merge_update(update)
    assert changes == []
    membership.mark_left()
    membership.force_leave(name, forget=forget)
    membership.reap()
    assert statuses_of(membership.members())["a.global"] == LEFT


@pytest.mark.parametrize("ends_after_s", [0, 4])
@pytest.mark.parametrize("forget", [False, True])
async def test_a_server_that_ends_near_the_moment_when_it_is_forced_out_has_left(
    ends_after_s: int, forget: bool
) -> None:
    env = FakeEnv()
    membership, other = Membership(member("a"), env=env), member("b")
    heard = MembershipUpdate(sender=other.name, members=(other,))
    membership.merge_update(heard)
    membership.force_leave(other.name, forget=forget)
    for _ in range(ends_after_s):
        await env.advance(1)
        membership.merge_update(heard)
        membership.reap()
    await env.advance(FAILED_AFTER_S)
    membership.reap()
    own = {"a.global": ALIVE}
    assert statuses_of(membership.shown_members()) == (own if forget else {**own, "b.global": LEAVING})
    assert statuses_of(membership.members()) == {**own, "b.global": ALIVE}
    await env.advance(1)
    membership.reap()
    left = own if forget else {**own, "b.global": LEFT}
    assert statuses_of(membership.shown_members()) == statuses_of(membership.update().members) == left
    assert ("b.global" in membership.update().forgotten) == forget


async def test_an_order_to_force_a_server_out_ends_with_its_record() -> None:
    env = FakeEnv()
    membership, other = Membership(member("a"), env=env), member("b")
    membership.merge_update(MembershipUpdate(sender=other.name, members=(other,)))
    membership.force_leave(other.name, forget=False)
    membership.merge_update(MembershipUpdate(sender="c.global", members=(member("c"),), forgotten={other.name: 1}))
    membership.reap()
    membership.merge_update(MembershipUpdate(sender=other.name, members=(replace(other, incarnation=2),)))
    assert set(statuses_of(membership.shown_members()).values()) == {ALIVE}


@pytest.mark.parametrize("forget", [False, True])
def test_a_live_server_that_is_forced_out_is_reached_as_before(forget: bool) -> None:
    membership, other = Membership(member("a"), env=FakeEnv()), member("b")
    membership.merge_update(MembershipUpdate(sender=other.name, members=(other,)))
    directory = Directory(membership)
    links = ServerLinks(AgentConfig(name="a"), directory=directory, env=FakeEnv(), tls=TlsSettings(), run_id="1")
    membership.force_leave(other.name, forget=forget)
    assert statuses_of(membership.shown_members()).get("b.global") == (None if forget else LEAVING)
    assert (links.names, links.voters, "b:4647" in links.addresses) == (("b.global",), 2, True)


async def test_another_server_of_the_same_name_is_refused_and_oneself_is_not() -> None:
    async with nodes(member("a"), member("a"), member("b")) as (a, twin, b):
        with pytest.raises(Unavailable, match=r'there is a server "a\.global" already'):
            await twin.exchange.join(a.address)
        assert await a.exchange.join(a.address) == "a.global"
        await a.exchange.join(b.address)
        await b.wait(a=ALIVE)
        with pytest.raises(Unavailable, match="already"):
            await twin.exchange.join(b.address)


class Asked:
    """An admission that takes in everybody and records for what it was asked."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.learners: list[str] = []

    async def admit(self, member: Member, *, knows_learners: bool = False) -> AdmissionAnswer:
        assert knows_learners
        self.members.append(member)
        return AdmissionAnswer(cluster={member.name: member.etcd_addr})

    async def promote(self, learner_id: str) -> None:
        self.learners.append(learner_id)


async def test_a_server_is_admitted_only_for_itself_and_in_its_region() -> None:
    asking, far_member = Asked(), member("far", region="mars")
    async with nodes(member("a"), admission=asking) as (a,), nodes(member("b"), far_member) as (b, far):

        async def ask(node: Node, each: Member) -> AdmissionAnswer:
            def call(port: MembersPort) -> object:
                return port.admit(each, knows_learners=True)

            return await node.exchange.ask_once(a.address, "global", call)  # type: ignore[arg-type]

        own = b.membership.own
        assert (await ask(b, own)).cluster == {"b.global": own.etcd_addr}
        with pytest.raises(PermissionDenied, match=r"speaks for server b.global, not for c.global"):
            await ask(b, member("c"))
        with pytest.raises(Conflict, match="this server is of region global"):
            await ask(far, far.membership.own)
        with pytest.raises(Unavailable, match="not part of a cluster yet"):
            await a.exchange.ask_once(b.address, "global", lambda port: port.admit(a.membership.own))
        assert asking.members == [own]
        await b.exchange.ask_once(a.address, "global", lambda port: port.promote("1f"))
        with pytest.raises(PermissionDenied):
            await far.exchange.ask_once(a.address, "global", lambda port: port.promote("2f"))
        assert asking.learners == ["1f"]


async def test_a_server_tells_news_as_itself_and_has_a_name_of_its_region() -> None:
    async with nodes(member("a"), member("b")) as (a, b):
        update = replace(b.membership.update(), sender="c.global")
        with pytest.raises(PermissionDenied, match=r"speaks for server b\.global, not for c\.global"):
            await b.exchange.ask_once(a.address, "global", lambda port: port.exchange(update))
        assert a.membership.reports == {}
        hello = Hello(role="server", region="far", name="c.global", node_id="1")
        link = Link((a.address,), dialler=Dialler(lambda: hello), serves={}, env=RealEnv())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(link.run())
            await eventually(lambda: "may not call itself c.global" in link.problem)
            running.cancel()


async def test_another_region_tells_only_of_servers_that_are_not_yet_known() -> None:
    async with nodes(member("a"), member("far", region="east")) as (a, far):
        known, new = member("b", incarnation=1), member("c", incarnation=1)
        a.membership.merge_update(replace(a.membership.update(), sender="b.global", members=(known,)))
        lies = (replace(known, status=LEFT, incarnation=9), replace(a.membership.own, status=LEFT, incarnation=9), new)
        update = replace(far.membership.update(), members=(far.membership.own, *lies), forgotten={"b.global": 9})
        a.membership.merge_update(update)
        assert a.statuses() == {"a.global": ALIVE, "b.global": ALIVE, "c.global": ALIVE, "far.east": ALIVE}


async def test_addresses_are_tried_until_another_server_answers() -> None:
    async with nodes(member("a"), member("b")) as (a, b):
        await joiner(a, a.address, "127.0.0.1:1", b.address).run()
        await b.wait(a=ALIVE)


async def test_a_server_gives_up_where_it_is_told_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yurt.agent.cluster.exchange.JOIN_LIMIT_S", 0.5)
    async with nodes(member("a")) as (a,):
        with pytest.raises(Unavailable, match=r"in 2 attempts: 127.0.0.1:1: it cannot be reached"):
            await joiner(a, "127.0.0.1:1", retry_max=2).run()
        start = ClusterSettings(start_join=("127.0.0.1:1",))
        with pytest.raises(Unavailable, match="start_join: no server can be joined"):
            await Joiner(start, membership=a.membership, exchange=a.exchange, peers=()).run()
        joined = await joiner(a).join(("127.0.0.1:1", a.address))
        assert joined.count == 0 and len(joined.problems) == 1


async def test_clients_are_told_that_this_is_no_port_for_them() -> None:
    async with nodes(member("a")) as (a,):
        link = Link((a.address,), dialler=Dialler(lambda: Hello(name="x", node_id="1")), serves={}, env=RealEnv())
        running = asyncio.ensure_future(link.run())
        await eventually(lambda: "clients connect to the rpc port" in link.problem)
        running.cancel()


async def test_news_tell_how_far_a_server_is() -> None:
    async with nodes(member("a"), member("b"), indexes=(12, 5)) as (a, b):
        await b.exchange.join(a.address)
        await a.wait(b=ALIVE)
        assert (a.membership.index_of("b.global"), a.membership.trailing["b.global"]) == (5, 7)
        assert a.membership.index_of("a.global") == 12
        assert isinstance(a.membership.reports["b.global"], MembershipUpdate)
