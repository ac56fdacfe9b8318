"""Encodes the values of calls in MessagePack, within the size limits of a message."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

from yurt.rpc.frames import GATHER_BYTES, MESSAGE_BYTES_MAX, UNREADABLE
from yurt.sdk.errors import Invalid

_encoder = msgspec.msgpack.Encoder()


def encoded(value: Any) -> bytes:
    """Raises Invalid for a value that does not fit into a message."""
    data = _encoder.encode(value)
    if len(data) > MESSAGE_BYTES_MAX - GATHER_BYTES:
        raise Invalid(f"{len(data)} bytes are more than another agent takes at once, which is {MESSAGE_BYTES_MAX}")
    return data


@cache
def _decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(kind)


def decoded(data: bytes, kind: Any) -> Any:
    """Raises Invalid for malformed data."""
    try:
        return _decoder(kind).decode(data)
    except UNREADABLE as error:
        raise Invalid(f"the other agent speaks of something else here: {error}") from None
