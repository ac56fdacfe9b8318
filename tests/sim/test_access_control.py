"""Three servers with access control on one log: who is accepted while leaders change, and how old a state may be.

What concurrent clients were answered about tokens under faults is checked in whole clusters (`test_whole_cluster`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from functools import cache
from typing import Any

import pytest
from yurt.access import ANYWHERE, Actor, ShownToken, needs
from yurt.sdk.errors import Unavailable
from yurt.server.config import AclConfig
from yurt.server.server import Server
from yurt.structs.acl import ACLToken, hash_of_secret
from yurt.testing.cluster_models.servers import NAMES, ServerGroup
from yurt.testing.fakes import FakeEnv, eventually, settle
from yurt.testing.histories.acl import tokens

KIND = tokens.TokenKind()
KEYS = [KIND.key(number) for number in range(3)]
TTL_S = AclConfig().token_ttl_s
ACCESSOR, SECRET = KEYS[0], tokens.secret_of(KEYS[0])


@cache
def actor(key: str) -> Actor:
    """The caller of a connection: the same object each time, for which answers are remembered."""
    return Actor(caller=ShownToken(secret_hash=hash_of_secret(tokens.secret_of(key))))


def token(key: str, mark: str) -> ACLToken:
    return ACLToken(accessor_id=key, name=mark, type="client", policies=("none",))


def is_accepted(server: Server, key: str = ACCESSOR) -> bool:
    """Whether a server takes a token by the state that it has."""
    return server.authority.allows(actor(key), needs.AUTHENTICATED, ANYWHERE)


@pytest.fixture
async def group() -> AsyncIterator[ServerGroup]:
    """Three servers of which the first leads, with one token."""
    async with ServerGroup(FakeEnv(), acl=AclConfig(enabled=True)).running() as made:
        await eventually(lambda: made[NAMES[0]].is_leader)
        await made[NAMES[0]].resources.acl_tokens.create(token(ACCESSOR, "first"), SECRET)
        await eventually(lambda: all(ACCESSOR in each.state.acl_tokens for each in made.servers.values()))
        await made.env.advance(3)
        yield made


async def test_a_revocation_counts_on_every_server_from_the_state_that_has_it(group: ServerGroup) -> None:
    """No cache keeps a token for a time: the clock stands still."""
    env: FakeEnv = group.env  # type: ignore[assignment]
    before = env.monotonic()
    assert all(is_accepted(server) for server in group.servers.values())
    index = await group.leader.resources.acl_tokens.delete(ACCESSOR)
    assert not is_accepted(group.leader)
    await eventually(lambda: all(server.state.index >= index for server in group.servers.values()))
    assert not any(is_accepted(server) for server in group.servers.values())
    assert env.monotonic() == before


async def test_a_server_that_is_cut_off_decides_by_its_state_for_the_ttl_only(group: ServerGroup) -> None:
    env: FakeEnv = group.env  # type: ignore[assignment]
    alone = group[NAMES[2]]
    group.cut(NAMES[2])
    await group.leader.resources.acl_tokens.delete(ACCESSOR)
    await env.advance(TTL_S - 5)
    assert is_accepted(alone), "a stale read may be as old as acl.token_ttl"
    await env.advance(10)
    with pytest.raises(Unavailable, match=r"is 3\d s behind the leader, and decides about tokens for 30 s only"):
        is_accepted(alone)
    assert alone.authority.allows(actor(ACCESSOR), needs.ANONYMOUS, ANYWHERE), "what needs no token is answered"
    group.mend(NAMES[2])
    await eventually(lambda: alone.state.index == group.leader.state.index)
    await env.advance(3)
    assert not is_accepted(alone)


async def test_a_server_whose_log_stands_still_is_cut_off_though_it_hears_from_the_leader(group: ServerGroup) -> None:
    env: FakeEnv = group.env  # type: ignore[assignment]
    lagging = group[NAMES[1]]
    assert is_accepted(lagging)
    group.view(NAMES[1]).delivers.clear()
    await group.leader.resources.acl_tokens.delete(ACCESSOR)
    await env.advance(TTL_S + 5)
    assert lagging.leader.last_contact_s < TTL_S
    with pytest.raises(Unavailable, match="behind the leader"):
        is_accepted(lagging)
    group.view(NAMES[1]).delivers.set()


async def test_a_server_that_starts_alone_decides_nothing_by_the_state_on_its_disk(group: ServerGroup) -> None:
    await group[NAMES[2]].log.snapshotter.save()
    await group.kill(NAMES[2])
    for name in NAMES[:2]:
        group.cut(name)
    group.start(NAMES[2])
    await settle()
    with pytest.raises(Unavailable, match="has not seen the leader's state yet"):
        is_accepted(group[NAMES[2]])
    for name in NAMES[:2]:
        group.mend(name)


async def test_a_leader_that_was_frozen_decides_nothing_before_it_knows_who_leads(group: ServerGroup) -> None:
    """It wakes after the TTL and has not been told yet that another server has led since."""
    env: FakeEnv = group.env  # type: ignore[assignment]
    old = group.leader
    assert is_accepted(old)
    group.view(old.config.name).delivers.clear()
    group.log.elect(NAMES[1])
    await eventually(lambda: group[NAMES[1]].is_leader)
    await waited(group[NAMES[1]].resources.acl_tokens.delete(ACCESSOR))
    await env.advance(TTL_S + 5)
    assert old.is_leader, "it takes itself for the leader"
    with pytest.raises(Unavailable, match=r"is 3\d s behind the leader"):
        is_accepted(old)
    group.view(old.config.name).delivers.set()
    await eventually(lambda: not old.is_leader)
    with pytest.raises(Unavailable, match="behind the leader"):
        is_accepted(old)
    await env.advance(3)
    assert not is_accepted(old)


async def test_a_leader_with_nothing_to_store_goes_on_deciding(group: ServerGroup) -> None:
    await group.env.advance(3 * TTL_S)  # type: ignore[attr-defined]
    assert is_accepted(group.leader) and group.leader.leader.state_age_s == 0


async def test_the_last_time_of_the_newest_state_is_never_later_than_its_age_tells(group: ServerGroup) -> None:
    """Decisions look at the time first, which costs less than the age."""
    group.cut(NAMES[2])
    for _ in range(3 * int(TTL_S)):
        await group.env.advance(0.7)  # type: ignore[attr-defined]
        for server in map(group.__getitem__, NAMES):
            past_s = group.env.monotonic() - server.leader.newest_at_s
            assert past_s >= server.leader.state_age_s


async def waited(work: Awaitable[Any]) -> Any:
    async with asyncio.timeout(30):
        return await work


async def test_a_leader_that_was_cut_off_accepts_nothing_in_a_consistent_read(group: ServerGroup) -> None:
    old = group.leader
    group.cut(old.config.name)
    group.log.elect(NAMES[1])
    await eventually(lambda: group[NAMES[1]].is_leader)
    await waited(group[NAMES[1]].resources.acl_tokens.delete(ACCESSOR))
    with pytest.raises(Unavailable, match="No cluster leader"):
        await old.leader.confirm()
    group.mend(old.config.name)
