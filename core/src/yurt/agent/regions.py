"""The connections of a server to other regions, one to some server of each, and what they are used for: requests for
another region, and copies of what the authoritative region decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from http import HTTPStatus
from typing import TypeVar

from yurt import __version__
from yurt.agent.config import AgentConfig
from yurt.agent.peers import API
from yurt.agent.tls import TlsSettings, dialling
from yurt.api.decode import decode_json, decode_value
from yurt.http.api_port import ApiPart, ApiPort, ApiRequest
from yurt.http.marks import BY_REGION, FORWARDED
from yurt.rpc.certificates import SERVER, role_name
from yurt.rpc.contract import contract_of
from yurt.rpc.dialling import Dialler
from yurt.rpc.frames import Hello
from yurt.rpc.link import Link
from yurt.rpc.proxy import far_port
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import Invalid, NotFound, Unavailable
from yurt.server.ports import Directory
from yurt.server.resources.region_replication import Pulled
from yurt.structs.cluster import Namespace, NodePool
from yurt.structs.member import ALIVE

log = logging.getLogger(__name__)

_API = contract_of(ApiPort)
INDEX = "x-nomad-index"
TEXT_MAX = 200
"""Of what another region says when it refuses, so much is shown."""
T = TypeVar("T", Namespace, NodePool)


class RegionLinks:
    """A connection to each other region that has a server."""

    def __init__(self, config: AgentConfig, *, directory: Directory, env: Env, tls: TlsSettings, run_id: str) -> None:
        """`run_id` is what this server proves itself with."""
        self._run_id = run_id
        self._region = config.region
        self._name = f"{config.name}.{config.region}"
        self._directory = directory
        self._env = env
        self._tls = tls
        self._links: dict[str, tuple[Link, asyncio.Task[None]]] = {}
        self._changed = asyncio.Event()
        directory.subscribe(self._changed.set)

    def api(self, region: str) -> ApiPort:
        """The HTTP API of a region; raises NotFound for one that has no server."""
        if region not in self._links:
            raise NotFound(f"no server of region {region[:64]!r} is known")
        port: ApiPort = far_port(_API, API, self._links[region][0].peer)
        return port

    async def run(self) -> None:
        """Keep the connections until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                self._keep_links(group)
                await self._changed.wait()

    def _keep_links(self, group: asyncio.TaskGroup) -> None:
        there: dict[str, list[str]] = {}
        for member in self._directory.members():
            if member.region != self._region and member.status == ALIVE:
                there.setdefault(member.region, []).append(member.rpc_addr)
        for region, (_, task) in tuple(self._links.items()):
            if region not in there:
                task.cancel()
                del self._links[region]
        for region, addresses in there.items():
            if region not in self._links:
                link = self._link(region, tuple(addresses))
                self._links[region] = (link, supervised(group, f"connection to region {region}", link.run()))
            self._links[region][0].learn(tuple(addresses))

    def _link(self, region: str, addresses: tuple[str, ...]) -> Link:
        hello = Hello(version=__version__, role=SERVER, region=self._region, name=self._name, secret_id=self._run_id)
        security = dialling(self._tls, role_name(SERVER, region))
        return Link(addresses, dialler=Dialler(lambda: hello, security), serves={}, env=self._env)


class FarAuthority:
    """What the authoritative region decides, asked over its API."""

    def __init__(self, links: RegionLinks, region: str, *, token: str = "") -> None:
        """`token` is the secret of a management token, where the authoritative region has access control."""
        self._links = links
        self._region = region
        self._token = token

    async def namespaces(self, *, min_index: int, wait_s: float) -> Pulled[Namespace]:
        """All namespaces, once they changed after `min_index`."""
        return await self._pull("/v1/namespaces", Namespace, min_index, wait_s)

    async def node_pools(self, *, min_index: int, wait_s: float) -> Pulled[NodePool]:
        """All node pools, once they changed after `min_index`."""
        return await self._pull("/v1/node/pools", NodePool, min_index, wait_s)

    async def _pull(self, path: str, kind: type[T], min_index: int, wait_s: float) -> Pulled[T]:
        query = f"index={min_index}&wait={wait_s:g}s&region={self._region}&complete=true"
        headers = {FORWARDED: BY_REGION} | ({"X-Nomad-Token": self._token} if self._token else {})
        request = ApiRequest(method="GET", path=f"{path}?{query}", headers=headers)
        try:
            async with aclosing(self._links.api(self._region).ask(request, _no_body())) as parts:
                head, body = await _whole(parts)
        except NotFound as error:
            raise Unavailable(str(error)) from None
        if head.status != HTTPStatus.OK:
            text = body[:TEXT_MAX].decode(errors="replace")
            raise Unavailable(f"region {self._region} answered {head.status}: {text}")
        found, index = decode_json(body), next((v for k, v in head.headers.items() if k.lower() == INDEX), "0")
        if not isinstance(found, list):
            raise Invalid(f"region {self._region} answered {path} with no list")
        return Pulled(int(index), tuple(decode_value(each, kind, name=kind.__name__)[0] for each in found))


async def _whole(parts: AsyncIterator[ApiPart]) -> tuple[ApiPart, bytes]:
    """The first part of an answer, and all of its body."""
    head, body = await anext(parts, ApiPart()), bytearray()
    async for part in parts:
        body += part.data
    return head, bytes(body)


async def _no_body() -> AsyncGenerator[bytes]:
    for piece in b"":
        yield bytes([piece])
