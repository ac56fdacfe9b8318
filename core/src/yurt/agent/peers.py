"""The connections of a server to the other servers of its region, and the ports that servers offer each other.

Each server dials every other one that is there, on the port that clients use too, and says that it is a server. Over
that connection it is offered: "server", the calls that a leader carries out for clients; "api", the HTTP API; "peer",
what only servers may ask; and "node:<id>", each client that is connected there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final

from yurt import __version__
from yurt.access import Through
from yurt.access.calls import CallerKind, ProvenCaller
from yurt.agent.config import AgentConfig
from yurt.agent.tls import TlsSettings, dialling
from yurt.http.api_port import ApiPort
from yurt.http.forwarding.forward import ServerApi
from yurt.rpc.certificates import SERVER as SERVER_ROLE
from yurt.rpc.certificates import role_name
from yurt.rpc.contract import contract_of
from yurt.rpc.dialling import Dialler
from yurt.rpc.frames import Hello
from yurt.rpc.link import Link
from yurt.rpc.peer import ConnectionLost, Peer, Served
from yurt.rpc.proxy import Terms, far_port
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.server.backends import RpcBackend
from yurt.server.clients.node_ports import lookup_port
from yurt.server.peers import LeaderPort, PeerPort
from yurt.server.ports import NodePort, RulesDirectory
from yurt.structs.commands.versions import RegionRules, region_rules
from yurt.structs.member import ALIVE, LEFT, Member

log = logging.getLogger(__name__)

RULES_AGE_S: Final = 1.0
"""How long the rules of the region count without a change of its servers."""

SERVER, API, PEER, NODE_PREFIX = "server", "api", "peer", "node:"
LEADER_ANSWER_S = 3.0
"""How long a leader may take to carry out a client's call; the client waits for more than twice as long."""
_LEADER, _NODE, _API, _PEER = (contract_of(port) for port in (LeaderPort, NodePort, ApiPort, PeerPort))
LEADER_TERMS = Terms(limits_s=dict.fromkeys(_LEADER, LEADER_ANSWER_S))


class OfferedToServers(Mapping[str, Served]):
    """The ports that a server offers to other servers; those of its clients are looked up per call."""

    def __init__(self, server: RpcBackend, api: ApiPort, name: str) -> None:
        """`name` is the server that calls."""
        self._server = server
        self._caller = ProvenCaller(kind=CallerKind.SERVER, name=name)
        self._fixed = {
            SERVER: Served(_LEADER, server.clients.local_calls, self._caller),
            API: Served(_API, ServerApi(api, Through.SERVER, name), self._caller),
            PEER: Served(_PEER, server.peer_calls, self._caller),
        }

    def __getitem__(self, name: str) -> Served:
        if not name.startswith(NODE_PREFIX):
            return self._fixed[name]
        node_id = name.removeprefix(NODE_PREFIX)

        async def find() -> NodePort:
            return self._server.clients.node_ports.here(node_id)

        return Served(_NODE, lookup_port(find), self._caller)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fixed)

    def __len__(self) -> int:
        return len(self._fixed)


class ServerLinks:
    """A connection to each other live server of the region; the `Peers` of the server."""

    def __init__(
        self, config: AgentConfig, *, directory: RulesDirectory, env: Env, tls: TlsSettings, run_id: str
    ) -> None:
        """`run_id` is the secret by which the other servers recognize this one."""
        self._run_id = run_id
        self._region = config.region
        self._name = f"{config.name}.{config.region}"
        self._own_address = config.advertise_rpc
        self._directory = directory
        self._env = env
        self._tls = tls
        self._links: dict[str, tuple[Link, asyncio.Task[None]]] = {}
        self._addresses: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._rules = RegionRules()
        self._rules_until_s = 0.0
        directory.subscribe(self._changed.set)
        directory.subscribe(self._note_rules)

    # What the server knows of the others.

    @property
    def names(self) -> tuple[str, ...]:
        """The other live servers, sorted."""
        return tuple(member.name for member in self._members() if member.status == ALIVE and member.name != self._name)

    @property
    def voters(self) -> int:
        """All servers that have not left, this one included."""
        return len({self._name, *(member.name for member in self._members() if member.status != LEFT)})

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses at which clients reach the live servers, this one included."""
        there = {member.rpc_addr for member in self._members() if member.status == ALIVE}
        return tuple(sorted(there | {self._own_address}))

    @property
    def rules(self) -> RegionRules:
        """The rules of the region, by which the leader writes commands."""
        if self._env.monotonic() >= self._rules_until_s:
            self._note_rules()
        return self._rules

    def peer(self, name: str) -> PeerPort:
        """The ports that a server offers to other servers."""
        port: PeerPort = far_port(_PEER, PEER, self._get(name))
        return port

    def leader(self, name: str) -> LeaderPort:
        """The calls of clients that the server carries out when it leads."""
        port: LeaderPort = far_port(_LEADER, SERVER, self._get(name), terms=LEADER_TERMS)
        return port

    def node(self, name: str, node_id: str) -> NodePort:
        """A client that is connected to the server."""
        port: NodePort = far_port(_NODE, f"{NODE_PREFIX}{node_id}", self._get(name))
        return port

    def api(self, name: str) -> ApiPort:
        """The HTTP API of a server; raises ConnectionLost while it cannot be reached."""
        link = self._links.get(name)
        if link is None or link[0].server != name:
            raise ConnectionLost(f"server {name} cannot be reached")
        port: ApiPort = far_port(_API, API, self._get(name))
        return port

    def _note_rules(self) -> None:
        before, self._rules = self._rules, region_rules(self._directory.published_rules())
        self._rules_until_s = self._env.monotonic() + RULES_AGE_S
        if self._rules.behind and self._rules != before:
            log.warning(
                "servers of the region run an older version, and newer features wait for their upgrade: servers=%s",
                ", ".join(self._rules.behind),
            )

    def _members(self) -> tuple[Member, ...]:
        return tuple(member for member in self._directory.members() if member.region == self._region)

    def _get(self, name: str) -> Callable[[], Awaitable[Peer]]:
        async def peer() -> Peer:
            link = self._links.get(name)
            if link is None or link[0].server != name:
                raise ConnectionLost(f"server {name} cannot be reached")
            return await link[0].peer()

        return peer

    # Connections.

    async def run(self) -> None:
        """Keep the connections until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                self._keep_links(group)
                await self._changed.wait()

    def _keep_links(self, group: asyncio.TaskGroup) -> None:
        others = frozenset(self.names)
        targets = {member.name: member.rpc_addr for member in self._members() if member.name in others}
        for name, (_, task) in tuple(self._links.items()):
            if task.done() or targets.get(name) != self._addresses[name]:
                task.cancel()
                del self._links[name]
        for name, address in targets.items():
            if name not in self._links:
                link = self._link(address)
                self._addresses[name] = address
                self._links[name] = (link, supervised(group, f"connection to server {name}", link.run()))

    def _link(self, address: str) -> Link:
        hello = Hello(
            version=__version__, role=SERVER_ROLE, region=self._region, name=self._name, secret_id=self._run_id
        )
        security = dialling(self._tls, role_name(SERVER_ROLE, self._region))
        return Link((address,), dialler=Dialler(lambda: hello, security), serves={}, env=self._env)
