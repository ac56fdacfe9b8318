"""The port through which the HTTP layer reads and changes the cluster of servers."""

from __future__ import annotations

from typing import Protocol

from aiohttp import web

from yurt.http.agent_info import AgentInfo
from yurt.sdk.errors import Invalid, NotFound
from yurt.sdk.value import Value
from yurt.server.ports import Directory
from yurt.server.server_status import ServerFacts
from yurt.structs.member import Member
from yurt.structs.rules import RULES_VERSION


class LogPeer(Value):
    """A server that keeps the command log, as `operator raft list-peers` shows it."""

    id: str
    name: str
    address: str
    """`host:port` for other agents; "" while the server is unknown."""
    is_voter: bool = True


class Joined(Value):
    """How many servers answered at the addresses, and the errors at the others."""

    count: int = 0
    problems: tuple[str, ...] = ()


class ServerView(Value):
    """The state of another server as this one sees it."""

    member: Member
    overdue_s: float = 0.0
    """How long ago news of it were due."""
    index: int = 0
    trailing: int = 0
    """How far it was behind this server when it reported its index."""
    stable_s: float = 0.0
    """For how long it has been as it is."""


class Cluster(Directory, Protocol):
    """The servers, and what can be changed about them."""

    def shown_members(self) -> tuple[Member, ...]:
        """`members` for operators: a live server that was forced out a moment ago is leaving, or missing."""
        ...

    def views(self) -> tuple[ServerView, ...]:
        """The servers of this region that have not left, by name."""
        ...

    async def join(self, addresses: tuple[str, ...]) -> Joined:
        """Exchange records with the servers at these addresses, so that all join one cluster."""
        ...

    async def force_leave(self, name: str, *, forget: bool) -> None:
        """Force a server out; one that is alive stays in use (`shown_members`). Raises NotFound, Unavailable."""
        ...

    async def log_peers(self) -> tuple[LogPeer, ...]:
        """The servers that keep the log; raises Unavailable."""
        ...

    async def remove_log_peer(self, requested: str) -> None:
        """Remove a server, by id, name or address, from the voters of the log."""
        ...

    async def transfer_leadership(self, requested: str) -> tuple[LogPeer, LogPeer]:
        """Transfer leadership to another server; returns the previous and the next leader."""
        ...

    async def gauges(self) -> dict[str, float]:
        """Figures by name."""
        ...


def leader_address(cluster: Cluster, server: ServerFacts, agent: AgentInfo) -> str:
    """The leader's `host:port` for other agents, if this server knows it; "" otherwise."""
    if server.is_leader:
        return agent.rpc_addr
    name = server.leader_name
    return next((each.rpc_addr for each in cluster.members() if each.name == name), "")


class LoneServer:
    """A server that keeps its state alone and knows no others, as in dev mode."""

    def __init__(self, agent: AgentInfo) -> None:
        self._id = agent.name
        self._own = Member(
            name=f"{agent.name}.{agent.region}",
            region=agent.region,
            datacenter=agent.datacenter,
            version=agent.version,
            address=agent.serf_addr,
            rpc_addr=agent.rpc_addr,
            http_addr=agent.http_addr,
            expect=1,
            has_data=True,
            rules=RULES_VERSION,
        )

    def members(self) -> tuple[Member, ...]:
        """The one server."""
        return (self._own,)

    shown_members = members

    def subscribe(self, on_change: object) -> None:
        """Nothing ever changes."""

    def views(self) -> tuple[ServerView, ...]:
        """The one server."""
        return (ServerView(member=self._own),)

    async def join(self, addresses: tuple[str, ...]) -> Joined:
        """No effect."""
        reason = "a dev agent keeps its state in memory and joins no other server"
        return Joined(problems=tuple(f"{address}: {reason}" for address in addresses))

    async def force_leave(self, name: str, *, forget: bool) -> None:
        """Raises NotFound."""
        raise NotFound(f'no server "{name}" has failed')

    async def log_peers(self) -> tuple[LogPeer, ...]:
        """The one server."""
        own = self._own
        return (LogPeer(id=self._id, name=own.name, address=own.rpc_addr),)

    async def remove_log_peer(self, requested: str) -> None:
        """Raises Invalid for this server, NotFound for another one."""
        own = (await self.log_peers())[0]
        if requested not in (own.id, own.name, own.address):
            raise NotFound(f'id "{requested}" was not found in the Raft configuration')
        raise Invalid("the only server cannot be removed")

    async def transfer_leadership(self, requested: str) -> tuple[LogPeer, LogPeer]:
        """This server leads and continues to; raises NotFound for another one."""
        own = (await self.log_peers())[0]
        if requested not in (own.id, own.name, own.address):
            raise NotFound(f'no server "{requested}" is part of the cluster')
        return own, own

    async def gauges(self) -> dict[str, float]:
        """The one server."""
        return {"members.alive": 1.0, "members.failed": 0.0}


CLUSTER: web.AppKey[Cluster] = web.AppKey("yurt_cluster", Cluster)
"""The cluster of servers, on an agent that runs one; a `LoneServer` by default."""
