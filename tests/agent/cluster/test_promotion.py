"""A server asks the others to promote its etcd member until one has, its etcd ends, or the time is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest
from yurt.agent.cluster.exchange import Exchange
from yurt.agent.cluster.members_port import Ask, MembersPort
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.promotion import PROMOTION_LIMIT_S, Promotion, promoters
from yurt.sdk.errors import Conflict, Unavailable
from yurt.sdk.value import replace
from yurt.structs.member import FAILED, LEFT, Member
from yurt.testing.fake_cluster import member
from yurt.testing.fakes import FakeEnv

OWN = member("b", has_data=False)
A, C = (member(name, has_data=True) for name in "ac")


class Servers:
    """The other servers: `promote` is called with each one's address and may raise."""

    def __init__(self, promote: Callable[[str], None]) -> None:
        self.env = FakeEnv()
        self.asked: list[str] = []
        self.promote_at = promote
        self.own = OWN
        self.promotion = Promotion(cast("Exchange", self), cast("Membership", self), self.env)

    def members(self) -> tuple[Member, ...]:
        return (A, C)

    async def ask_once(self, address: str, region: str, ask: Ask[None], *, limit_s: float) -> None:
        self.asked.append(address)
        self.promote_at(address)
        await ask(cast("MembersPort", self))

    async def promote(self, learner_id: str) -> None:
        assert learner_id == "1f"


async def test_the_next_server_is_asked_when_one_has_gone() -> None:
    def promote(address: str) -> None:
        if address == A.address:
            raise Unavailable("it cannot be reached")

    servers = Servers(promote)
    await servers.promotion.wait("1f", lambda: True)
    assert servers.asked == [A.address, C.address]


async def test_a_learner_that_is_behind_is_promoted_later(caplog: pytest.LogCaptureFixture) -> None:
    def promote(_: str) -> None:
        if servers.env.monotonic() < 5:
            raise Conflict("can only promote a learner member which is in sync with leader")

    caplog.set_level("INFO")
    servers = Servers(promote)
    waiting = asyncio.create_task(servers.promotion.wait("1f", lambda: True))
    await servers.env.advance(4)
    assert not waiting.done()
    await servers.env.advance(2)
    await waiting
    assert caplog.text.count("waits for its promotion to a voter: reason=a.global: can only promote") == 1


async def test_the_wait_has_a_limit_that_names_what_was_missing() -> None:
    def promote(_: str) -> None:
        raise Conflict("in sync with leader")

    servers = Servers(promote)
    waiting = asyncio.create_task(servers.promotion.wait("1f", lambda: True))
    await servers.env.advance(PROMOTION_LIMIT_S + 2)
    with pytest.raises(Unavailable, match=r"to a voter in 30 s: a\.global: in sync with leader; c\.global"):
        await waiting


async def test_the_wait_ends_with_etcd() -> None:
    def promote(_: str) -> None:
        raise Conflict("in sync with leader")

    with pytest.raises(Unavailable, match="etcd ended before"):
        await Servers(promote).promotion.wait("1f", lambda: False)


def test_servers_with_data_that_are_there_are_asked() -> None:
    others = (replace(A, status=FAILED), replace(A, status=LEFT), replace(A, has_data=False), replace(A, region="mars"))
    for other in (*others, replace(A, etcd_addr=""), replace(OWN, has_data=True)):
        assert promoters(OWN, (other, C)) == (C,)
