"""A server finds out whether another one and it accept each other's certificates, over a real connection by TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from yurt.agent.addresses import bracketed
from yurt.agent.cluster.certificate_probe import CertificateProbe, names_host
from yurt.agent.cluster.exchange import Exchange
from yurt.agent.cluster.members_listener import MembersListener
from yurt.agent.cluster.membership import Membership
from yurt.agent.cluster.security import ServerSecurity
from yurt.agent.tls import TlsSettings
from yurt.rpc.certificates import CLIENT, SERVER, CertificatePair, Wish, make_authority, make_certificate, role_name
from yurt.rpc.dialling import Security
from yurt.runtime.env import RealEnv
from yurt.sdk.value import NANOSECONDS, UnixNano, replace
from yurt.structs.member import Member
from yurt.testing.fake_cluster import member

HERE = "127.0.0.1"
DAY_NS = 24 * 3600 * NANOSECONDS
REFUSED = "it does not accept the certificate of this agent"
NO_AUTHORITY = "the certificate of server b.global is not signed by an authority in this server's ca_file"


def authority() -> CertificatePair:
    return make_authority(Wish(common_name="Nomad Agent CA", days=9), RealEnv().now())


def settings(
    folder: Path, signer: CertificatePair, *, trusts: tuple[CertificatePair, ...] = (), role: str = SERVER,
    address: str = HERE, begins_days_ago: int = 0, region: str = "global",
) -> TlsSettings:  # fmt: skip
    """The `tls` block of a server whose certificate is valid for two days; it trusts its signer, or else `trusts`."""
    folder.mkdir()
    wish = Wish(common_name=role_name(role, region), days=2, addresses=(address,), is_server=True)
    pair = make_certificate(wish, signer, UnixNano(RealEnv().now() - begins_days_ago * DAY_NS))
    (folder / "ca.pem").write_bytes(b"".join(each.certificate for each in trusts or (signer,)))
    (folder / "cert.pem").write_bytes(pair.certificate)
    (folder / "key.pem").write_bytes(pair.key)
    return TlsSettings(
        rpc=True, ca_file=f"{folder}/ca.pem", cert_file=f"{folder}/cert.pem", key_file=f"{folder}/key.pem"
    )


@asynccontextmanager
async def listening(tls: TlsSettings, *, here: str = HERE, region: str = "global") -> AsyncIterator[Member]:
    """The server `b`, which listens for other servers."""
    membership = Membership(member("b", region), env=RealEnv())
    host = bracketed(here)
    listener = MembersListener(membership, security=ServerSecurity(tls))
    port = await listener.start(f"{host}:0")
    try:
        yield replace(membership.own, address=f"{host}:{port}", etcd_addr=f"{host}:4649", has_tls=tls.rpc)
    finally:
        await listener.stop()


class UpToVersion(ServerSecurity):
    """Dials with a version of TLS at most."""

    version = ssl.TLSVersion.MAXIMUM_SUPPORTED

    def dialling(self, region: str) -> Security | None:
        found = super().dialling(region)
        assert found is not None

        def credentials() -> ssl.SSLContext:
            context = found.credentials()
            context.maximum_version = self.version
            return context

        return found._replace(credentials=credentials)


def probe(tls: TlsSettings, version: ssl.TLSVersion = ssl.TLSVersion.MAXIMUM_SUPPORTED) -> CertificateProbe:
    """That of the server `a`."""
    security, env = UpToVersion(tls), RealEnv()
    security.version = version
    exchange = Exchange(Membership(member("a"), env=env), security=security, env=env)
    return CertificateProbe(exchange.hello, security=security, region="global")


async def problem(own: TlsSettings, other: TlsSettings) -> str:
    async with listening(other) as server:
        return await probe(own).problem_with(server)


async def test_servers_whose_certificates_one_authority_signed_accept_each_other(tmp_path: Path) -> None:
    signer = authority()
    assert await problem(settings(tmp_path / "a", signer), settings(tmp_path / "b", signer)) == ""


async def test_servers_with_ipv6_addresses_accept_each_other(tmp_path: Path) -> None:
    signer, here = authority(), "::1"
    own, other = settings(tmp_path / "a", signer, address=here), settings(tmp_path / "b", signer, address=here)
    async with listening(other, here=here) as server:
        assert await probe(own).problem_with(server) == ""
        elsewhere = replace(server, etcd_addr="[fd00::1]:4649")
        assert "does not name fd00::1, where" in await probe(own).problem_with(elsewhere)


async def test_servers_that_name_each_others_authority_accept_each_other(tmp_path: Path) -> None:
    first, second = authority(), authority()
    own = settings(tmp_path / "a", first, trusts=(first, second))
    assert await problem(own, settings(tmp_path / "b", second, trusts=(second, first))) == ""


async def test_a_certificate_of_another_authority_is_named(tmp_path: Path) -> None:
    found = await problem(settings(tmp_path / "a", authority()), settings(tmp_path / "b", authority()))
    assert found.startswith(NO_AUTHORITY)


async def test_an_expired_certificate_is_named(tmp_path: Path) -> None:
    signer = authority()
    found = await problem(settings(tmp_path / "a", signer), settings(tmp_path / "b", signer, begins_days_ago=3))
    assert found.startswith("the certificate of server b.global has expired")


async def test_a_certificate_that_is_not_valid_yet_is_named(tmp_path: Path) -> None:
    signer = authority()
    found = await problem(settings(tmp_path / "a", signer), settings(tmp_path / "b", signer, begins_days_ago=-1))
    assert found.startswith("the certificate of server b.global is not valid yet")


async def test_a_certificate_of_another_role_is_named(tmp_path: Path) -> None:
    signer = authority()
    found = await problem(settings(tmp_path / "a", signer), settings(tmp_path / "b", signer, role=CLIENT))
    assert found.startswith("the certificate of server b.global does not name server.global.nomad")


async def test_a_certificate_without_the_address_of_the_etcd_member_is_named(tmp_path: Path) -> None:
    signer = authority()
    found = await problem(settings(tmp_path / "a", signer), settings(tmp_path / "b", signer, address="10.0.0.9"))
    assert found.startswith("the certificate of server b.global does not name 127.0.0.1")
    assert "-additional-ipaddress 127.0.0.1" in found


async def test_a_server_that_does_not_know_this_ones_authority_is_named(tmp_path: Path) -> None:
    first, second = authority(), authority()
    own = settings(tmp_path / "a", first, trusts=(first, second))
    found = await problem(own, settings(tmp_path / "b", second))
    assert found == f"server b.global: {REFUSED}: its ca_file has no authority that signed it"


async def test_a_server_that_expects_another_role_of_this_one_is_named(tmp_path: Path) -> None:
    signer = authority()
    found = await problem(settings(tmp_path / "a", signer, role=CLIENT), settings(tmp_path / "b", signer))
    assert found.startswith(f"server b.global: {REFUSED}: the certificate names client.")


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
def test_a_refused_certificate_is_told_by_its_alert(tmp_path: Path, version: ssl.TLSVersion, loop: str) -> None:
    """In TLS 1.2 the alert comes before the handshake ends, in TLS 1.3 after it."""
    signer, later = authority(), authority()
    expired = settings(tmp_path / "a", signer, begins_days_ago=3)
    unknown = settings(tmp_path / "c", later, trusts=(later, signer))
    other = settings(tmp_path / "b", signer)

    async def problems() -> list[str]:
        async with listening(other) as server:
            return [await probe(own, version).problem_with(server) for own in (expired, unknown)]

    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        first, second = runner.run(problems())
    assert first == f"server b.global: {REFUSED}: it has expired, or is not valid yet by that server's clock"
    assert second == f"server b.global: {REFUSED}: its ca_file has no authority that signed it"


async def test_a_server_that_stops_refuses_no_certificate(tmp_path: Path) -> None:
    signer = authority()
    own, other = probe(settings(tmp_path / "a", signer)), settings(tmp_path / "b", signer)

    class Stops(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.close()

    context = ServerSecurity(other).listening()
    assert context is not None
    stopping = await asyncio.get_running_loop().create_server(Stops, HERE, 0, ssl=context())
    address = f"{HERE}:{stopping.sockets[0].getsockname()[1]}"
    try:
        server = replace(member("b"), address=address, etcd_addr=f"{HERE}:4649")
        found = await own.problem_with(server)
        assert found.startswith("server b.global: it ended the connection before it answered: it may be stopping")
        assert await own.mismatches({address: "b.global"}) == ()
    finally:
        stopping.close()
        await stopping.wait_closed()


async def test_servers_without_a_common_version_of_tls_do_not_blame_certificates(tmp_path: Path) -> None:
    signer = authority()
    own, other = settings(tmp_path / "a", signer), replace(settings(tmp_path / "b", signer), min_version="tls13")
    async with listening(other) as server:
        found = await probe(own, ssl.TLSVersion.TLSv1_2).problem_with(server)
        assert found.startswith("server b.global: no connection by TLS: no version of TLS is common to both")
        assert await probe(own, ssl.TLSVersion.TLSv1_2).mismatches({server.address: server.name}) == ()


async def test_plain_text_counts_as_a_problem_in_upgrade_mode_too(tmp_path: Path) -> None:
    own = replace(settings(tmp_path / "a", authority()), upgrade=True)
    found = await problem(own, TlsSettings())
    assert found.startswith("server b.global: no connection by TLS") or "ended the connection" in found


async def test_only_certificates_count_at_an_address_without_a_known_server(tmp_path: Path) -> None:
    own = probe(settings(tmp_path / "a", authority()))
    async with listening(settings(tmp_path / "b", authority())) as other, listening(TlsSettings()) as plain:
        (found,) = await own.mismatches({plain.address: "c.global", other.address: "", f"{HERE}:1": ""})
        assert found.startswith(f"the certificate of the server at {other.address} is not signed by an authority")
        (found,) = await own.mismatches({other.address: other.name})
        assert found.startswith(NO_AUTHORITY)


async def test_an_unknown_address_may_be_one_of_a_server_of_another_region(tmp_path: Path) -> None:
    """Such an address is in `retry_join` or was remembered: a certificate of another region is right there."""
    signer = authority()
    own = probe(settings(tmp_path / "a", signer))
    async with listening(settings(tmp_path / "b", signer, region="eu"), region="eu") as other:
        assert await own.mismatches({other.address: ""}) == ()
        (found,) = await own.mismatches({other.address: "c.global"})
        assert found.startswith("the certificate of server c.global does not name server.global.nomad")


SHOWN = {
    "subject": ((("commonName", "10.0.0.1"),), (("commonName", "srv1"),)),
    "subjectAltName": (
        ("DNS", "Srv2.example"),
        ("DNS", "10.0.0.3"),
        ("IP Address", "10.0.0.2"),
        ("IP Address", "FD00:0:0:0:0:0:0:1"),
    ),
}


@pytest.mark.parametrize("host", ["10.0.0.2", "fd00::1", "FD00::0:1", "srv2.example", "SRV2.example"])
def test_a_name_or_address_is_named_in_any_spelling(host: str) -> None:
    assert names_host(SHOWN, host)


@pytest.mark.parametrize("host", ["10.0.0.1", "10.0.0.3", "fd00::2", "srv1", "example", ""])
def test_a_common_name_and_an_address_in_a_name_do_not_count(host: str) -> None:
    """etcd does not accept them either."""
    assert not names_host(SHOWN, host)
    assert not names_host({}, host)
