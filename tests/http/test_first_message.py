"""Of an unknown caller nothing is kept but its first message; the rest waits, or is dropped."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from yurt.api.websocket import BINARY, CLOSE, PING, TEXT, BrokenFrame, Message, encode
from yurt.http.edge.first_message import FIRST_BYTES_MAX, FirstMessageGate

MASK = b"abcd"


class Connection:
    """The transport and the parser of a connection."""

    _reading_paused = False

    def __init__(self) -> None:
        self.transport: Any = self
        self.is_reading = True
        self.parsed = b""
        self.is_ended = False

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def is_closing(self) -> bool:
        return self.is_ended

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.parsed += data
        return False, b""

    def feed_eof(self) -> None:
        self.is_ended = True


class Scene:
    """A gate before a connection."""

    def __init__(self) -> None:
        self.connection = Connection()
        self.gate = FirstMessageGate(self.connection)
        self.gate.attach(self.connection)

    def feed(self, *frames: bytes, size: int = 1 << 20) -> None:
        data = b"".join(frames)
        for start in range(0, len(data), size):
            assert self.gate.feed_data(data[start : start + size]) == (False, b"")

    @property
    def first(self) -> Any:
        return self.gate.first.result() if self.gate.first.done() else None


@pytest.fixture
async def scene() -> Scene:
    return Scene()


def frame(kind: int, data: bytes) -> bytes:
    return encode(kind, data, mask=MASK)


FIRST = frame(TEXT, b"{}")
INPUT = frame(BINARY, b"x" * 100_000)


@pytest.mark.parametrize("size", [1, 3, 1 << 20])
async def test_the_first_message_stops_reading_until_its_sender_is_admitted(scene: Scene, size: int) -> None:
    scene.feed(frame(PING, b"?"), FIRST, size=size)
    assert scene.first == Message(TEXT, b"{}")
    assert not scene.connection.is_reading
    scene.feed(INPUT)  # it was in the same read
    assert scene.connection.parsed == b""
    scene.gate.admit()
    assert (scene.connection.parsed, scene.connection.is_reading) == (INPUT, True)
    scene.feed(INPUT)
    assert scene.connection.parsed == INPUT + INPUT


@pytest.mark.parametrize(
    "data",
    [
        frame(TEXT, b"x" * (FIRST_BYTES_MAX + 1))[:14],
        (b"\x01" + frame(TEXT, b"x" * 5000)[1:]) + (b"\x00" + frame(TEXT, b"x" * 5000)[1:]),
        b"\x81\x02{}",
        b"\xf1\x82....",
    ],
)
async def test_too_much_or_no_frame_stops_reading(scene: Scene, data: bytes) -> None:
    scene.feed(data)
    assert isinstance(scene.first, BrokenFrame)
    assert not scene.connection.is_reading


async def test_of_a_refused_caller_only_the_close_frame_is_passed_on(scene: Scene) -> None:
    scene.feed(FIRST, frame(TEXT, b"rm"))
    scene.gate.refuse()
    scene.feed(frame(TEXT, b"-rf"))
    assert (scene.connection.parsed, scene.connection.is_reading) == (b"", True)
    scene.feed(frame(CLOSE, b"\x03\xe8"))
    assert scene.connection.parsed == encode(CLOSE, b"\x03\xe8", mask=bytes(4))


async def test_of_a_refused_caller_large_messages_are_dropped(scene: Scene) -> None:
    scene.feed(FIRST)
    scene.gate.refuse()
    for _ in range(20):
        scene.feed(INPUT)
    assert scene.connection.parsed == b""
    assert len(scene.gate._frames.take_rest()) + len(scene.gate._held) <= FIRST_BYTES_MAX


async def test_a_caller_that_leaves_has_closed(scene: Scene) -> None:
    scene.gate.feed_eof()
    assert (scene.first, scene.connection.is_ended) == (Message(CLOSE, b""), True)
    await asyncio.sleep(0)
