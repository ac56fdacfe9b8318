"""The etcd members of the servers: list, addition, promotion, removal.

A server is added as a learner, which receives the log and counts for no majority. It is promoted when its server asks
for that, which has by then what it needs to go on after a crash. So a join that is cut short, even the first one into a
cluster of one, costs nobody a majority, and what it leaves behind can be removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from enum import Enum
from typing import Protocol

from yurt.agent.cluster.members_port import AdmissionAnswer
from yurt.http.cluster import LogPeer
from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, NotFound, Unavailable, YurtError
from yurt.sdk.value import Value, replace
from yurt.server.ports import Directory
from yurt.storage.etcd.settings import peer_url
from yurt.structs.cluster import AutopilotConfiguration
from yurt.structs.member import ALIVE, FAILED, LEFT, Member
from yurt.structs.rules import UNPUBLISHED_RULES

log = logging.getLogger(__name__)

PROBE_LIMIT_S = 1.0
REMOVE_LIMIT_S, REMOVE_PAUSE_S = 10.0, 0.5
LEAVE_LIMIT_S, LEAVE_PAUSE_S = 10.0, 0.5
CLAIM_S = 3.0
"""How long a member may belong to no known server: another server may have admitted its own a moment ago."""


class Reach(Enum):
    """How the other members reach a member according to etcd's data."""

    IN_PLAIN_TEXT = "in plain text"
    BY_BOTH = "in plain text or by TLS"
    """While it turns to TLS: the others try both."""
    BY_TLS = "by TLS"


class Voter(Value):
    """One etcd member, a voter or soon one; `name` is that of its server, "" until it has begun."""

    id: str
    name: str
    address: str
    """`host:port` at which the other members reach it."""
    reach: Reach = Reach.IN_PLAIN_TEXT
    is_learner: bool = False
    """It receives the log and counts for no majority; it becomes a voter once its server asks for that."""


class EtcdAdmin(Protocol):
    """The calls about members, at this server's own etcd member; all raise Unavailable while it has no quorum."""

    async def voters(self) -> tuple[Voter, ...]:
        """All members."""
        ...

    async def add(self, address: str, *, is_tls: bool, is_learner: bool) -> Voter:
        """Add a member, which must then be started; a voter all the same where etcd has no learners to rely on.

        Raises Conflict when there is a learner already.
        """
        ...

    async def promote(self, voter_id: str) -> None:
        """Make a learner a voter; raises NotFound, or Conflict when it is not in sync, or a voter already."""
        ...

    async def remove(self, voter_id: str) -> None:
        """Remove a member permanently."""
        ...

    async def move(self, voter_id: str, address: str, reach: Reach) -> None:
        """Change the peer URLs of a voter; etcd would forget of a learner that it is one."""
        ...

    async def db_bytes(self) -> int:
        """The size of etcd's data in bytes, which counts against its quota."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def peer_urls(address: str, reach: Reach) -> tuple[str, ...]:
    """The URLs at which other members reach the one at `host:port`, in etcd's order."""
    schemes = {Reach.IN_PLAIN_TEXT: (False,), Reach.BY_BOTH: (False, True), Reach.BY_TLS: (True,)}[reach]
    return tuple(peer_url(address, is_tls=is_tls) for is_tls in schemes)


async def put_out(etcd: EtcdAdmin, voter_id: str, env: Env) -> None:
    """Remove a member; etcd refuses for some seconds after another membership change. Raises NotFound, Unavailable."""
    end_s, is_first = env.monotonic() + REMOVE_LIMIT_S, True
    while True:
        try:
            return await etcd.remove(voter_id)
        except Unavailable:
            if env.monotonic() >= end_s:
                raise
        except NotFound:
            if is_first:
                raise
            return  # it was removed by a call whose answer was lost
        is_first = False
        await env.sleep(REMOVE_PAUSE_S)


async def leave(etcd: EtcdAdmin, name: str, env: Env, *, is_removed: Callable[[], bool] = lambda: False) -> bool:
    """Remove the server `name` from those that store the log; returns whether it is removed. The last one stays.

    `is_removed`: whether its own etcd has ended because it was removed. Others may cut it off before it has answered.
    """
    problem = "no answer in time"
    end_s = env.monotonic() + LEAVE_LIMIT_S
    while env.monotonic() < end_s:
        try:
            async with env.timeout(LEAVE_LIMIT_S):
                return await _leave_once(etcd, name)
        except (YurtError, TimeoutError) as error:
            problem = str(error) or problem
        if is_removed():
            return True
        await env.sleep(LEAVE_PAUSE_S)
    log.warning("this server cannot leave the cluster in order, the leader will put it out: %s", problem)
    return False


async def _leave_once(etcd: EtcdAdmin, name: str) -> bool:
    voters = [voter for voter in await etcd.voters() if not voter.is_learner]
    if len(voters) < 2:
        return False
    own = [voter.id for voter in voters if voter.name == name]
    if not own:
        return True
    await etcd.remove(own[0])
    log.info("this server no longer keeps the cluster's log")
    return True


class Admitter:
    """Admits servers to the cluster, one at a time."""

    def __init__(
        self,
        etcd: EtcdAdmin,
        directory: Directory,
        config: Callable[[], AutopilotConfiguration],
        *,
        env: Env,
        rules: Callable[[], int] = lambda: 0,
    ) -> None:
        """`rules`: the newest that the state of the cluster follows."""
        self._env = env
        self._rules = rules
        self._etcd = etcd
        self._directory = directory
        self._config = config
        self._turn = asyncio.Lock()

    async def admit(self, member: Member, *, knows_learners: bool = False) -> AdmissionAnswer:
        """Add a server without data; an etcd member of its name or address with other data is removed first.

        So is one that no server goes on with: its join was cut short, perhaps that of this server at another address.
        A server that `knows_learners` is added as one, and waits while another one joins.
        """
        async with self._turn:
            voters = await self._etcd.voters()
            is_tls = all(voter.reach is Reach.BY_TLS for voter in voters)
            self._check(member, is_tls=is_tls)
            kept = []
            for voter in voters:
                if not await self._puts_out(voter, member):
                    kept.append(voter)
            if knows_learners and (joining := self._joining(kept)):
                return AdmissionAnswer(waits_for=joining)
            try:
                added = await self._add(member, kept, is_tls=is_tls, is_learner=knows_learners)
            except Conflict:
                # Another server may have admitted one of its own a moment ago.
                if knows_learners and (joining := self._joining(await self._etcd.voters())):
                    return AdmissionAnswer(waits_for=joining)
                raise
            answer = _admission(await self._etcd.voters(), self._directory.members())
            return replace(answer, learner_id=added.id) if added.is_learner else answer

    async def promote(self, learner_id: str) -> None:
        """Make a learner a voter; no effect on a voter. Raises NotFound, Conflict while it is not in sync."""
        if await self._is_voter(learner_id):
            return
        try:
            await self._etcd.promote(learner_id)
        except Conflict:
            if not await self._is_voter(learner_id):  # the answer to an earlier call may have been lost
                raise
        log.info("etcd member is a voter now: id=%s", learner_id)

    async def _is_voter(self, voter_id: str) -> bool:
        return any(voter.id == voter_id and not voter.is_learner for voter in await self._etcd.voters())

    def _joining(self, voters: Iterable[Voter]) -> str:
        """The server that is joining, or the address of its etcd member; "" for none."""
        learner = next((voter for voter in voters if voter.is_learner), None)
        if learner is None:
            return ""
        server = server_of(learner, self._directory.members())
        return server.name if server is not None else learner.name or learner.address

    def _check(self, member: Member, *, is_tls: bool) -> None:
        """Raises Conflict when the server could not take part in this cluster."""
        if is_tls and member.has_tls is False:
            raise Conflict(
                f"the etcd members of this cluster speak TLS, and {member.name} does not: "
                "tls { rpc = true } with its files belongs in its configuration"
            )
        applied = member.rules or UNPUBLISHED_RULES
        if applied < self._rules():
            raise Conflict(
                f"the state of this cluster follows rules {self._rules()}, and {member.name} applies {applied}: "
                "it needs the version of the other servers"
            )

    async def _puts_out(self, voter: Voter, member: Member) -> bool:
        """Remove a member that stands in the way of a server; whether it did."""
        if member.name == voter.name or member.etcd_addr == voter.address:
            await self._put_out(voter, member)
            return True
        if await self._is_abandoned(voter):
            log.warning("etcd member removed, no server goes on with its join: address=%s", voter.address)
            await self._etcd.remove(voter.id)
            return True
        return False

    async def _put_out(self, stale: Voter, member: Member) -> None:
        if stale.address == member.etcd_addr:
            if stale.name not in ("", member.name) and await _answers(stale.address):
                raise Conflict(
                    f"{stale.address} is where etcd of {stale.name} answers; {member.name} needs one of its own: "
                    "another `ports { serf = ... }`, `ports { etcd = ... }` or `advertise { serf = ... }` in its file"
                )
        elif await _answers(stale.address):
            raise Conflict(f"the etcd member of {stale.name} still answers at {stale.address}; stop that server first")
        if stale.name:
            log.warning("server %s comes without the data of its etcd member, which is replaced", member.name)
        await self._etcd.remove(stale.id)

    async def _is_abandoned(self, voter: Voter) -> bool:
        """Whether a member that has never begun, or a learner, belongs to no server.

        etcd counts such a voter among those that it needs, and takes no other learner besides one.
        """
        if not await self._is_unclaimed(voter):
            return False
        await self._env.sleep(CLAIM_S)
        return voter in await self._etcd.voters() and await self._is_unclaimed(voter)

    async def _is_unclaimed(self, voter: Voter) -> bool:
        members = self._directory.members()
        if voter.is_learner:
            has_server = not stale_learners([voter], members)
        else:
            has_server = bool(voter.name) or server_of(voter, members) is not None
        return not has_server and not await _answers(voter.address)

    async def _add(self, member: Member, voters: Iterable[Voter], *, is_tls: bool, is_learner: bool) -> Voter:
        """Add the member; when etcd refuses because a voter is down, replace that of a failed server."""
        try:
            return await self._etcd.add(member.etcd_addr, is_tls=is_tls, is_learner=is_learner)
        except YurtError as error:
            replaced = replaceable(voters, self._directory.members())
            if replaced is None or not self._config().cleanup_dead_servers:
                raise
            if self._joining(await self._etcd.voters()):
                raise
            log.warning("server %s takes the place of %s, which is gone (%s)", member.name, replaced.name, error)
        await self._etcd.remove(replaced.id)
        return await self._etcd.add(member.etcd_addr, is_tls=is_tls, is_learner=is_learner)


def server_of(voter: Voter, members: Iterable[Member]) -> Member | None:
    """The server of an etcd member; one that has not begun has no name in etcd's data, only its address.

    An address may have belonged to a server of another name that left or failed: the one that is there counts.
    """
    if voter.name:
        return next((each for each in members if each.name == voter.name), None)
    found = [each for each in members if each.etcd_addr == voter.address]
    return next((each for each in found if each.status == ALIVE), found[0] if found else None)


def stale_learners(voters: Iterable[Voter], members: Collection[Member]) -> tuple[Voter, ...]:
    """The learners whose servers are unknown, have left or have failed: a server that comes back may ask again."""
    servers = {voter: server_of(voter, members) for voter in voters if voter.is_learner}
    return tuple(voter for voter, server in servers.items() if server is None or server.status in (FAILED, LEFT))


def replaceable(voters: Iterable[Voter], members: Iterable[Member]) -> Voter | None:
    """The voter of a server that has failed or left, if any; never one that is about to begin."""
    absent = {each.name for each in members if each.status in (FAILED, LEFT)}
    return next((voter for voter in voters if voter.name in absent and not voter.is_learner), None)


def find_peer(peers: Iterable[LogPeer], requested: str) -> LogPeer:
    """The log server with this id, server name or RPC address; raises NotFound."""
    for peer in peers:
        if requested and requested in (peer.id, peer.name, peer.address):
            return peer
    raise NotFound(f'no server "{requested}" is part of the cluster; `yurt operator raft list-peers` lists them')


def _admission(voters: Iterable[Voter], members: Iterable[Member]) -> AdmissionAnswer:
    """All members by name; etcd does not name those that have not begun."""
    names = {each.etcd_addr: each.name for each in members if each.etcd_addr}
    named = {voter.name or names.get(voter.address, voter.id): voter for voter in voters}
    return AdmissionAnswer(
        cluster={name: voter.address for name, voter in named.items()},
        by_tls=tuple(name for name, voter in named.items() if voter.reach is Reach.BY_TLS),
        by_both=tuple(name for name, voter in named.items() if voter.reach is Reach.BY_BOTH),
    )


async def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_LIMIT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True
