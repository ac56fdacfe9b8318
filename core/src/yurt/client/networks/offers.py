"""Keeps what this machine offers to groups up to date: found at the start, and again when the folders change."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from yurt.client.networks.description import with_networks
from yurt.client.networks.offered import Offered, find_offered, folders_mark
from yurt.client.networks.settings import NetworkSettings
from yurt.client.node.local_node import LocalNode
from yurt.runtime.env import Env
from yurt.structs.node import Node

LOOK_EVERY_S = 5.0
Finder = Callable[[NetworkSettings], Awaitable[Offered]]
"""How it is found out what a machine offers; a client on a virtual clock cannot wait for programs."""


class Offers:
    """The networks that this node offers, by which it describes itself."""

    def __init__(self, settings: NetworkSettings, env: Env, *, node: LocalNode, find: Finder = find_offered) -> None:
        self.offered = Offered()
        self._settings = settings
        self._env = env
        self._node = node
        self._find = find

    async def open(self) -> None:
        """Find out what this machine offers."""
        self.offered = await self._find(self._settings)
        self._node.change(self.applied)

    def applied(self, node: Node) -> Node:
        """The node with these networks."""
        return with_networks(node, self.offered, self._settings)

    async def run(self) -> None:
        """Follow the folders of plugins and configurations, for ever."""
        mark = await asyncio.to_thread(folders_mark, self._settings)
        while True:
            await self._env.sleep(LOOK_EVERY_S)
            now = await asyncio.to_thread(folders_mark, self._settings)
            if now != mark:
                mark = now
                await self.open()
