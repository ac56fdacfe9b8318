"""The loop that registers a client with its servers and sends heartbeats.

A failure only changes the time of the next try; it never affects a task.
"""

from __future__ import annotations

import asyncio
import logging

from yurt.client.node.local_node import LocalNode
from yurt.client.ports import ServerPort
from yurt.client.servers.addresses import ServerAddresses
from yurt.client.servers.node_registration import NodeRegistration
from yurt.client.servers.node_token import NodeToken
from yurt.client.timed_waits import wait_or_sleep
from yurt.runtime.env import Env
from yurt.sdk.errors import NotFound, YurtError
from yurt.sdk.value import replace
from yurt.structs.rpc import NodeReply, RegisterNodeRequest

log = logging.getLogger(__name__)


class ServerConnection:
    """Keeps the node registered and alive."""

    def __init__(
        self,
        server: ServerPort,
        env: Env,
        *,
        node: LocalNode,
        token: NodeToken,
        standing: NodeRegistration,
        servers: ServerAddresses,
    ) -> None:
        self.servers = servers
        self._server = server
        self._env = env
        self._node = node
        self._token = token
        self._standing = standing
        self._beat_due = node.beat_due
        self._reachable = asyncio.Event()

    def server_found(self) -> None:
        """Try again at once, because a server can be reached again."""
        self._reachable.set()
        self._beat_due.set()

    async def run(self) -> None:
        """Register and send heartbeats until cancelled; register again when the node changes or is unknown."""
        await self._token.load()
        while True:
            await self._register()
            await self._beat()

    async def _register(self) -> None:
        standing, token = self._standing, self._token
        while True:
            self._node.is_changed = False
            self._beat_due.clear()
            node = replace(self._node.value, status=standing.status)
            request = RegisterNodeRequest(
                node=node, schemas=self._node.schemas, identity=token.identity_of(node), token=token.token
            )
            seen_before = standing.seen_index
            try:
                reply = await self._server.register_node(request)
            except YurtError as error:
                retry_s = standing.registration_retry_s()
                log.warning("registering the node failed: retry_s=%.0f error=%s", retry_s, error)
                self._reachable.clear()
                await wait_or_sleep(self._env, self._reachable, retry_s)
                continue
            self._take(reply)
            await token.take(reply.identity)
            standing.take_registration(reply, seen_before=seen_before)
            return

    def _take(self, reply: NodeReply) -> None:
        self._standing.answered(reply)
        if reply.servers:
            self.servers.replace(reply.servers)

    async def _beat(self) -> None:
        """Send heartbeats until the node is unknown to a server or has changed."""
        standing, token = self._standing, self._token
        due_s = standing.contact.ttl_s
        if standing.is_behind:
            self._beat_due.set()
        while True:
            await wait_or_sleep(self._env, self._beat_due, due_s)
            self._beat_due.clear()
            if self._node.is_changed:
                return
            desired_status = standing.desired_status
            try:
                identity = replace(token.identity_of(self._node.value), known_loss=standing.known_loss)
                reply = await self._server.heartbeat(self._node.id, desired_status, identity)
            except NotFound:
                log.warning("node is unknown to the servers, registering it again")
                standing.forget()
                return
            except YurtError as error:
                due_s = standing.beat_retry_s(error)
                log.warning("heartbeat failed: retry_s=%.1f error=%s", due_s, error)
                continue
            self._take(reply)
            if standing.is_of_other_cluster(reply):
                # That cluster may know the node from a snapshot that is older than the node's last reports.
                log.warning(
                    "the servers are another cluster, registering the node again: cluster_id=%s", reply.cluster_id
                )
                standing.forget()
                return
            due_s = standing.contact.ttl_s
            standing.take_beat(desired_status, reply)
            await token.take(reply.identity)
