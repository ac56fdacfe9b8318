"""What both gRPC adapters share: the one stream of the service, and how a dead connection is noticed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from yurt.rpc.frames import MESSAGE_BYTES_MAX, PROTOCOL, Hello, Welcome
from yurt.sdk.errors import Invalid, Unavailable

SERVICE = "yurt.v1.Agent"
METHOD = "Connect"
GREETING_LIMIT_S = 10.0
"""How long an end waits for the first message of the other one."""
KEEPALIVE_MS = 10_000
"""Silence after which an end asks whether the other one is there; the answer must come within half of it."""

Options = Sequence[tuple[str, int | str]]
OPTIONS: Options = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_MS // 2),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.so_reuseport", 0),
)

_encode = msgspec.msgpack.Encoder().encode
_hello = msgspec.msgpack.Decoder(Hello)
_welcome = msgspec.msgpack.Decoder(Welcome)


def encode_greeting(greeting: Hello | Welcome) -> bytes:
    """The first message of an end."""
    return _encode(greeting)


def decode_hello(message: bytes) -> Hello:
    """What the end that dialled says of itself; raises Invalid when it speaks another protocol."""
    try:
        hello = _hello.decode(message)
    except msgspec.DecodeError:
        raise Invalid("the connection does not begin as one of an agent does") from None
    if hello.protocol != PROTOCOL:
        raise Invalid(f"the agent {hello.name} {hello.version} speaks protocol {hello.protocol}, this one {PROTOCOL}")
    return hello


def decode_welcome(message: bytes) -> Welcome:
    """What the end that was dialled answers; raises Unavailable for what is no answer."""
    try:
        return _welcome.decode(message)
    except msgspec.DecodeError:
        raise Unavailable("what answers there is no agent") from None
