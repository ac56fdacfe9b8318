"""Three servers with access control on one log: who is accepted while leaders come and go, and how old a state may be.

What concurrent clients were answered about tokens is checked against a sequential model, as over HTTP
(`yurt.testing.histories`). A use is a consistent read: the server confirms that it leads, then decides.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import pytest
from yurt.access import ANYWHERE, Actor, ShownToken, needs
from yurt.sdk.errors import Conflict, Invalid, NotFound, PermissionDenied, Reason, Unavailable
from yurt.server.config import AclConfig
from yurt.server.server import Server
from yurt.structs.acl import ACLToken, hash_of_secret
from yurt.testing.fakes import FakeEnv, eventually, settle
from yurt.testing.histories.acl import tokens
from yurt.testing.histories.counterexample import counterexample
from yurt.testing.histories.history import Operation, Reply
from yurt.testing.nightly import is_nightly
from yurt.testing.simulation.faults import ServerFaults, calm, leader_of
from yurt.testing.simulation.servers import NAMES, ServerGroup

STEPS, SEEDS = 40, 200 if is_nightly() else 3
KIND = tokens.TokenKind()
KEYS = [KIND.key(number) for number in range(3)]
WIDTH = 4
TTL_S = AclConfig().token_ttl_s
ACCESSOR, SECRET = KEYS[0], tokens.secret_of(KEYS[0])


def actor(key: str) -> Actor:
    return Actor(caller=ShownToken(secret_hash=hash_of_secret(tokens.secret_of(key))))


def token(key: str, mark: str) -> ACLToken:
    return ACLToken(accessor_id=key, name=mark, type="client", policies=("none",))


def is_accepted(server: Server, key: str = ACCESSOR) -> bool:
    """Whether a server takes a token by the state that it has."""
    return server.authority.allows(actor(key), needs.AUTHENTICATED, ANYWHERE)


class TokenClients:
    """Concurrent requests on a few tokens, and what came back."""

    def __init__(self, group: ServerGroup, seed: int) -> None:
        self.group = group
        self.operations: dict[str, list[Operation]] = {key: [] for key in KEYS}
        self._rng = random.Random(f"tokens {seed}")
        self._clock = itertools.count()
        self._numbers = itertools.count()
        self._open: set[asyncio.Task[None]] = set()

    def send(self, marks: itertools.count[int]) -> None:
        """Some requests at the same moment."""
        for _ in range(self._rng.randint(1, WIDTH)):
            key = self._rng.choice(KEYS)
            request = KIND.choose(self._rng, self.operations[key], f"m{next(marks)}")
            plan = Operation(next(self._numbers), 0, key, request, invoked=next(self._clock))
            self._open.add(asyncio.ensure_future(self._perform(plan)))

    async def finish(self) -> None:
        """Wait for what is under way; what does not end has an unknown outcome."""
        await asyncio.wait(self._open, timeout=5)
        for task in self._open:
            task.cancel()
        await asyncio.wait(self._open)

    async def _perform(self, plan: Operation) -> None:
        row = plan
        try:
            answer = await self._carried_out(leader_of(self.group), plan)
            row = plan._replace(returned=next(self._clock), answer=answer)
        except (NotFound, Invalid, Conflict) as error:
            row = plan._replace(returned=next(self._clock), answer=Reply(400, 0, str(error)))
        except PermissionDenied:
            row = plan._replace(returned=next(self._clock), answer=Reply(tokens.DENIED))
        except Unavailable as error:
            if error.reason is Reason.NO_LEADER:
                return
        except asyncio.CancelledError:
            self.operations[plan.key].append(row)
            raise
        self.operations[plan.key].append(row)

    async def _carried_out(self, server: Server, plan: Operation) -> Reply:
        operations, key = server.resources.acl_tokens, plan.key
        match plan.request:
            case tokens.PutToken(mark=mark):
                return made(await operations.create(token(key, mark), tokens.secret_of(key)))
            case tokens.ChangeToken(mark=mark):
                return made(await operations.update(token(key, mark)))
            case tokens.RevokeToken():
                return Reply(200, await operations.delete(key))
            case request:
                await server.leader.confirm()
                row = server.state.acl_tokens.get(key)
                if isinstance(request, tokens.UseToken) and not is_accepted(server, key):
                    raise PermissionDenied("Permission denied")
                if row is None:
                    raise NotFound("ACL token not found")
                return Reply(200, 0, tokens.ShownToken(row.modify_index, row.create_index, row.name))


def made(found: Any) -> Reply:
    row = found.token
    return Reply(200, found.log_index, tokens.ShownToken(row.modify_index, row.create_index, row.name))


@pytest.fixture
async def group() -> AsyncIterator[ServerGroup]:
    """Three servers of which the first leads, with one token."""
    async with ServerGroup(FakeEnv(), acl=AclConfig(enabled=True)).running() as made:
        await eventually(lambda: made[NAMES[0]].is_leader)
        await made[NAMES[0]].resources.acl_tokens.create(token(ACCESSOR, "first"), SECRET)
        await eventually(lambda: all(ACCESSOR in each.state.acl_tokens for each in made.servers.values()))
        await made.env.advance(3)
        yield made


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(SEEDS))
async def test_tokens_are_linearizable_while_servers_fail(seed: int) -> None:
    env = FakeEnv(seed)
    servers = ServerGroup(env, trailing_entries=5, acl=AclConfig(enabled=True))
    async with servers.running():
        await eventually(lambda: servers[NAMES[0]].is_leader)
        clients, faults, marks = TokenClients(servers, seed), ServerFaults(servers, seed), itertools.count()
        for _ in range(STEPS):
            await faults.strike()
            clients.send(marks)
            await settle()
            await env.advance(0.5)
        await calm(servers)
        await clients.finish()
        clients.send(marks)
        await clients.finish()

    found = [counterexample(KIND.model, rows) for rows in clients.operations.values()]
    assert found == [None] * len(KEYS), "\n".join(map(str, filter(None, found)))
    answers = [each.answer.status for rows in clients.operations.values() for each in rows if each.answer is not None]
    assert {200, 400, tokens.DENIED} <= set(answers) and len(faults.seen) >= 4, (answers, faults.seen)


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
    group.view(NAMES[1]).news.clear()
    await group.leader.resources.acl_tokens.delete(ACCESSOR)
    await env.advance(TTL_S + 5)
    assert lagging.leader.last_contact_s < TTL_S
    with pytest.raises(Unavailable, match="behind the leader"):
        is_accepted(lagging)
    group.view(NAMES[1]).news.set()


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
    group.view(old.config.name).news.clear()
    group.log.elect(NAMES[1])
    await eventually(lambda: group[NAMES[1]].is_leader)
    await waited(group[NAMES[1]].resources.acl_tokens.delete(ACCESSOR))
    await env.advance(TTL_S + 5)
    assert old.is_leader, "it takes itself for the leader"
    with pytest.raises(Unavailable, match=r"is 3\d s behind the leader"):
        is_accepted(old)
    group.view(old.config.name).news.set()
    await eventually(lambda: not old.is_leader)
    with pytest.raises(Unavailable, match="behind the leader"):
        is_accepted(old)
    await env.advance(3)
    assert not is_accepted(old)


async def test_a_leader_with_nothing_to_store_goes_on_deciding(group: ServerGroup) -> None:
    await group.env.advance(3 * TTL_S)  # type: ignore[attr-defined]
    assert is_accepted(group.leader) and group.leader.leader.state_age_s == 0


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
