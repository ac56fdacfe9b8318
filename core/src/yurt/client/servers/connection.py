"""Registration and heartbeats: how a client stays known to its servers.

The client beats as initializing until its allocations have been fetched, re-attached and reported (invariant E1); then
it beats as ready. When the servers do not agree, they have lost sight of it meanwhile, and it does all of that again.
Whatever goes wrong with the servers only changes when they are asked again: it never touches a task.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from yurt.client.ports import ServerPort
from yurt.client.servers.node_token import NodeToken
from yurt.client.waiting import wait_or_sleep
from yurt.lifecycle import heartbeats
from yurt.lifecycle.heartbeats import Contact
from yurt.rpc.peer import ConnectionLost
from yurt.runtime.env import Env
from yurt.sdk.errors import NotFound, Unavailable, YurtError
from yurt.sdk.value import replace
from yurt.storage.client_db import ClientDatabase
from yurt.structs.node import Node
from yurt.structs.rpc import NodeReply, RegisterNodeRequest
from yurt.structs.status import NODE_INIT, NODE_READY

log = logging.getLogger(__name__)


class Connection:
    """The client's standing with its servers."""

    def __init__(
        self,
        server: ServerPort,
        env: Env,
        *,
        node: Callable[[], Node],
        schemas: Mapping[str, Mapping[str, Any]],
        tokens: ClientDatabase,
        is_dev: bool,
    ) -> None:
        self.contact = Contact(is_dev=is_dev, last_ok_s=env.monotonic())
        self.registered_index = 0
        self.status = NODE_INIT
        self.servers: tuple[str, ...] = ()
        self.registered = asyncio.Event()
        self.ready = asyncio.Event()
        self.on_servers: Callable[[tuple[str, ...]], None] = lambda _: None
        self.on_reconnect: Callable[[int], None] = lambda _: None
        """Called with the index from which on the servers are to be asked and told everything again."""
        self._server = server
        self._env = env
        self._node = node
        self._schemas = schemas
        self._allowed = asyncio.Event()
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()
        self.token = NodeToken(tokens, env, wake=self._wake.set)
        self._found = asyncio.Event()
        self._is_forgotten = False
        self._refusals = 0

    def allow_ready(self) -> None:
        """All allocations have been fetched, taken up and reported: the servers hear it at once.

        When they have refused that already, they hear it with the next heartbeat.
        """
        self._allowed.set()
        if self._refusals < 2:
            self._wake.set()

    def change_schemas(self, schemas: Mapping[str, Mapping[str, Any]]) -> None:
        """The drivers have other options than before: the servers are told with the next registration."""
        if schemas != self._schemas:
            self._schemas = schemas
            self.node_changed()

    def set_servers(self, addresses: tuple[str, ...]) -> None:
        """These are the servers from now on."""
        self.servers = addresses
        self.on_servers(addresses)

    def server_found(self) -> None:
        """A server can be reached again: there is no need to wait for the next try."""
        self._found.set()
        self._wake.set()

    def node_changed(self) -> None:
        """The node differs from what was registered."""
        self._changed.set()
        self._wake.set()

    async def run(self) -> None:
        """Register, then beat, for ever."""
        await self.token.load()
        while True:
            await self._register()
            await self._beat()

    async def _register(self) -> None:
        while True:
            self._changed.clear()
            self._wake.clear()
            node, token = replace(self._node(), status=self.status), self.token
            request = RegisterNodeRequest(
                node=node, schemas=self._schemas, identity=token.held(node), token=token.token
            )
            try:
                reply = await self._server.register_node(request)
            except YurtError as error:
                retry_s = heartbeats.register_retry(self.contact, self._env.random())
                log.warning("registering the node failed: %s; trying again in %.0fs", error, retry_s)
                self._found.clear()
                await wait_or_sleep(self._env, self._found, retry_s)
                continue
            self._take(reply)
            await self.token.take(reply.identity)
            self.registered_index = reply.index
            self.registered.set()
            if self._is_forgotten:
                self._is_forgotten = False
                self._start_again(reply.index)
            if reply.node_status != self.status:
                self._wake.set()
            return

    def _take(self, reply: NodeReply) -> None:
        now_s = self._env.monotonic()
        self.contact = heartbeats.answered(self.contact, ttl_s=reply.heartbeat_ttl_s, now_s=now_s)
        if reply.servers:
            self.set_servers(reply.servers)

    async def _beat(self) -> None:
        """Beat until the node has to be registered again: it is unknown, or it changed."""
        due_s = self.contact.ttl_s
        if self._allowed.is_set() and self.status == NODE_INIT:
            self._wake.set()
        while True:
            await wait_or_sleep(self._env, self._wake, due_s)
            self._wake.clear()
            if self._changed.is_set():
                return
            wanted = NODE_READY if self._allowed.is_set() else NODE_INIT
            try:
                node = self._node()
                reply = await self._server.heartbeat(node.id, wanted, self.token.held(node))
            except NotFound:
                log.warning("the servers do not know this node; registering it again")
                self._is_forgotten = True
                return
            except YurtError as error:
                due_s = self._retry_s(error)
                log.warning("heartbeat failed: %s; trying again in %.1fs", error, due_s)
                continue
            self._take(reply)
            due_s = self.contact.ttl_s
            self._settle(wanted, reply)
            await self.token.take(reply.identity)

    def _settle(self, wanted: str, reply: NodeReply) -> None:
        """What the servers made of a beat."""
        status = reply.node_status or wanted
        if wanted == NODE_READY and status != NODE_READY:
            self._refusals += 1
            self._start_again(reply.index)
        elif status == NODE_READY:
            self._refusals = 0
            self.status = NODE_READY
            self.ready.set()

    def _start_again(self, index: int) -> None:
        """The servers have lost sight of this node: it is ready when it has fetched and told everything once more."""
        self.status = NODE_INIT
        self._allowed.clear()
        self.on_reconnect(index)

    def _retry_s(self, error: YurtError) -> float:
        return heartbeats.heartbeat_retry(
            self.contact,
            has_leader=isinstance(error, ConnectionLost) or not isinstance(error, Unavailable),
            now_s=self._env.monotonic(),
            chance=self._env.random(),
        )
