"""The server's side of clients: their calls, and connections to their nodes."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from yurt.server.clients.client_calls import ClientCalls
from yurt.server.clients.introduction import Introductions
from yurt.server.clients.leader_calls import LocalCalls
from yurt.server.clients.node_authentication import NodeAuthenticator, NodeCredentials
from yurt.server.clients.node_ports import NodePorts
from yurt.server.clients.node_service import NodeService
from yurt.server.clients.remote_clients import RemoteClient


class Clients(msgspec.Struct, frozen=True):
    """The clients of one server."""

    node_ports: NodePorts
    node_service: NodeService
    introductions: Introductions
    authenticator: NodeAuthenticator
    local_calls: LocalCalls
    """Handles calls while this server leads; other servers forward their clients' calls to it."""
    calls: ClientCalls
    """The calls made by the client of this agent."""

    def connect(
        self, credentials: NodeCredentials, *, on_standing: Callable[[bool], None] = lambda _: None
    ) -> RemoteClient:
        """The port for a client that connects over the network; raises as `RemoteClient` does."""
        return RemoteClient(self.calls, self.authenticator, credentials, on_standing=on_standing)
