"""The client: messages as the compiler makes them, errors of the closed set, other endpoints, TLS."""

from __future__ import annotations

import contextlib
import socket
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator
from importlib import resources
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pb2
from yurt.rpc.certificates import Wish, make_authority, make_certificate
from yurt.runtime.env import RealEnv
from yurt.runtime.proto_text import read_proto
from yurt.sdk.errors import Conflict, Invalid, NotFound, Unavailable
from yurt.storage.etcd.client import Compacted, EtcdClient, NoSpace
from yurt.storage.etcd.membership import move_leader, remove_member
from yurt.storage.etcd.messages import FILE, message
from yurt.storage.etcd.settings import EtcdSecurity
from yurt.testing.agent import wait_for
from yurt.testing.services.etcd import LocalEtcd, local_etcd, missing
from yurt.testing.unique_ports import free_ports

pytestmark = [
    pytest.mark.skipif(bool(missing()), reason=missing() or "there is etcd"),
    pytest.mark.keeps_processes,
]
DEAD = "http://127.0.0.1:9"


class Refusing:
    """A channel whose calls fail with a code, which depends on etcd's version."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self.error = grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), details=details)

    def unary_unary(self, path: str, **given: object) -> Refusing:
        return self

    async def __call__(self, request: object, *, timeout: float) -> None:
        raise self.error

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("code", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION])
async def test_a_learner_is_asked_again_whatever_the_code_of_its_refusal(code: grpc.StatusCode) -> None:
    refusing = Refusing(code, "etcdserver: rpc not supported for learner")
    client = EtcdClient((DEAD,), connect=lambda _: refusing)
    with pytest.raises(Unavailable, match="not supported for learner"):
        await client.range(b"key")


@pytest.fixture(scope="module")
def etcd() -> Iterator[LocalEtcd]:
    with local_etcd(3) as cluster:
        yield cluster


@pytest.fixture
async def client(etcd: LocalEtcd) -> AsyncIterator[EtcdClient]:
    made = EtcdClient(etcd.endpoints)
    yield made
    await made.close()


def test_our_reader_makes_of_the_file_what_the_compiler_makes(tmp_path: Path) -> None:
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    folder = resources.files("yurt.storage.etcd")
    out = tmp_path / "set"
    assert protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={out}", FILE]) == 0
    compiled = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
    assert read_proto(FILE, (folder / FILE).read_text(), {}) == compiled


def test_a_comparison_byte_by_byte() -> None:
    compare = message("Compare", key=b"k", target=2, mod_revision=5)
    assert compare.SerializeToString() == b"\x10\x02\x1a\x01k\x30\x05"


@pytest.mark.parametrize(
    ("endpoints", "security", "told"),
    [
        ((), None, "etcd has no endpoints"),
        (("127.0.0.1:2379",), None, '"127.0.0.1:2379" is not an endpoint of etcd; write http://host:2379'),
        (("ftp://a:1",), None, "is not an endpoint"),
        (("http://",), None, "is not an endpoint"),
        (("http://a:1",), EtcdSecurity(ca_file="ca.pem"), "not encrypted; write https://a:1"),
    ],
)
def test_endpoints_that_cannot_be_used(endpoints: tuple[str, ...], security: EtcdSecurity | None, told: str) -> None:
    with pytest.raises(Invalid, match=told):
        EtcdClient(endpoints, security=security)


async def test_certificate_files_that_are_not_there_are_told(tmp_path: Path) -> None:
    client = EtcdClient(("https://127.0.0.1:9",), security=EtcdSecurity(ca_file=str(tmp_path / "ca.pem")))
    with pytest.raises(Invalid, match=r"certificates can not be read.*ca\.pem"):
        await client.range(b"a")


async def test_errors_are_of_the_closed_set(client: EtcdClient) -> None:
    revision = (await client.put(b"a", b"1")).header.revision
    await client.compact(revision)
    with pytest.raises(Compacted):
        await client.compact(revision)
    with pytest.raises(NotFound, match="member not found"):
        await remove_member(client, 99)
    with pytest.raises(Invalid, match="request is too large"):
        await client.put(b"a", b"x" * 1_600_000)
    with pytest.raises((Conflict, Unavailable)):
        await move_leader(client, 99)


async def test_reads_go_to_an_endpoint_that_answers(etcd: LocalEtcd) -> None:
    client = EtcdClient((DEAD, *etcd.endpoints))
    await client.range(b"a")
    await client.put(b"b", b"1")
    with etcd.members[0].frozen():
        assert (await client.range(b"b", timeout_s=8)).kvs[0].value == b"1"
    await client.close()


async def test_a_change_is_asked_once_and_the_next_one_elsewhere(etcd: LocalEtcd) -> None:
    client = EtcdClient((DEAD, *etcd.endpoints))
    with pytest.raises(Unavailable):
        await client.put(b"c", b"1")
    await client.put(b"c", b"2")
    assert (await client.range(b"c")).kvs[0].version == 1
    await client.close()


async def test_a_watch_ends_with_its_member_and_stands_again_elsewhere(etcd: LocalEtcd) -> None:
    client = EtcdClient(etcd.endpoints)
    start = (await client.put(b"w", b"0")).header.revision
    watch = client.watch(b"w", b"x", start_revision=start)
    assert not (await anext(watch)).events
    assert [event.kv.value for event in (await anext(watch)).events] == [b"0"]
    etcd.members[0].kill()
    try:
        with pytest.raises(Unavailable):
            await anext(watch)
        while True:
            with contextlib.suppress(Unavailable):
                await client.put(b"w", b"1")
                break
        values = []
        async for response in client.watch(b"w", b"x", start_revision=start):
            values += [event.kv.value for event in response.events]
            if b"1" in values:
                break
        assert values[0] == b"0"
    finally:
        etcd.members[0].start()
        etcd.wait_ready()
        await client.close()


async def test_a_watch_that_ends_late_leaves_the_endpoint_that_it_had(etcd: LocalEtcd) -> None:
    client = EtcdClient(etcd.endpoints[:2])
    start = (await client.put(b"l", b"0")).header.revision
    watch = client.watch(b"l", b"m", start_revision=start)
    await anext(watch)
    etcd.members[0].kill()
    try:
        with pytest.raises(Unavailable):
            await client.put(b"l", b"1")
        with pytest.raises(Unavailable, match=etcd.endpoints[0]):
            async for _ in watch:
                pass
        await client.status()
    finally:
        etcd.members[0].start()
        etcd.wait_ready()
        await client.close()


class Pairs:
    """Certificates in files."""

    def __init__(self, folder: Path) -> None:
        now = RealEnv().now()
        authority = make_authority(Wish(common_name="authority", days=1), now)
        wish = Wish(common_name="etcd", days=1, names=("localhost",), addresses=("127.0.0.1",), is_server=True)
        pair = make_certificate(wish, authority, now)
        self.ca, self.cert, self.key = (str(folder / name) for name in ("ca.pem", "cert.pem", "key.pem"))
        for path, data in ((self.ca, authority.certificate), (self.cert, pair.certificate), (self.key, pair.key)):
            Path(path).write_bytes(data)


@pytest.fixture(scope="module")
def encrypted() -> Iterator[tuple[str, Pairs]]:
    """An etcd that stands by itself and asks its clients for certificates; where it is, and certificates for it."""
    with tempfile.TemporaryDirectory(prefix="etcd-", ignore_cleanup_errors=True) as name:
        pairs = Pairs(Path(name))
        client_port, peer_port = free_ports(2)
        url, peer = f"https://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
        options = {
            "data-dir": f"{name}/data", "listen-client-urls": url, "advertise-client-urls": url, "name": "one",
            "listen-peer-urls": peer, "initial-advertise-peer-urls": peer, "initial-cluster": f"one={peer}",
            "client-cert-auth": "true", "trusted-ca-file": pairs.ca, "cert-file": pairs.cert, "key-file": pairs.key,
        }  # fmt: skip
        process = subprocess.Popen(
            ["etcd", *(f"--{option}={value}" for option, value in options.items())],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_for("etcd", lambda: shakes_hands(client_port, pairs))
            yield url, pairs
        finally:
            process.kill()
            process.wait(timeout=10)


def shakes_hands(port: int, pairs: Pairs) -> bool:
    """Whether somebody not only listens, but answers: etcd listens long before."""
    context = ssl.create_default_context(cafile=pairs.ca)
    context.load_cert_chain(pairs.cert, pairs.key)
    with (
        contextlib.suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=5) as raw,
        context.wrap_socket(raw, server_hostname="localhost"),
    ):
        return True
    return False


async def test_certificates_are_shown_to_an_etcd_that_asks_for_them(encrypted: tuple[str, Pairs]) -> None:
    url, pairs = encrypted
    client = EtcdClient((url,), security=EtcdSecurity(ca_file=pairs.ca, cert_file=pairs.cert, key_file=pairs.key))
    await client.put(b"a", b"1")
    assert (await client.range(b"a")).kvs[0].value == b"1"
    await client.close()


async def test_without_certificates_it_does_not_answer(encrypted: tuple[str, Pairs]) -> None:
    url, pairs = encrypted
    for security in (None, EtcdSecurity(ca_file=pairs.ca)):
        client = EtcdClient((url,), security=security)
        with pytest.raises(Unavailable):
            await client.range(b"a", timeout_s=2)
        await client.close()


async def test_an_exhausted_quota_is_an_error_of_its_own() -> None:
    with local_etcd(quota_bytes=64 * 1024) as small:
        client = EtcdClient(small.endpoints)
        with pytest.raises(NoSpace, match="no space left by its quota"):
            for _ in range(200):
                await client.put(b"a", b"x" * 10_000)
        await client.close()
