"""The parts of a server that serve callers: HTTP requests of this agent, and other agents over RPC.

The HTTP API and the agent's links get one of these and never the server, so that their dependencies can be read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from yurt.access import Authority
from yurt.runtime.metrics import Metrics
from yurt.server.clients.clients import Clients
from yurt.server.clients.node_ports import NodePorts
from yurt.server.config import ServerConfig
from yurt.server.leadership.peer_calls import PeerCalls
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.event_buffer import EventBuffer
from yurt.server.log.replica import Replica
from yurt.server.log.state_loader import StateLoader
from yurt.server.operations import OperationDependencies
from yurt.server.server_status import ServerFacts

if TYPE_CHECKING:
    from yurt.server.keys.callers import Callers


class HttpBackend(msgspec.Struct, frozen=True):
    """The parts of a server for the HTTP API of its own agent."""

    config: ServerConfig
    replica: Replica
    leader: CurrentLeader
    loader: StateLoader
    events: EventBuffer
    authority: Authority
    """Decides what callers may do."""
    callers: Callers | None
    """Identifies callers by their credentials; None while access control is off."""
    node_ports: NodePorts
    operation_dependencies: OperationDependencies
    """The parts that carry out operations."""
    facts: ServerFacts
    metrics: Metrics

    def contents(self, names: tuple[str, ...]) -> tuple[object, ...]:
        """For each named table an object that represents its rows (`Rows.content`): another one after any change."""
        state = self.replica.state
        return tuple([state.table(name) for name in names])


class RpcBackend(msgspec.Struct, frozen=True):
    """The parts of a server for agents that connect: the clients of the region and its other servers."""

    clients: Clients
    peer_calls: PeerCalls
    metrics: Metrics
