"""A server's routes to client nodes: over their own connections, or through the server that has one.

A node that is connected elsewhere is looked for when a call is made, first where it was last; nothing else need be
kept true. A server passes calls on to the nodes that are connected to itself only, so none is passed on twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

from yurt.rpc.contract import PortMethod, contract_of
from yurt.sdk.errors import NotFound, Reason, Unavailable, YurtError
from yurt.server.log.replica import Replica
from yurt.server.peers import Peers
from yurt.server.ports import NodePort

LOOK_LIMIT_S: Final = 3.0
"""The time limit, in seconds, for other servers to answer whether a node is connected to them."""
PLACES_MAX: Final = 20_000
NO_PATH: Final = "No path to node"
_CONTRACT = contract_of(NodePort)

Find = Callable[[], Awaitable[NodePort]]


class NodePorts:
    """The reachable nodes."""

    def __init__(self, replica: Replica, peers: Peers) -> None:
        self._replica = replica
        self._peers = peers
        self._here: dict[str, tuple[NodePort, ...]] = {}
        self._places: dict[str, str] = {}

    def attach(self, node_id: str, port: NodePort) -> None:
        """Add a connection of the node; it takes precedence over earlier ones."""
        self._here[node_id] = (*self._here.get(node_id, ()), port)

    def detach(self, node_id: str, port: NodePort) -> None:
        """Remove a connection of the node; others remain."""
        remaining = tuple(each for each in self._here.pop(node_id, ()) if each is not port)
        if remaining:
            self._here[node_id] = remaining

    def has(self, node_id: str) -> bool:
        """Whether the node is connected to this server."""
        return node_id in self._here

    def here(self, node_id: str) -> NodePort:
        """A node that is connected to this server; raises Unavailable if it is not."""
        ports = self._here.get(node_id)
        if not ports:
            raise Unavailable(NO_PATH, reason=Reason.NO_PATH_TO_NODE)
        return ports[-1]

    def find(self, node_id: str) -> NodePort:
        """A node at any server; raises NotFound for an unregistered one, or Unavailable, now or at a call.

        Later is when the port is called, because only then other servers are asked.
        """
        if node_id not in self._here and node_id not in self._replica.state.nodes:
            raise NotFound(f"Unknown node {node_id}", reason=Reason.UNKNOWN_NODE)
        if node_id in self._here or not self._peers.names:
            return self.here(node_id)

        async def find() -> NodePort:
            if node_id in self._here:
                return self.here(node_id)
            return self._peers.node(await self._place(node_id), node_id)

        return lookup_port(find)

    async def everywhere(self, node_id: str, *, limit_s: float) -> tuple[NodePort, ...]:
        """All connections of a node here, and the newest one at each other server that answers in time."""
        peers = self._peers

        async def has(name: str) -> bool:
            try:
                async with asyncio.timeout(limit_s):
                    return await peers.peer(name).has_node(node_id)
            except (YurtError, TimeoutError):
                return False

        names = peers.names
        answers = await asyncio.gather(*(has(name) for name in names))
        far = [peers.node(name, node_id) for name, is_there in zip(names, answers, strict=True) if is_there]
        return (*self._here.get(node_id, ()), *far)

    async def _place(self, node_id: str) -> str:
        """The server with a connection of the node."""
        last = self._places.pop(node_id, "")
        names = self._peers.names
        if last not in names or not await self._is_at(last, node_id):
            others = [name for name in names if name != last]
            answers = await asyncio.gather(*(self._is_at(name, node_id) for name in others))
            last = next((name for name, is_there in zip(others, answers, strict=True) if is_there), "")
        if not last:
            raise Unavailable(NO_PATH, reason=Reason.NO_PATH_TO_NODE)
        if len(self._places) >= PLACES_MAX:
            self._places.clear()
        self._places[node_id] = last
        return last

    async def _is_at(self, name: str, node_id: str) -> bool:
        try:
            async with asyncio.timeout(LOOK_LIMIT_S):
                return await self._peers.peer(name).has_node(node_id)
        except (YurtError, TimeoutError):
            return False


def lookup_port(find: Find) -> NodePort:
    """A port that is looked up for each call."""
    calls = {method.name: _call(method, find) for method in _CONTRACT.values()}
    port: NodePort = type("FoundNode", (), calls)()
    return port


def _call(method: PortMethod, find: Find) -> Callable[..., Any]:
    if method.is_stream:

        async def stream(self: object, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
            items = getattr(await find(), method.name)(*args, **kwargs)
            async with aclosing(items):
                async for item in items:
                    yield item

        return stream

    async def call(self: object, *args: Any, **kwargs: Any) -> Any:
        return await getattr(await find(), method.name)(*args, **kwargs)

    return call
