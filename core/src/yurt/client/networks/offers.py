"""Detects the offered networks at the start, and again when the CNI folders change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from yurt.client.networks.description import with_networks
from yurt.client.networks.detection import Offered, find_offered, folders_mark
from yurt.client.networks.settings import NetworkSettings
from yurt.client.node.local_node import LocalNode
from yurt.runtime.env import Env
from yurt.structs.node import Node

LOOK_EVERY_S = 5.0
Finder = Callable[[NetworkSettings], Awaitable[Offered]]
"""Detects the networks of a machine; a client on a virtual clock cannot wait for programs."""


class OfferedNetworks:
    """The networks that this node offers, and the node's description by them."""

    def __init__(self, settings: NetworkSettings, env: Env, *, node: LocalNode, find: Finder = find_offered) -> None:
        self.offered = Offered()
        self._settings = settings
        self._env = env
        self._node = node
        self._find = find

    async def open(self) -> None:
        """Detect the networks and describe the node by them."""
        self.offered = await self._find(self._settings)
        self._node.change(self.applied)

    def applied(self, node: Node) -> Node:
        """The node with these networks."""
        return with_networks(node, self.offered, self._settings)

    async def run(self) -> None:
        """Detect again whenever the folders of plugins or configurations change, until cancelled."""
        mark = await asyncio.to_thread(folders_mark, self._settings)
        while True:
            await self._env.sleep(LOOK_EVERY_S)
            now = await asyncio.to_thread(folders_mark, self._settings)
            if now != mark:
                mark = now
                await self.open()
