"""Updates the peer URLs of this server's etcd member when its address or its use of TLS changes.

A cluster that was formed without TLS has plain peer URLs in etcd's data, and etcd changes them only while it has a
majority. So members whose servers were given TLS go on in plain text at first. Once every server speaks TLS, each
member takes three steps:

1. It has the others record a plain URL and one of TLS for it; they try both. It still takes plain connections.
2. Once its own data hold that record of every member, and it and the server of each other member accept each other's
   certificates, it restarts its etcd, which takes TLS connections only from then on. The members do this one after the
   other, by name, so that a majority goes on meanwhile.
3. It has the others drop its plain URL.

Of two members at least one reaches the other at all times, whatever either has missed, and etcd needs no more:

- One that takes plain connections has a plain URL in every version of the record, so all others reach it.
- Two that take TLS connections only: the later one turned when its data held a URL of TLS of the earlier one, and its
  etcd wrote these data to the disk before it ended. The two servers had just connected by TLS, with the certificates
  that their etcd members show.

So a crash or a power failure at any step, and any order of restarts, leave members that find each other again. A
certificate that another server does not accept keeps the members in plain text until its files are corrected.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from yurt.agent.cluster.own_etcd import OwnEtcd
from yurt.agent.cluster.voters import EtcdAdmin, Reach, Voter
from yurt.runtime.env import Env
from yurt.sdk.errors import YurtError
from yurt.structs.member import ALIVE, Member

log = logging.getLogger(__name__)

LOOK_INTERVAL_S, SETTLED_INTERVAL_S = 1.0, 30.0
MISMATCH_INTERVAL_S = 10.0
"""How often servers that are not heard are asked for their certificates."""


class Probe(Protocol):
    """Whether this server and others accept each other's certificates (`CertificateProbe`)."""

    async def problem_with(self, server: Member) -> str:
        """Why the etcd members of the two servers could not reach each other by TLS; "" if they could."""
        ...

    async def mismatches(self, names: Mapping[str, str]) -> tuple[str, ...]:
        """What this server and others do not accept of each other's certificates; `names`: theirs by address, or ""."""
        ...


def without_tls(voters: Sequence[Voter], members: Iterable[Member]) -> str:
    """Why no member can begin to turn to TLS: servers that do not speak it, or that are away; "" for none."""
    ready = {each.name for each in members if each.status == ALIVE and each.has_tls}
    missing = sorted(voter.name or voter.address for voter in voters if voter.name not in ready)
    if not missing:
        return ""
    return (
        f"the etcd members go on in plain text until all servers speak TLS; waiting for {', '.join(missing)}: "
        "restart with `tls { rpc = true }`. One that is gone for good is put out with `yurt server force-leave`"
    )


def before_its_turn(own: str, voters: Sequence[Voter]) -> str:
    """Why the member of the server `own` cannot refuse plain connections yet; "" when it is its turn."""
    plain = sorted(voter.name for voter in voters if voter.reach is Reach.IN_PLAIN_TEXT)
    if plain:
        return f"waiting for the etcd members of {', '.join(plain)} to be recorded with a URL of TLS"
    earlier = sorted(voter.name for voter in voters if voter.reach is not Reach.BY_TLS and voter.name < own)
    return f"waiting for the etcd member of {earlier[0]} to turn to TLS first" if earlier else ""


class OtherServers(NamedTuple):
    """The other servers, as this one knows them."""

    members: Callable[[], tuple[Member, ...]]
    """All servers, this one included."""
    addresses: Callable[[], tuple[str, ...]]
    """Where servers may be reached that are not among them: configured or remembered addresses."""
    probe: Probe


class PeerAddress:
    """The address at which other members reach this server's member."""

    def __init__(self, etcd: OwnEtcd, admin: EtcdAdmin, *, own: Member, servers: OtherServers, env: Env) -> None:
        self._etcd = etcd
        self._admin = admin
        self._own = own
        self._servers = servers
        self._env = env
        self._reported = ""
        self._mismatches: tuple[str, ...] = ()
        self._mismatches_at = -MISMATCH_INTERVAL_S

    async def run(self) -> None:
        """Keep the recorded URLs right until cancelled; a removed member rejoins at the new address."""
        while True:
            is_settled = await self._look()
            await self._env.sleep(SETTLED_INTERVAL_S if is_settled else LOOK_INTERVAL_S)

    async def _look(self) -> bool:
        """Check once; returns whether nothing is left to do."""
        try:
            voters = await self._admin.voters()
            mine = next((voter for voter in voters if voter.name == self._own.name), None)
            if mine is None or mine.is_learner:
                return False
            if self._own.has_tls and not self._etcd.has_peer_tls:
                await self._turn(mine, voters)
                return False
            await self._record(mine, Reach.BY_TLS if self._etcd.has_peer_tls else Reach.IN_PLAIN_TEXT)
            return True
        except YurtError as error:
            log.debug("etcd member address update delayed: error=%s", error)
            return False

    async def _turn(self, mine: Voter, voters: Sequence[Voter]) -> None:
        """Take the next step towards TLS, if there is one."""
        problem = without_tls(voters, self._servers.members())
        if problem:
            self._report("; ".join((problem, *await self._seen_mismatches(voters))))
            await self._record(mine, Reach.IN_PLAIN_TEXT if mine.reach is Reach.IN_PLAIN_TEXT else Reach.BY_BOTH)
        elif not await self._record(mine, Reach.BY_BOTH):
            problem = before_its_turn(self._own.name, voters) or await self._certificate_problem(voters)
            self._report(problem)
            # etcd's data may have changed meanwhile; after this answer nothing is awaited before etcd ends.
            if not problem and list(await self._admin.voters()) == list(voters):
                await self._etcd.turn_to_tls()

    async def _certificate_problem(self, voters: Sequence[Voter]) -> str:
        """Why this member could not reach each other one by TLS; "" if it could."""
        servers = {each.name: each for each in self._servers.members()}
        problems = []
        for voter in voters:
            if voter.name == self._own.name:
                continue
            if voter.name not in servers:
                problems.append(f"server {voter.name} is not known any more")
            elif problem := await self._servers.probe.problem_with(servers[voter.name]):
                problems.append(problem)
        return f"the etcd member goes on in plain text: {'; '.join(problems)}" if problems else ""

    async def _seen_mismatches(self, voters: Sequence[Voter]) -> tuple[str, ...]:
        """The certificates that keep servers with an etcd member from being heard, as of the last few seconds."""
        if self._env.monotonic() - self._mismatches_at >= MISMATCH_INTERVAL_S:
            self._mismatches = await self._servers.probe.mismatches(self._silent(voters))
            self._mismatches_at = self._env.monotonic()
        return self._mismatches

    def _silent(self, voters: Sequence[Voter]) -> dict[str, str]:
        """Where servers that have an etcd member and are not heard may be: names by address, "" for unknown ones."""
        servers = {each.name: each for each in self._servers.members()}
        known = [servers[voter.name] for voter in voters if voter.name in servers]
        silent = {each.address: each.name for each in known if each.status != ALIVE}
        if len(known) == len(voters):
            return silent
        addresses = {each.address for each in servers.values()}
        return {**silent, **{address: "" for address in self._servers.addresses() if address not in addresses}}

    def _report(self, problem: str) -> None:
        """Warn of an obstacle, once."""
        if problem and problem != self._reported:
            log.warning("TLS between etcd members is delayed: %s", problem)
        self._reported = problem

    async def _record(self, mine: Voter, reach: Reach) -> bool:
        """Update this member's URLs in etcd's member list if they differ; returns whether they did."""
        address = self._own.etcd_addr
        if (mine.address, mine.reach) == (address, reach):
            return False
        await self._admin.move(mine.id, address, reach)
        log.info(
            "the etcd member is reached at %s %s now, and no longer at %s %s",
            address,
            reach.value,
            mine.address,
            mine.reach.value,
        )
        return True
