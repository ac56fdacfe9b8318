"""A server's connections to other regions, one to some server of each, for forwarded requests and for the rows that the
authoritative region shares.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import quote

import msgspec

from yurt import __version__
from yurt.agent.config import AgentConfig
from yurt.agent.peers import API
from yurt.agent.tls import TlsSettings, dialling
from yurt.http.api_port import ApiPart, ApiPort, ApiRequest, no_body
from yurt.http.forwarding_headers import BY_REGION, FORWARDED
from yurt.rpc.certificates import SERVER, role_name
from yurt.rpc.contract import contract_of
from yurt.rpc.dialling import Dialler
from yurt.rpc.frames import Hello
from yurt.rpc.link import Link
from yurt.rpc.proxy import far_port
from yurt.runtime.env import Env, RealEnv
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import NotFound, Unavailable
from yurt.server.ports import Directory
from yurt.server.resources.region_replication import ReplicationPage
from yurt.state import TABLES
from yurt.structs.member import ALIVE
from yurt.structs.shared_rows import SharedDigests, SharedRows

log = logging.getLogger(__name__)

_API = contract_of(ApiPort)
TEXT_MAX = 200
"""The longest part of another region's refusal that is shown."""
ANSWER_S = 30.0
"""How long an answer may take, beyond the wait for a change."""
ANSWER_BYTES_MAX = 256 * 1024 * 1024
"""An answer lists one line of about 60 bytes for each row."""
T = TypeVar("T")


class RegionLinks:
    """A connection to each other region that has a server."""

    def __init__(self, config: AgentConfig, *, directory: Directory, env: Env, tls: TlsSettings, run_id: str) -> None:
        """`run_id` is the secret by which other servers recognize this one."""
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
    """Reads the shared rows of the authoritative region over its API; every failure is Unavailable."""

    def __init__(self, links: RegionLinks, region: str, *, token: str = "", env: Env | None = None) -> None:
        """`token` is the secret of a management token, where the authoritative region has access control."""
        self._links = links
        self._region = region
        self._token = token
        self._env = env or RealEnv()

    async def digests(self, table: str, *, min_index: int, wait_s: float) -> SharedDigests:
        """The digests of a table's shared rows, once it changed after `min_index`."""
        query = f"index={min_index}&wait={wait_s:g}s"
        body = await self._ask(f"/v1/regions/shared/{table}?{query}", limit_s=wait_s + ANSWER_S)
        return self._decoded(body, SharedDigests, table)

    async def rows(self, table: str, keys: Sequence[str]) -> ReplicationPage:
        """The rows with these keys, and the keys that did not fit into the answer."""
        query = "&".join(f"key={quote(key, safe='')}" for key in keys)
        body = await self._ask(f"/v1/regions/shared/{table}/rows?{query}", limit_s=ANSWER_S)
        found = self._decoded(body, SharedRows, table)
        kind = TABLES[table].codec.row_type
        return ReplicationPage(tuple(self._decoded(bytes(each), kind, table) for each in found.rows), found.left)

    def _decoded(self, body: bytes, kind: type[T], table: str) -> T:
        try:
            return msgspec.msgpack.decode(body, type=kind)
        except (msgspec.MsgspecError, ValueError) as error:
            raise Unavailable(f'region "{self._region}" sent an unreadable answer about {table}: {error}') from None

    async def _ask(self, path: str, *, limit_s: float) -> bytes:
        headers = {FORWARDED: BY_REGION} | ({"X-Nomad-Token": self._token} if self._token else {})
        request = ApiRequest(method="GET", path=path, headers=headers)
        try:
            async with (
                self._env.timeout(limit_s),
                aclosing(self._links.api(self._region).ask(request, no_body())) as parts,
            ):
                head, body = await _whole(parts)
        except NotFound as error:
            raise Unavailable(str(error)) from None
        except TimeoutError:
            raise Unavailable(f'region "{self._region}" has not answered for {limit_s:g} s') from None
        if head.status != HTTPStatus.OK:
            raise Unavailable(self._refusal(head.status, body[:TEXT_MAX].decode(errors="replace")))
        return body

    def _refusal(self, status: int, text: str) -> str:
        """The cause of a refusal, and its fix."""
        answer = f'region "{self._region}" answered {status}: {text.strip()}'
        if status == HTTPStatus.FORBIDDEN:
            shown = (
                "acl.replication_token, which it refuses,"
                if self._token
                else "acl.replication_token, which is not set,"
            )
            return f"{answer}; {shown} must be the secret of a management token that is valid there"
        if status == HTTPStatus.BAD_REQUEST and "ACL support disabled" in text:
            return f"{answer}; enable access control there, or name another server.authoritative_region"
        if status == HTTPStatus.NOT_FOUND:
            return f"{answer}; its servers run a version that does not share this: upgrade them first"
        return answer


async def _whole(parts: AsyncIterator[ApiPart]) -> tuple[ApiPart, bytes]:
    """The first part of an answer, and all of its body."""
    head, body = await anext(parts, ApiPart()), bytearray()
    async for part in parts:
        body += part.data
        if len(body) > ANSWER_BYTES_MAX:
            raise Unavailable(f"an answer of another region is longer than {ANSWER_BYTES_MAX} bytes")
    return head, bytes(body)
