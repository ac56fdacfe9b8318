"""Mutual TLS between a host and a plugin: a certificate for each run, and a relay that speaks TLS for gRPC.

Go's side makes certificates on the curve P-521, which the TLS library of Python's gRPC refuses. Python's own library
accepts them, so TLS ends in a relay: gRPC uses a plain socket in a private folder, and the relay speaks TLS to the
other side.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import os
import ssl

from yurt.sdk.value import NANOSECONDS, UnixNano, Value

HOST_NAME = "localhost"
VALID_DAYS = 365 * 30
CHUNK_BYTES = 64 * 1024
CONNECT_LIMIT_S = 5.0


class KeyPair(Value, rename=None):
    """A private key and its self-signed certificate, both as PEM."""

    key: str
    certificate: str


def make_key_pair(now: UnixNano) -> KeyPair:
    """A new P-256 key and a self-signed certificate for "localhost" that both sides accept as authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST_NAME)])
    begin = datetime.datetime.fromtimestamp(now / NANOSECONDS, datetime.UTC) - datetime.timedelta(seconds=30)
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST_NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(usage, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return KeyPair(key=private.decode(), certificate=certificate.public_bytes(pem).decode())


def pem_of(der: bytes) -> str:
    """A certificate from a handshake line as PEM."""
    return ssl.DER_cert_to_PEM_cert(der)


def der_of(pem: str) -> bytes:
    """A certificate as it stands in a handshake line."""
    return ssl.PEM_cert_to_DER_cert(pem)


def tls_context(pair: KeyPair, *, peer_certificate: str, is_server: bool) -> ssl.SSLContext:
    """TLS 1.2 or newer with this key, where the peer must have exactly that certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.load_verify_locations(cadata=peer_certificate)
    context.set_alpn_protocols(["h2"])
    memory = os.memfd_create("plugin-key")
    try:
        os.write(memory, (pair.key + pair.certificate).encode())
        context.load_cert_chain(f"/proc/self/fd/{memory}")
    finally:
        os.close(memory)
    return context


class Relay:
    """Relays connections from a Unix socket to another address; one of the two sides speaks TLS."""

    def __init__(
        self,
        path: str,
        *,
        network: str,
        address: str,
        accept: ssl.SSLContext | None = None,
        connect: ssl.SSLContext | None = None,
    ) -> None:
        self.path = path
        self._network = network
        self._address = address
        self._accept = accept
        self._connect = connect
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._serve, self.path, ssl=self._accept)

    async def close(self) -> None:
        """Stop listening; connections end by themselves when one of their ends does."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until either side ends it."""
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                there = await self._dial()
        except (OSError, TimeoutError):
            writer.close()
            return
        await join((reader, writer), there)

    async def _dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        name = HOST_NAME if self._connect else None
        if self._network == "unix":
            return await asyncio.open_unix_connection(self._address, ssl=self._connect, server_hostname=name)
        host, _, port = self._address.rpartition(":")
        return await asyncio.open_connection(host, int(port), ssl=self._connect, server_hostname=name)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def join(here: Streams, there: Streams) -> None:
    """Copy both ways until one side ends, then end both."""
    try:
        async with asyncio.TaskGroup() as group:
            ways = [group.create_task(copy(here[0], there[1])), group.create_task(copy(there[0], here[1]))]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
    finally:
        for _, writer in (here, there):
            writer.close()


async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one way until the reader ends."""
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
