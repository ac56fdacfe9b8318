"""Several servers of one region in one process, with a shared log and direct calls between them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from yurt.rpc.peer import ConnectionLost
from yurt.runtime.env import Env
from yurt.server.clients.node_authentication import NodeCredentials
from yurt.server.clients.remote_clients import RemoteClient
from yurt.server.config import ServerConfig
from yurt.server.peers import LeaderPort, PeerPort, Peers
from yurt.server.ports import NodePort
from yurt.server.resources.region_replication import AuthoritativeRegion
from yurt.server.server import Server
from yurt.structs.commands.versions import RegionRules
from yurt.testing.cluster_models.shared_log import LogView, SharedLog

NAMES = ("srv1.global", "srv2.global", "srv3.global")


def connected(
    server: Server, node_id: str, secret_id: str, *, on_standing: Callable[[bool], None] = lambda _: None, **given: str
) -> RemoteClient:
    """Credentials of a client that is connected to another server; `given` sets further fields."""
    credentials = NodeCredentials(node_id=node_id, secret_id=secret_id, **given)
    return server.clients.connect(credentials, on_standing=on_standing)


class LocalPeers:
    """The other servers, as one server sees them."""

    def __init__(self, group: ServerGroup, name: str) -> None:
        self._group = group
        self._name = name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all running servers, reachable or not."""
        return tuple(sorted(name for name in self._group.servers if name != self._name))

    @property
    def voters(self) -> int:
        """The names of all servers that ever ran."""
        return len(self._group.members)

    @property
    def rules(self) -> RegionRules:
        """The rules that the test gave the group."""
        return self._group.rules

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of all running servers."""
        return tuple(server.config.rpc_addr for _, server in sorted(self._group.servers.items()))

    def peer(self, name: str) -> PeerPort:
        """The port of another server."""
        return self._reach(name).rpc.peer_calls

    def leader(self, name: str) -> LeaderPort:
        """The leader's port of another server."""
        server = self._reach(name)
        return self._group.hanging_leaders.get(name, server.clients.local_calls)

    def node(self, name: str, node_id: str) -> NodePort:
        """The port of a node that is connected to another server."""
        return self._reach(name).clients.node_ports.here(node_id)

    def _reach(self, name: str) -> Server:
        server = self._group.servers.get(name)
        if server is None or {name, self._name} & self._group.cut_off:
            raise ConnectionLost(f"server {name} cannot be reached")
        return server


class ServerGroup:
    """Servers that can be started, stopped and partitioned."""

    def __init__(
        self,
        env: Env,
        *,
        peers: Mapping[str, Peers] | None = None,
        authority: AuthoritativeRegion | None = None,
        **config: Any,
    ) -> None:
        """`peers`: how a server reaches the others, where not by direct calls. `authority`: another region."""
        self.env = env
        self.hanging_leaders: dict[str, LeaderPort] = {}
        """What answers in place of a server's own calls for leaders."""
        self._peers = peers or {}
        self._authority = authority
        self.log = SharedLog()
        self.servers: dict[str, Server] = {}
        self.members: set[str] = set()
        self.rules = RegionRules()
        self.cut_off: set[str] = set()
        self._config = config
        self._running: dict[str, asyncio.Task[None]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    def __getitem__(self, name: str) -> Server:
        return self.servers[name]

    def view(self, name: str) -> LogView:
        """A server's view of the log."""
        return self.log.views[name]

    @property
    def leader(self) -> Server:
        """The leading server."""
        (leader,) = [server for server in self.servers.values() if server.is_leader]
        return leader

    @property
    def followers(self) -> list[Server]:
        """The servers that do not lead."""
        return [server for server in self.servers.values() if not server.is_leader]

    def start(self, name: str) -> asyncio.Event:
        """Start a server; the returned event is set once it knows a leader."""
        number = len(self.members | {name})
        config = {"rpc_addr": f"10.0.0.{number}:4647"} | self._config
        peers = self._peers.get(name) or LocalPeers(self, name)
        server = Server(
            ServerConfig(name=name, **config),
            env=self.env,
            log=self.log.view(name),
            peers=peers,
            authority=self._authority,
        )
        ready = asyncio.Event()
        self.members.add(name)
        self.servers[name] = server
        assert self._tasks is not None
        self._running[name] = self._tasks.create_task(server.run(ready=ready), name=name)
        return ready

    async def stop(self, name: str) -> None:
        """Stop a server."""
        server = self.servers.pop(name)
        await server.stop()
        await asyncio.wait({self._running.pop(name)})

    async def kill(self, name: str) -> None:
        """Kill a server without a shutdown; its disk remains."""
        del self.servers[name]
        task = self._running.pop(name)
        task.cancel()
        await asyncio.wait({task})
        await self.view(name).close()

    def cut(self, name: str) -> None:
        """Partition a server from the log and the other servers."""
        self.cut_off.add(name)
        self.view(name).cut_off()

    def mend(self, name: str) -> None:
        """Heal the partition."""
        self.cut_off.discard(name)
        self.view(name).reach()

    @asynccontextmanager
    async def running(self, names: Iterable[str] = NAMES) -> AsyncIterator[ServerGroup]:
        """Run the servers during the block; the first one leads."""
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            started = [self.start(name) for name in names]
            self.log.elect(next(iter(self.servers)))
            async with asyncio.timeout(60):
                for ready in started:
                    await ready.wait()
            try:
                yield self
            finally:
                for view in self.log.views.values():
                    view.go.set()
                    view.delivers.set()
                for name in tuple(self.servers):
                    await self.stop(name)
