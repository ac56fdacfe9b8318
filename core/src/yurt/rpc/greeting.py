"""The first message of each end of a connection: its identity, or why it refuses the other one."""

from __future__ import annotations

import msgspec

from yurt.rpc.frames import PROTOCOL, UNREADABLE, Hello, Welcome
from yurt.sdk.errors import Invalid, Unavailable

WORD_MAX = 512
"""The longest word that an agent may use about itself; such words appear in logs."""
_encode = msgspec.msgpack.Encoder().encode
_hello = msgspec.msgpack.Decoder(Hello)
_welcome = msgspec.msgpack.Decoder(Welcome)


def encode_greeting(greeting: Hello | Welcome) -> bytes:
    """The first message of an end."""
    return _encode(greeting)


def decode_hello(message: bytes) -> Hello:
    """The greeting of the dialling end; raises Invalid for another protocol."""
    try:
        hello = _hello.decode(message)
    except UNREADABLE:
        raise Invalid("the connection does not begin as one of an agent does") from None
    words = (hello.version, hello.role, hello.region, hello.name, hello.node_id)
    if not all(word.isprintable() and len(word) <= WORD_MAX for word in words):
        raise Invalid(f"an agent's name, region, role, version and node id are printable and at most {WORD_MAX} long")
    if hello.protocol != PROTOCOL:
        raise Invalid(f"the agent {hello.name} {hello.version} speaks protocol {hello.protocol}, this one {PROTOCOL}")
    return hello


def decode_welcome(message: bytes) -> Welcome:
    """The answer of the dialled end; raises Unavailable for a malformed one."""
    try:
        return _welcome.decode(message)
    except UNREADABLE:
        raise Unavailable("the server at that address is not an agent") from None
