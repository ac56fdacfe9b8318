"""Targets for what comes to the ports: HTTP bodies, query strings, filters, hosts and origins, greetings and frames."""

from __future__ import annotations

import contextlib
import json
import struct
from collections.abc import Callable, Iterable
from urllib.parse import parse_qsl

import msgspec
from yurt.api.decode import decode_job, decode_json
from yurt.filters import compile_filter
from yurt.http.edge.hosts import HostPolicy, is_own_host, is_own_origin, place_of
from yurt.http.query import read_options
from yurt.rpc import frames
from yurt.rpc.frames import Answer, Ask, Cancel, End, Failure, Grant, Hello, Item
from yurt.rpc.greeting import decode_hello, encode_greeting
from yurt.rpc.wire import SocketWire
from yurt.runtime.peer_lines import one_line
from yurt.sdk.errors import Invalid, YurtError

ROW = {
    "ID": "web", "Priority": 50, "Meta": {"owner": "me", "a.b": "c"}, "Tags": ["x", "y"], "Stop": False, "Empty": None,
    "TaskGroups": [{"Name": "g", "Count": 3}],
}  # fmt: skip
POLICY = HostPolicy(names=("server1",), allowed=("nomad.example.com:8443", "*.internal"), readers="*")
JOB = {
    "ID": "web", "Name": "web", "Type": "service", "Datacenters": ["*"], "Meta": {"a": "b"},
    "Periodic": {"Spec": "* * * * *", "Enabled": True}, "Update": {"MaxParallel": 1, "MinHealthyTime": 10_000_000_000},
    "Constraints": [{"LTarget": "${attr.kernel.name}", "RTarget": "linux", "Operand": "="}],
    "TaskGroups": [{
        "Name": "g", "Count": 2, "Networks": [{"Mode": "host", "DynamicPorts": [{"Label": "http"}]}],
        "Tasks": [{
            "Name": "t", "Driver": "raw_exec", "Config": {"command": "a", "args": ["b"]}, "Env": {"A": "b"},
            "Resources": {"CPU": 100, "MemoryMB": 64},
            "Templates": [{"EmbeddedTmpl": "{{ env \"A\" }}", "DestPath": "a"}],
        }],
    }],
}  # fmt: skip


def body(data: bytes) -> None:
    """Decode a JSON body, and its job into a struct."""
    try:
        found = decode_json(data)
    except YurtError:
        return
    if isinstance(found, dict):
        with contextlib.suppress(YurtError):
            decode_job(found.get("Job", found))


def query(data: bytes) -> None:
    """The options of a read."""
    given = dict(parse_qsl(data.decode("utf-8", "surrogateescape"), keep_blank_values=True))
    with contextlib.suppress(YurtError):
        options = read_options(given)
        assert 0 <= options.index < 1 << 64 and 0 <= options.wait_s <= 600


def filters(data: bytes) -> None:
    """A filter, and a row that it looks at."""
    with contextlib.suppress(Invalid):
        compile_filter(data.decode("utf-8", "replace"))(ROW)


def hosts(data: bytes) -> None:
    """`Host` and `Origin`: whatever they are, nobody else's name is taken for ours."""
    text = data.decode("utf-8", "surrogateescape")
    host, _, origin = text.partition("\n")
    assert one_line(text).isprintable()
    if is_own_host(host, POLICY) and host:
        place = place_of(host)
        assert place is not None and "evil" not in place.host.removesuffix(".internal").removesuffix(".localhost")[-4:]
    if is_own_origin(origin, POLICY, ("server1:4646",), is_tls=False):
        assert origin.strip().lower().partition("://")[0] in ("http", "https")


def greeting(data: bytes) -> None:
    """The first message of a connection."""
    with contextlib.suppress(Invalid):
        found = decode_hello(data)
        assert f"{found.name}{found.region}{found.version}".isprintable()


def messages(data: bytes) -> None:
    """A stream of bytes cut into messages, and messages into frames."""
    reader = _Reads()
    wire = SocketWire()
    wire.attach(reader)
    middle = len(data) // 2
    wire.data_received(data[:middle])
    wire.data_received(data[middle:])
    assert sum(map(len, reader.taken)) <= len(data)
    for message in (*reader.taken, data):
        try:
            found = frames.decode(message)
        except frames.UNREADABLE:
            continue
        assert frames.decode(frames.encode(found)) == found


class _Reads:
    """Keeps what a wire gives."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def take(self, message: bytes) -> None:
        self.taken.append(message)

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def lose(self) -> None: ...


def _messages() -> Iterable[bytes]:
    all_kinds: list[frames.AnyFrame] = [
        Ask(1, "server.heartbeat", b"\x80"), Answer(2, b"\xc0"), Failure(3, "Invalid", "é"), Item(4, b"x"), End(5),
        Cancel(6), Grant(7, 16),
    ]  # fmt: skip
    for given in (all_kinds, [], all_kinds[:1]):
        data = frames.encode(given)
        yield struct.pack(">I", len(data)) + data + struct.pack(">I", 0)
        yield data


TARGETS: dict[str, Callable[[bytes], None]] = {
    "body": body, "query": query, "filter": filters, "hosts": hosts, "greeting": greeting, "messages": messages,
}  # fmt: skip
SEEDS: dict[str, Iterable[bytes]] = {
    "body": (json.dumps({"Job": JOB}).encode(), json.dumps(JOB).encode(), b'{"Jobs":[{"ID":"a"}]}', b"[1,2.5e3,null]"),
    "query": (
        b"index=5&wait=10s&prefix=a%20b&filter=ID%20%3D%3D%20%22a%22&per_page=3&next_token=x&reverse=true",
        b"stale&namespace=*&region=global&pretty=0&wait=1h2m3.5ms&index=18446744073709551615", b"wait=-1&index=%F0%9F",
    ),
    "filter": (
        b'ID == "web" and (Priority != 50 or not Stop == true)', b"Meta.owner is empty or `x` in Tags",
        b'Meta["a.b"] contains "c" and ID matches "^w(e|b)*$"', b'"x" not in Tags and TaskGroups is not empty',
        b"any Tags as t { t == x } or all Meta as k, v { v matches `a` }",
    ),
    "hosts": (
        b"localhost:4646\nhttp://localhost:4646", b"[::1]:4646\nnull", b"nomad.example.com\nhttps://nomad.example.com:8443",
        b"a.internal\nhttps://evil.example", b"server1\nchrome-extension://abc",
    ),
    "greeting": (
        encode_greeting(Hello(name="a", region="global", node_id="n", secret_id="s", version="1")), b"\x80",
        msgspec.msgpack.encode({"protocol": 1, "name": "x" * 600}), encode_greeting(Hello(name="b\n")),
    ),
    "messages": tuple(_messages()),
}  # fmt: skip
