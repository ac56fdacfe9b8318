"""Agents with and without TLS speak to each other in the upgrade mode, and in no other."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from yurt.agent.tls import TlsSettings, dialling, server_credentials
from yurt.rpc.certificates import Wish, make_authority, make_certificate
from yurt.rpc.dialling import Dialler, Security
from yurt.rpc.frames import Hello, Welcome
from yurt.rpc.link import Link
from yurt.rpc.listener import Caller, Listener, PeerSession
from yurt.runtime.env import RealEnv
from yurt.testing.fakes import eventually

NAME = "server.global.nomad"


@pytest.fixture
def tls(tmp_path: Path) -> TlsSettings:
    """The settings of a server, with its files."""
    now = RealEnv().now()
    authority = make_authority(Wish(common_name="authority", days=1), now)
    pair = make_certificate(Wish(common_name=NAME, days=1, is_server=True), authority, now)
    for name, data in (("ca.pem", authority.certificate), ("a.pem", pair.certificate), ("a.key", pair.key)):
        (tmp_path / name).write_bytes(data)
    files = {"ca_file": "ca.pem", "cert_file": "a.pem", "key_file": "a.key"}
    return TlsSettings(rpc=True, **{name: str(tmp_path / file) for name, file in files.items()})


@asynccontextmanager
async def listening(
    credentials: Callable[[], ssl.SSLContext] | None, *, allows_plain: bool = False
) -> AsyncIterator[tuple[str, list[Caller]]]:
    callers: list[Caller] = []

    def accept(_: Hello, caller: Caller) -> PeerSession:
        callers.append(caller)
        return PeerSession({}, lambda _: None, lambda _: None)

    listener = Listener(accept=accept, welcome=Welcome(name="s"))
    port = await listener.start("127.0.0.1:0", credentials, allows_plain=allows_plain)
    try:
        yield f"127.0.0.1:{port}", callers
    finally:
        await listener.stop()


@asynccontextmanager
async def linked(address: str, security: Security | None) -> AsyncIterator[Link]:
    link = Link((address,), dialler=Dialler(lambda: Hello(name="c"), security), serves={}, env=RealEnv())
    running = asyncio.ensure_future(link.run())
    try:
        yield link
    finally:
        running.cancel()
        await asyncio.wait({running})


async def test_in_the_upgrade_mode_both_kinds_are_taken_in(tls: TlsSettings) -> None:
    async with listening(server_credentials(tls), allows_plain=True) as (address, callers):
        for security, has_tls in ((dialling(tls, NAME), True), (None, False)):
            async with linked(address, security) as link, asyncio.timeout(20):
                await link.peer()
            assert (callers[-1].has_tls, NAME in callers[-1].names) == (has_tls, has_tls)


async def test_in_the_upgrade_mode_a_server_without_tls_is_dialled_too(tls: TlsSettings) -> None:
    upgrading = TlsSettings(rpc=True, upgrade=True, ca_file=tls.ca_file, cert_file=tls.cert_file, key_file=tls.key_file)
    async with listening(None) as (address, callers):
        async with linked(address, dialling(upgrading, NAME)) as link, asyncio.timeout(20):
            await link.peer()
        assert callers[-1].has_tls is False


async def test_otherwise_neither_is_spoken_to_and_each_side_says_why(
    tls: TlsSettings, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(None) as (address, callers), linked(address, dialling(tls, NAME)):
        await eventually(lambda: "it may not speak TLS yet: restart it with `tls { rpc = true }`" in caplog.text)
        await eventually(lambda: "it speaks TLS, and `tls { rpc = true }` is not set here" in caplog.text)
        assert not callers
    async with listening(server_credentials(tls)) as (address, callers), linked(address, None):
        await eventually(lambda: f"server cannot be used: address={address}" in caplog.text)
        assert not callers
