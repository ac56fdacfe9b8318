"""Remote agents: the clients and servers that connect to a server, and the servers of a client.

Imported only by agents that have the one or the other.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable
from typing import Protocol

from yurt import __version__
from yurt.access import Through
from yurt.access.calls import CallerKind, ProvenCaller
from yurt.agent.addresses import bracketed, reachable, with_port
from yurt.agent.config import RPC_PORT, AgentConfig, seconds_of
from yurt.agent.limits import rpc_limits
from yurt.agent.peers import OfferedToServers
from yurt.agent.tls import TlsSettings, dialling, own_http_context, server_credentials
from yurt.client.client import Client
from yurt.client.ports import ServerPort
from yurt.http.api_port import ApiPort
from yurt.http.edge.connections import OwnSockets
from yurt.http.forwarding.forward import NodeApi, OwnApi, ServerApi
from yurt.rpc import certificates
from yurt.rpc.certificates import role_name
from yurt.rpc.contract import contract_of
from yurt.rpc.dialling import CONNECT_LIMIT_S, Dialler
from yurt.rpc.failover import watched_port
from yurt.rpc.frames import Hello, Welcome
from yurt.rpc.link import PAUSE_MAX_S, Link, LinkTimes
from yurt.rpc.listener import Bind, Caller, Listener, PeerSession
from yurt.rpc.peer import Peer, Served
from yurt.rpc.proxy import far_port
from yurt.rpc.silence import IDLE_S
from yurt.runtime.env import Env
from yurt.sdk.errors import PermissionDenied, Unavailable
from yurt.server.backends import RpcBackend
from yurt.server.clients.node_authentication import NodeCredentials
from yurt.server.ports import NodePort
from yurt.storage.client_db import NodeIdentity

log = logging.getLogger(__name__)

SERVER, NODE, API = "server", "node", "api"
"""The ports that agents offer each other."""
LEADER_CALLS = frozenset({"register_node", "heartbeat"})
"""The calls that show whether a client's server reaches the leader."""
_SERVER, _NODE, _API = contract_of(ServerPort), contract_of(NodePort), contract_of(ApiPort)


class ClosableApi(ApiPort, Protocol):
    """An API with connections that can be closed."""

    async def close(self) -> None:
        """Close the connections."""
        ...


class FarClients:
    """The clients and the other servers that are connected to this server."""

    def __init__(
        self,
        config: AgentConfig,
        server: RpcBackend,
        tls: TlsSettings,
        *,
        run_of: Callable[[str], str],
        api: ClosableApi | None = None,
        bind: Bind | None = None,
    ) -> None:
        """`run_of` returns the secret that a server must show, which only servers exchange; "" for an unmet server.

        `api` answers in the place of the agent's own HTTP address, `bind` listens in the place of a socket.
        """
        self._config = config
        self._run_of = run_of
        self._server = server
        self._tls = tls
        scheme = "https" if tls.http else "http"
        address = f"{scheme}://{reachable(config.http_addresses[0])}:{config.http_port}"
        self.own_sockets = OwnSockets()
        self._api = api or OwnApi(address, own_http_context(tls), self.own_sockets)
        self._listener = Listener(
            accept=self._accept,
            welcome=Welcome(
                version=__version__,
                region=config.region,
                name=f"{config.name}.{config.region}",
                rpc_addr=config.advertise_rpc,
            ),
            limits=rpc_limits(config),
            metrics=server.metrics,
            bind=bind,
        )

    async def start(self) -> None:
        """Accept connections; raises Invalid when the port is unavailable."""
        address = f"{bracketed(self._config.rpc_address)}:{self._config.rpc_port}"
        port = await self._listener.start(address, server_credentials(self._tls), allows_plain=self._tls.upgrade)
        log.info("clients may connect to port %d%s", port, ", by mutual TLS" if self._tls.rpc else "")

    async def stop(self) -> None:
        """End all connections."""
        await self._listener.stop()
        await self._api.close()

    def _accept(self, hello: Hello, caller: Caller) -> PeerSession:
        if hello.region != self._config.region and hello.role == certificates.SERVER:
            return self._take_region(hello, caller)
        if hello.region != self._config.region:
            raise PermissionDenied(f"this server is of region {self._config.region!r}, the agent of {hello.region!r}")
        if hello.role == certificates.SERVER:
            return self._take_server(hello, caller)
        roles = {role_name(role, self._config.region) for role in ("client", "server")}
        if self._tls.needs_certificate(has_tls=caller.has_tls) and not roles.intersection(caller.names):
            raise PermissionDenied(
                f"the certificate names {', '.join(dict.fromkeys(caller.names))}; that of an agent names "
                f"{' or '.join(sorted(roles))}: `yurt tls cert create` with -client or -server makes one"
            )
        return self._take_client(hello, caller)

    def _take_client(self, hello: Hello, caller: Caller) -> PeerSession:
        """Accept the agent of a node, once the leader has confirmed that it is the node's."""
        node_ports = self._server.clients.node_ports
        port: NodePort | None = None
        is_attached = False

        def stand(is_of_node: bool) -> None:
            nonlocal is_attached
            if port is not None and is_of_node != is_attached:
                (node_ports.attach if is_of_node else node_ports.detach)(hello.node_id, port)
                is_attached = is_of_node

        credentials = NodeCredentials(
            node_id=hello.node_id, secret_id=hello.secret_id, intro_token=hello.intro_token, address=caller.address
        )
        client = self._server.clients.connect(credentials, on_standing=stand)
        api = NodeApi(self._api, hello.node_id)

        def opened(peer: Peer) -> None:
            nonlocal port
            port = far_port(_NODE, NODE, _always(peer))
            log.info("client connected: node=%s name=%s address=%s", hello.node_id[:8], hello.name, caller.address)

        def closed(_: Peer) -> None:
            nonlocal port
            stand(False)
            port = None
            log.info("client disconnected: node=%s name=%s", hello.node_id[:8], hello.name)

        return PeerSession({SERVER: Served(_SERVER, client, client), API: Served(_API, api, client)}, opened, closed)

    def _check_server(self, hello: Hello, caller: Caller) -> None:
        """A server shows a certificate; without TLS it shows that it was met on the port that only servers reach."""
        expected = role_name(certificates.SERVER, hello.region)
        if self._tls.needs_certificate(has_tls=caller.has_tls):
            if expected not in caller.names:
                raise PermissionDenied(f"the certificate names {', '.join(caller.names)}, and not {expected}")
            return
        run = self._run_of(hello.name)
        if not run or not hmac.compare_digest(run.encode(), hello.secret_id.encode()):
            raise Unavailable(
                f"server {hello.name or '(no name)'} is not known here; servers meet on the serf port first, which "
                "must be reachable in both directions"
            )

    def _take_region(self, hello: Hello, caller: Caller) -> PeerSession:
        """Accept a server of another region, which may ask what a user may ask and nothing else."""
        self._check_server(hello, caller)
        region = ProvenCaller(kind=CallerKind.REGION, name=hello.name)
        return PeerSession(
            {API: Served(_API, ServerApi(self._api, Through.REGION, hello.name), region)},
            lambda _: None,
            lambda _: None,
        )

    def _take_server(self, hello: Hello, caller: Caller) -> PeerSession:
        self._check_server(hello, caller)

        def opened(_: Peer) -> None:
            log.info("server connected: name=%s address=%s", hello.name, caller.address)

        def closed(_: Peer) -> None:
            log.info("server disconnected: name=%s", hello.name)

        return PeerSession(OfferedToServers(self._server, self._api, hello.name), opened, closed)


class FarServers:
    """The servers as seen by an agent that runs none."""

    def __init__(self, config: AgentConfig, *, identity: NodeIdentity, env: Env, tls: TlsSettings) -> None:
        self._serves: dict[str, Served] = {}
        hello = Hello(
            version=__version__,
            region=config.region,
            name=config.name,
            node_id=identity.node_id,
            secret_id=identity.secret_id,
            intro_token=config.client.get("intro_token", ""),
        )
        security = dialling(tls, role_name("server", config.region))
        self._link = Link(
            server_addresses(config),
            dialler=Dialler(lambda: hello, security, connect_s=dial_limit_s(config)),
            serves=self._serves,
            env=env,
            times=link_times(config),
        )
        self.server: ServerPort = watched_port(_SERVER, SERVER, self._link, leader_calls=LEADER_CALLS, env=env)
        self.api: ApiPort = far_port(_API, API, self._link.peer)

    def join(self, client: Client) -> None:
        """Offer the client's node to the servers."""
        self._serves[NODE] = Served(_NODE, client.calls, ProvenCaller(kind=CallerKind.SERVER))
        self._link.subscribe(client.server_found)

    def learn(self, addresses: tuple[str, ...]) -> None:
        """Adopt the addresses that a server has sent."""
        self._link.learn(tuple(with_port(each, RPC_PORT) for each in addresses))

    @property
    def problem(self) -> str:
        """Why there is no connection; "" when there is one."""
        return "" if self._link.server else self._link.problem

    async def run(self) -> None:
        """Keep the connection until cancelled."""
        await self._link.run()


def server_addresses(config: AgentConfig) -> tuple[str, ...]:
    """The configured server addresses, each with a port."""
    joined = config.client.get("server_join", {})
    given = (*config.client.get("servers", ()), *joined.get("retry_join", ()), *joined.get("start_join", ()))
    return tuple(dict.fromkeys(with_port(address, RPC_PORT) for address in given))


def dial_limit_s(config: AgentConfig) -> float:
    """How long a client waits for a server to accept a connection: `rpc.dial_timeout`."""
    return seconds_of(config.raw.get("rpc", {}).get("dial_timeout"), CONNECT_LIMIT_S)


def link_times(config: AgentConfig) -> LinkTimes:
    """How a client tries its servers, by `client.server_join`, and probes them."""
    joined = config.client.get("server_join", {})
    pause_s = seconds_of(joined.get("retry_interval"), PAUSE_MAX_S)
    return LinkTimes(pause_max_s=pause_s, rounds_max=joined.get("retry_max", 0), idle_s=IDLE_S)


def _always(peer: Peer) -> Callable[[], asyncio.Future[Peer]]:
    def get() -> asyncio.Future[Peer]:
        found: asyncio.Future[Peer] = asyncio.get_running_loop().create_future()
        found.set_result(peer)
        return found

    return get
