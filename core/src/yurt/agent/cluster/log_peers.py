"""Operators' view of the servers that store the log: list, removal, transfer of leadership."""

from __future__ import annotations

from yurt.agent.cluster.local_server import LocalServer
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.voters import EtcdAdmin, find_peer, put_out
from yurt.http.cluster import LogPeer
from yurt.runtime.env import Env
from yurt.sdk.errors import Conflict, Invalid, Unavailable
from yurt.sdk.value import replace
from yurt.server.failures import no_leader
from yurt.structs.member import ALIVE, LEFT, Member

TRANSFER_LIMIT_S, TRANSFER_LOOK_S = 10.0, 0.05


class LogPeers:
    """The log servers of this region; without an `admin` the servers have no etcd members of their own."""

    def __init__(self, membership: Membership, *, admin: EtcdAdmin | None, env: Env, local: LocalServer) -> None:
        self._membership = membership
        self._admin = admin
        self._env = env
        self._local = local

    async def all(self) -> tuple[LogPeer, ...]:
        """The servers that keep the log."""
        members = {each.name: each for each in self._membership.members()}
        if self._admin is None:
            own = [
                each for each in members.values() if each.region == self._membership.own.region and each.status != LEFT
            ]
            return tuple(_log_peer(each.name, each.name, each) for each in own)
        voters = await self._admin.voters()
        by_address = {each.etcd_addr: each for each in members.values() if each.etcd_addr}
        return tuple(
            replace(
                _log_peer(voter.id, voter.name, members.get(voter.name) or by_address.get(voter.address)),
                is_voter=not voter.is_learner,
            )
            for voter in voters
        )

    async def remove(self, requested: str) -> None:
        """Remove a server from those that store the log; raises NotFound, or Invalid where that is impossible."""
        peer = find_peer(await self.all(), requested)
        if self._admin is None:
            raise Invalid(
                "the servers have no etcd members of their own: a single server keeps its log in a file, "
                "and an etcd that stands by itself is changed with etcdctl"
            )
        await put_out(self._admin, peer.id, self._env)

    async def transfer(self, requested: str) -> tuple[LogPeer, LogPeer]:
        """Transfer leadership to another server; call it on the leader."""
        peers = await self.all()
        target = find_peer(peers, requested)
        before = next((peer for peer in peers if peer.name == self._membership.own.name), None)
        if before is None or self._local.leader_name != before.name:
            raise no_leader()
        if before.id != target.id:
            if not target.is_voter:
                raise Conflict(f"server {target.name or target.id} is still joining the cluster; it cannot lead yet")
            statuses = {each.name: each.status for each in self._membership.members()}
            if statuses.get(target.name) != ALIVE:
                raise Conflict(f"server {target.name or target.id} is {statuses.get(target.name, 'not there')}")
            await self._local.resign(target.name)
            await self._wait_leader(target.name)
        return before, target

    async def _wait_leader(self, name: str) -> None:
        """Wait until the server of that name leads; raises Unavailable when it does not in time."""
        end_s = self._env.monotonic() + TRANSFER_LIMIT_S
        while self._local.leader_name != name:
            if self._env.monotonic() > end_s:
                raise Unavailable(f"server {name} does not lead after {TRANSFER_LIMIT_S:g} s")
            await self._env.sleep(TRANSFER_LOOK_S)


def _log_peer(peer_id: str, name: str, member: Member | None) -> LogPeer:
    shown_name = name or (member.name if member is not None else "")
    address = member.rpc_addr if member is not None else ""
    return LogPeer(id=peer_id, name=shown_name, address=address)
