"""The rights of callers of the HTTP API of agents without a server.

Only the leader tells it, once the log has confirmed that it leads still: a server that was cut off may not know of a
revocation, and what it says would be believed for the time that the agent keeps it.
"""

from __future__ import annotations

from yurt.access import Actor, Caller, NoToken, ShownToken
from yurt.acl.authority import AclAuthority
from yurt.acl.caller_rights import caller_rights
from yurt.server.keys.callers import Callers
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.replica import Replica
from yurt.structs.rpc import CallerRights, ShownCredential


class CallerRightsReader:
    """Reads the rights of callers from the newest state."""

    def __init__(self, replica: Replica, leader: CurrentLeader, authority: AclAuthority, callers: Callers) -> None:
        self._replica = replica
        self._leader = leader
        self._authority = authority
        self._callers = callers

    async def read(self, shown: ShownCredential) -> CallerRights:
        """The caller's rights; raises Unavailable without a leader."""
        await self._leader.confirm()
        caller = await self._caller(shown)
        actor = Actor(caller=caller)
        work = self._authority.preparation(actor)
        if work is not None:
            keep = await self._replica.env.in_thread(work)
            keep()
        authority = self._authority
        return caller_rights(caller, authority.resolve(actor), authority.identify(actor), self._replica.env.now())

    async def _caller(self, shown: ShownCredential) -> Caller:
        if shown.identity:
            return await self._callers.shown(shown.identity)
        return ShownToken(secret_hash=shown.secret_hash) if shown.secret_hash else NoToken()
