"""Servers that left are put out, those that failed only when others have taken their place."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.agent.cluster.dead_servers import LEARNER_INTERVAL_S, DeadServerCleanup, removable_servers
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.voters import EtcdAdmin, Voter, find_peer, replaceable
from yurt.http.cluster import LogPeer
from yurt.sdk.errors import NotFound
from yurt.sdk.value import replace
from yurt.structs.cluster import AutopilotConfiguration
from yurt.structs.member import ALIVE, FAILED, LEFT, Member
from yurt.testing.fakes import FakeEnv

DEFAULTS = AutopilotConfiguration()


def server(number: int, status: str = ALIVE, expect: int = 3) -> Member:
    name = f"s{number}"
    return Member(
        name=f"{name}.global",
        region="global",
        datacenter="dc1",
        version="1",
        address=f"{name}:4648",
        rpc_addr=f"{name}:4647",
        http_addr=f"{name}:4646",
        etcd_addr=f"{name}:4649",
        status=status,
        expect=expect,
    )


def servers(*statuses: str) -> list[Member]:
    return [server(number, status) for number, status in enumerate(statuses)]


def voters(members: list[Member]) -> list[Voter]:
    return [Voter(id=f"{number:x}", name=each.name, address=each.etcd_addr) for number, each in enumerate(members)]


def put_out(members: list[Member], config: AutopilotConfiguration = DEFAULTS) -> str:
    gone = removable_servers(voters(members), members, config, expired={each.name for each in members})
    return gone.name if gone is not None else ""


def test_a_server_that_left_is_put_out_whatever_the_size() -> None:
    assert put_out(servers(ALIVE, ALIVE, LEFT)) == "s2.global"
    assert put_out(servers(ALIVE, LEFT)) == "s1.global"


def test_a_failed_server_stays_until_another_one_has_come() -> None:
    assert put_out(servers(ALIVE, ALIVE, FAILED)) == ""
    assert put_out(servers(ALIVE, ALIVE, FAILED, ALIVE)) == "s2.global"
    assert put_out(servers(ALIVE, ALIVE, FAILED, ALIVE), replace(DEFAULTS, min_quorum=4)) == ""
    assert put_out(servers(ALIVE, ALIVE, FAILED, ALIVE), replace(DEFAULTS, cleanup_dead_servers=False)) == ""


def test_a_server_that_failed_a_moment_ago_stays() -> None:
    members = servers(ALIVE, ALIVE, FAILED, ALIVE)
    assert removable_servers(voters(members), members, DEFAULTS, expired=()) is None


def test_a_server_that_went_before_its_member_began_is_put_out() -> None:
    """etcd does not name such a member, which counts among those that it needs."""
    for status, size in ((LEFT, 3), (FAILED, 4)):
        members = servers(*[ALIVE] * (size - 1), status)
        unnamed = [replace(each, name="") if each.name == members[-1].name else each for each in voters(members)]
        gone = removable_servers(unnamed, members, DEFAULTS, expired={members[-1].name})
        assert gone is not None and gone.address == members[-1].etcd_addr


@pytest.mark.parametrize("status", [LEFT, FAILED])
def test_a_server_that_joins_at_the_address_of_a_gone_one_is_kept(status: str) -> None:
    """A renamed machine is a new server; the old name stays among the members for a while."""
    gone, *others = servers(status, ALIVE, ALIVE, ALIVE, ALIVE)
    joining = replace(others[-1], etcd_addr=gone.etcd_addr)
    members = [gone, *others[:-1], joining]
    begun = voters(members)[1:]
    unnamed = [replace(each, name="") if each.name == joining.name else each for each in begun]
    assert removable_servers(unnamed, members, DEFAULTS, expired={gone.name}) is None


def test_a_learner_counts_neither_for_the_majority_nor_for_the_size() -> None:
    for statuses, gone in (((ALIVE, ALIVE, FAILED, ALIVE), ""), ((ALIVE, FAILED, LEFT, ALIVE), "")):
        members = servers(*statuses)
        *begun, joining = voters(members)
        joins = replace(joining, is_learner=True)
        found = removable_servers([*begun, joins], members, DEFAULTS, expired={each.name for each in members})
        assert (found.name if found is not None else "") == gone


class LearningEtcd:
    """One voter and learners."""

    def __init__(self, *learners: Member) -> None:
        joining = [Voter(id=each.name, name="", address=each.etcd_addr, is_learner=True) for each in learners]
        self.kept = [*voters(servers(ALIVE)), *joining]

    async def voters(self) -> tuple[Voter, ...]:
        return tuple(self.kept)

    async def remove(self, voter_id: str) -> None:
        self.kept = [voter for voter in self.kept if voter.id != voter_id]


async def test_a_learner_that_no_server_goes_on_with_is_removed() -> None:
    """One whose server has become known a moment later stays."""
    env, (own, known) = FakeEnv(), servers(ALIVE, ALIVE)
    membership, etcd = Membership(own, env=env), LearningEtcd(known, server(7))
    cleanup = DeadServerCleanup(
        membership=membership, etcd=cast("EtcdAdmin", etcd), env=env, leads=lambda: True, config=AutopilotConfiguration
    )
    running = asyncio.create_task(cleanup.run())
    await env.advance(LEARNER_INTERVAL_S)
    membership.merge_update(Membership(known, env=env).update())
    assert len(etcd.kept) == 3
    for _ in range(3):
        membership.merge_update(Membership(known, env=env).update())
        await env.advance(LEARNER_INTERVAL_S / 2)
    assert [voter.address for voter in etcd.kept] == [own.etcd_addr, known.etcd_addr]
    running.cancel()


def test_nobody_is_put_out_by_a_minority() -> None:
    assert put_out(servers(ALIVE, FAILED, FAILED, LEFT)) == ""
    assert put_out(servers(ALIVE, FAILED, FAILED)) == ""


@given(st.lists(st.sampled_from([ALIVE, FAILED, LEFT]), min_size=1, max_size=7), st.integers(0, 7))
def test_what_is_left_can_always_go_on(statuses: list[str], min_quorum: int) -> None:
    members = servers(*statuses)
    gone = put_out(members, replace(DEFAULTS, min_quorum=min_quorum))
    left = [each for each in members if each.name != gone]
    if gone:
        assert sum(each.status == ALIVE for each in left) > len(left) // 2
        status = next(each.status for each in members if each.name == gone)
        assert status == LEFT or len(left) >= max(3, min_quorum)


def test_a_peer_is_found_by_id_name_and_address_of_its_server() -> None:
    peers = [LogPeer(id=f"{number}", name=f"s{number}.global", address=f"s{number}:4647") for number in range(2)]
    for expected in ("1", "s1.global", "s1:4647"):
        assert find_peer(peers, expected).name == "s1.global"
    for expected in ("nobody", ""):
        with pytest.raises(NotFound, match="list-peers"):
            find_peer(peers, expected)


def test_only_the_place_of_a_server_that_is_gone_is_taken() -> None:
    members = servers(ALIVE, FAILED, ALIVE)
    begins = Voter(id="9", name="", address="s9:4649")
    found = replaceable([begins, *voters(members)], members)
    assert found is not None and found.name == "s1.global"
    assert replaceable([begins, *voters(servers(ALIVE))], servers(ALIVE)) is None
