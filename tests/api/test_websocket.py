"""Websocket frames without a socket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yurt.api.websocket import (
    BINARY,
    CLOSE,
    PING,
    TEXT,
    BrokenFrame,
    Message,
    WebSocketFrames,
    accept_of,
    encode,
    masked,
)

MASK = b"\x01\x02\x03\x04"
RFC_ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def as_server(kind: int, data: bytes, *, is_last: bool = True) -> bytes:
    """A frame as a server sends it: not masked."""
    size = len(data)
    first = bytes([(0x80 if is_last else 0) | kind])
    if size < 126:
        return first + bytes([size]) + data
    if size < 1 << 16:
        return first + b"\x7e" + size.to_bytes(2, "big") + data
    return first + b"\x7f" + size.to_bytes(8, "big") + data


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_a_mask_taken_twice_changes_nothing(data: bytes, mask: bytes) -> None:
    assert masked(masked(data, mask), mask) == data


@given(
    st.lists(st.tuples(st.sampled_from([TEXT, BINARY, PING, CLOSE]), st.binary(max_size=70_000)), max_size=4), st.data()
)
def test_messages_come_out_however_the_bytes_are_cut(messages: list[tuple[int, bytes]], data: st.DataObject) -> None:
    whole = b"".join(as_server(kind, body) for kind, body in messages)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    frames, found = WebSocketFrames(), []
    for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        found += frames.feed(whole[start:end])
    assert found == [Message(kind, body) for kind, body in messages]


def test_a_message_may_come_in_parts_with_a_ping_between() -> None:
    parts = as_server(TEXT, b"one ", is_last=False) + as_server(PING, b"?") + as_server(0, b"two")
    assert WebSocketFrames().feed(parts) == [Message(PING, b"?"), Message(TEXT, b"one two")]


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_a_client_masks_frames_of_every_size(size: int) -> None:
    frame = encode(TEXT, b"x" * size, mask=MASK)
    assert frame[1] & 0x80
    assert masked(frame[len(frame) - size :], MASK) == b"x" * size


@pytest.mark.parametrize("data", [encode(TEXT, b"masked", mask=MASK), b"\xf1\x01x", b"\x81\x7f" + b"\xff" * 8])
def test_what_no_server_may_send_is_refused(data: bytes) -> None:
    with pytest.raises(BrokenFrame):
        WebSocketFrames().feed(data)


def test_the_accept_of_the_rfc() -> None:
    assert accept_of("dGhlIHNhbXBsZSBub25jZQ==") == RFC_ACCEPT
