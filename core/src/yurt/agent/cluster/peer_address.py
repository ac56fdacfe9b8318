"""Updates the peer URL of this server's etcd member when its address or its use of TLS changes.

A cluster that was formed without TLS has plain peer addresses in etcd's data, and etcd changes them only while it has a
majority. So members whose servers were given TLS go on in plain text at first. Once every server speaks TLS the members
turn to it one after the other, by name: each tells the others its new address and then restarts its etcd, which from
then on takes TLS connections only. In this order the others can reach it after the start, whatever it has missed: its
data may not hold yet that they have turned to TLS, and then it reaches none of them itself. Between the two steps it
reaches them, and they need not reach it; the others are a majority without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

from yurt.agent.cluster.own_etcd import OwnEtcd
from yurt.agent.cluster.voters import EtcdAdmin, Voter
from yurt.runtime.env import Env
from yurt.sdk.errors import YurtError
from yurt.structs.member import ALIVE, Member

log = logging.getLogger(__name__)

LOOK_INTERVAL_S, SETTLED_INTERVAL_S = 1.0, 30.0


def obstacle(own: str, voters: Sequence[Voter], members: Iterable[Member]) -> str:
    """Why the member of the server `own` cannot turn to TLS yet; "" when it is its turn."""
    ready = {each.name for each in members if each.status == ALIVE and each.has_tls}
    missing = sorted(voter.name or voter.address for voter in voters if voter.name not in ready)
    if missing:
        return (
            f"the etcd members go on in plain text until all servers speak TLS; waiting for {', '.join(missing)}: "
            "restart with `tls { rpc = true }`. One that is gone for good is put out with `yurt server force-leave`"
        )
    earlier = sorted(voter.name for voter in voters if not voter.is_tls and voter.name < own)
    return f"waiting for the etcd member of {earlier[0]} to turn to TLS first" if earlier else ""


class PeerAddress:
    """The address at which other members reach this server's member."""

    def __init__(
        self, etcd: OwnEtcd, admin: EtcdAdmin, *, own: Member, members: Callable[[], tuple[Member, ...]], env: Env
    ) -> None:
        self._etcd = etcd
        self._admin = admin
        self._own = own
        self._members = members
        self._env = env
        self._reported = ""

    async def run(self) -> None:
        """Keep the recorded address right until cancelled; a removed member rejoins at the new address."""
        while True:
            is_settled = await self._look()
            await self._env.sleep(SETTLED_INTERVAL_S if is_settled else LOOK_INTERVAL_S)

    async def _look(self) -> bool:
        """Check once; returns whether the record is right."""
        try:
            voters = await self._admin.voters()
            mine = next((voter for voter in voters if voter.name == self._own.name), None)
            return mine is not None and await self._follow(mine, voters)
        except YurtError as error:
            log.debug("etcd member address update delayed: error=%s", error)
            return False

    async def _follow(self, mine: Voter, voters: Sequence[Voter]) -> bool:
        etcd, address = self._etcd, self._own.etcd_addr
        if self._own.has_tls and not etcd.has_peer_tls:
            problem = obstacle(self._own.name, voters, self._members())
            if problem != self._reported and problem:
                log.warning("TLS between etcd members cannot start: %s", problem)
            self._reported = problem
            if not problem:
                await self._update_peer_url(mine, address, is_tls=True)
                await etcd.turn_to_tls()
                return True
        if (mine.address, mine.is_tls) != (address, etcd.has_peer_tls):
            await self._update_peer_url(mine, address, is_tls=etcd.has_peer_tls)
        return etcd.has_peer_tls == bool(self._own.has_tls)

    async def _update_peer_url(self, mine: Voter, address: str, *, is_tls: bool) -> None:
        """Update this member's peer URL in etcd's member list, if it differs."""
        if (mine.address, mine.is_tls) == (address, is_tls):
            return
        await self._admin.move(mine.id, address, is_tls=is_tls)
        kind = "by TLS" if is_tls else "in plain text"
        log.info("the etcd member is reached at %s %s now, and no longer at %s", address, kind, mine.address)
