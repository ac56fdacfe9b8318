"""Certificates of users at the HTTP API: they let a connection in, and give no right beyond that."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from yurt.agent.tls import TlsSettings, http_context
from yurt.rpc.certificates import CertificatePair, Wish, make_authority, make_certificate
from yurt.runtime.env import RealEnv
from yurt.sdk.value import NANOSECONDS
from yurt.server.config import AclConfig
from yurt.testing.http_api import serving

DAY_NS = 86_400 * NANOSECONDS


class Files:
    """An authority, the certificate of a server, and those of users."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = RealEnv().now()
        self.authority = make_authority(Wish(common_name="authority", days=1), self.now)
        self.ca_file = self.write("ca", self.authority)[0]
        self.server = self.made("server.global.nomad", is_server=True)

    def write(self, name: str, pair: CertificatePair) -> tuple[str, str]:
        """The paths of the certificate and the key."""
        paths = self.folder / f"{name}.pem", self.folder / f"{name}-key.pem"
        for path, data in zip(paths, (pair.certificate, pair.key), strict=True):
            path.write_bytes(data)
        return str(paths[0]), str(paths[1])

    def made(self, name: str, *, is_server: bool = False) -> tuple[str, str]:
        """A certificate of the authority."""
        wish = Wish(common_name=name, days=1, is_server=is_server, addresses=("127.0.0.1",))
        return self.write(name, make_certificate(wish, self.authority, self.now))

    def shown(self, kind: str) -> tuple[str, str] | None:
        """What a user shows."""
        wish = Wish(common_name="global-management", days=1)
        if kind == "none":
            return None
        if kind == "of another authority":
            other = make_authority(Wish(common_name="authority", days=1), self.now)
            return self.write(kind, make_certificate(wish, other, self.now))
        if kind == "expired":
            return self.write(kind, make_certificate(wish, self.authority, self.now - 2 * DAY_NS))
        return self.made(kind)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@asynccontextmanager
async def address(files: Files, *, verifies: bool = True) -> AsyncIterator[str]:
    """An API with access control that serves HTTPS as an agent does."""
    certificate, key = files.server
    settings = TlsSettings(
        http=True, verify_https_client=verifies, ca_file=files.ca_file, cert_file=certificate, key_file=key
    )
    async with serving(acl=AclConfig(enabled=True)) as api:
        runner = api.client.server.runner
        assert runner is not None
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=http_context(settings))
        await site.start()
        port = runner.addresses[-1][1]
        yield f"https://127.0.0.1:{port}"


async def status(url: str, files: Files, shown: tuple[str, str] | None, **headers: str) -> int:
    """The status of a request over a connection of its own; raises ClientError or OSError when TLS fails."""
    context = ssl.create_default_context(cafile=files.ca_file)
    if shown is not None:
        context.load_cert_chain(*shown)
    connector = aiohttp.TCPConnector(ssl=context, force_close=True)
    async with aiohttp.ClientSession(connector=connector) as session, session.get(url, headers=headers) as answer:
        return answer.status


@pytest.mark.parametrize("kind", ["none", "of another authority", "expired"])
async def test_only_a_valid_certificate_of_the_authority_gets_an_answer(files: Files, kind: str) -> None:
    async with address(files) as url:
        with pytest.raises((aiohttp.ClientError, OSError)):
            await status(f"{url}/v1/status/leader", files, files.shown(kind))
        assert await status(f"{url}/v1/status/leader", files, files.made("cli.global.nomad")) == 200


@pytest.mark.parametrize("name", ["cli.global.nomad", "client.global.nomad", "server.global.nomad", "management"])
async def test_no_name_in_a_certificate_gives_a_right(files: Files, name: str) -> None:
    async with address(files) as url:
        shown = files.made(name, is_server=name.startswith("server"))
        for path in ("/v1/acl/tokens", "/v1/nodes", "/v1/agent/self", "/v1/operator/raft/configuration"):
            assert await status(url + path, files, shown) == 403, path


async def test_without_verification_no_certificate_is_asked_for(files: Files) -> None:
    async with address(files, verifies=False) as url:
        assert await status(f"{url}/v1/status/leader", files, None) == 200
        assert await status(f"{url}/v1/acl/tokens", files, None) == 403
