"""Events of the node for `node status`: each is sent once, and lost when no server accepts it."""

from __future__ import annotations

import asyncio

from yurt.client.node.local_node import LocalNode
from yurt.client.ports import ServerPort
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.structs.node import NodeEvent
from yurt.structs.rpc import NodeEventsRequest


class NodeEvents:
    """Sends events of this node to the servers."""

    def __init__(self, server: ServerPort, env: Env, *, node: LocalNode, group: asyncio.TaskGroup) -> None:
        self._server = server
        self._env = env
        self._node = node
        self._group = group

    def emit(self, subsystem: str, message: str, **details: str) -> None:
        """Send an event of a subsystem of the client: Driver, Device, Storage."""
        event = NodeEvent(message=message, subsystem=subsystem, details=details, timestamp=self._env.now())
        request = NodeEventsRequest(node_id=self._node.id, events=(event,))
        supervised(self._group, f"node event of {subsystem}", self._server.emit_events(request))
