"""Removes dead servers from the cluster on the leader (autopilot's dead-server clean-up): those that left at once,
those that failed after others have taken their place.

Removals of failed servers never make the cluster smaller than `bootstrap_expect` and `min_quorum`, and no server is
removed unless the live servers are a majority afterwards.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence

from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.voters import EtcdAdmin, Voter, server_of, stale_learners
from yurt.runtime.env import Env
from yurt.sdk.errors import YurtError
from yurt.sdk.value import NANOSECONDS
from yurt.structs.cluster import AutopilotConfiguration
from yurt.structs.member import ALIVE, FAILED, LEFT, Member

log = logging.getLogger(__name__)

LOOK_INTERVAL_S = 1.0
LEARNER_INTERVAL_S = 5.0
"""How often learners are looked at; one that has no server at two looks is removed."""


def removable_servers(
    voters: Sequence[Voter], members: Sequence[Member], config: AutopilotConfiguration, *, expired: Collection[str]
) -> Voter | None:
    """The next server to remove, or None; failed servers count only if they are in `expired`. Learners do not count."""
    voters = [voter for voter in voters if not voter.is_learner]
    servers = {voter.id: server_of(voter, members) for voter in voters}
    status = {voter_id: server.status if server is not None else "" for voter_id, server in servers.items()}
    alive = sum(status[voter.id] == ALIVE for voter in voters)
    if alive <= (len(voters) - 1) // 2:
        return None
    left = next((voter for voter in voters if status[voter.id] == LEFT), None)
    if left is not None:
        return left
    intended = max([config.min_quorum, 1, *(each.expect for each in members if each.status == ALIVE)])
    if not config.cleanup_dead_servers or len(voters) <= intended:
        return None
    failed = {key for key, each in servers.items() if each and each.status == FAILED and each.name in expired}
    return next((voter for voter in voters if voter.id in failed), None)


class DeadServerCleanup:
    """Removes failed servers from the cluster while this agent's server leads."""

    def __init__(
        self,
        *,
        membership: Membership,
        etcd: EtcdAdmin,
        env: Env,
        leads: Callable[[], bool],
        config: Callable[[], AutopilotConfiguration],
    ) -> None:
        self._membership = membership
        self._etcd = etcd
        self._env = env
        self._leads = leads
        self._config = config
        self._logged = ""
        self._checked_addresses: frozenset[str] = frozenset()
        self._stale_learners: frozenset[str] = frozenset()
        self._learners_due = 0.0

    async def run(self) -> None:
        """Check once a second until cancelled."""
        while True:
            await self._env.sleep(LOOK_INTERVAL_S)
            if not self._leads():
                continue
            try:
                await self._look()
            except YurtError as error:
                if str(error) != self._logged:
                    log.warning("a server that is gone cannot be put out yet: %s", error)
                self._logged = str(error)

    async def _look(self) -> None:
        own = self._membership.own
        members = [each for each in self._membership.members() if each.region == own.region]
        await self._warn_of_strangers([each for each in members if each.status == ALIVE and each.has_data])
        await self._remove_stale_learners(members)
        absent = [each for each in members if each.status in (FAILED, LEFT)]
        if not absent:
            return
        config = self._config()
        stable_s = config.server_stabilization_time / NANOSECONDS
        expired = {each.name for each in absent if self._membership.status_age_s(each.name) >= stable_s}
        voter = removable_servers(await self._etcd.voters(), members, config, expired=expired)
        if voter is not None:
            log.warning("server %s is gone and no longer keeps the cluster's log", voter.name or voter.address)
            await self._etcd.remove(voter.id)

    async def _remove_stale_learners(self, members: Sequence[Member]) -> None:
        """Remove what joins that were cut short have left: it would delay the next server, and is listed for good."""
        if (now := self._env.monotonic()) < self._learners_due:
            return
        self._learners_due = now + LEARNER_INTERVAL_S
        stale = {voter.id: voter for voter in stale_learners(await self._etcd.voters(), members)}
        before, self._stale_learners = self._stale_learners, frozenset(stale)
        for voter_id in self._stale_learners & before:
            log.warning("etcd learner removed, no server goes on with its join: address=%s", stale[voter_id].address)
            await self._etcd.remove(voter_id)

    async def _warn_of_strangers(self, settled: Sequence[Member]) -> None:
        """Warn of a server whose etcd belongs to another cluster: knowing it does not make it a member of this one."""
        addresses = frozenset(each.etcd_addr for each in settled)
        if addresses == self._checked_addresses:
            return
        voters = {voter.address for voter in await self._etcd.voters()}
        strangers = [each.name for each in settled if each.etcd_addr not in voters]
        if strangers:
            log.error(
                "server has the data of another cluster of this region: stop its agent and start it with an empty "
                "data_dir to have it join, or give it another region: servers=%s",
                ", ".join(strangers),
            )
        self._checked_addresses = addresses
