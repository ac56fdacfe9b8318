"""Parses the stream of a container's output. Pure.

Without a terminal, stdout and stderr share one stream of frames: stream number (1 byte), 3 zero bytes, length (4,
big endian), data. With a terminal the data come bare. When timestamps were asked for, every logged message starts
with one, in nanoseconds, and a space: a frame holds one message, and of bare data each line is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from yurt.sdk.containers.common import parse_stamp

HEADER = Struct(">BxxxL")
HEADER_BYTES = HEADER.size
FRAME_BYTES_MAX = 16 * 1024 * 1024
LINE_BYTES_MAX = 1024 * 1024
PART_BYTES = 16 * 1024
STREAMS = {0: "stdout", 1: "stdout", 2: "stderr"}
STAMP_BYTES_MAX = 40


class Piece(NamedTuple):
    """A piece of output: its stream, the engine's time stamp (empty when unknown) and the data."""

    stream: str
    stamp: bytes
    data: bytes

    @property
    def at(self) -> int:
        """The time stamp in nanoseconds since 1970; parsed on demand, since this is the most expensive step."""
        return parse_stamp(self.stamp)


class StreamFrames:
    """Cuts a stream into pieces as its bytes arrive."""

    def __init__(self, *, is_terminal: bool, has_stamps: bool) -> None:
        self.is_terminal = is_terminal
        self.has_stamps = has_stamps
        self.rest = b""

    def feed(self, data: bytes) -> list[Piece]:
        """The pieces completed by these bytes."""
        self.rest += data
        return list(self._lines() if self.is_terminal else self._frames())

    def end(self) -> list[Piece]:
        """The rest at the end of a terminal's stream; an incomplete frame is dropped and read again later."""
        left, self.rest = self.rest, b""
        return [self._piece("stdout", left)] if left and self.is_terminal else []

    def _frames(self) -> Iterator[Piece]:
        """Complete frames; this loop runs once for each line that a task writes."""
        # Local names instead of attributes, and one slice of the rest at the end instead of one for each frame: a loop
        # that copies the rest each time takes quadratic time for a large read.
        rest, at, length, has_stamps = self.rest, 0, len(self.rest), self.has_stamps
        unpack, find = HEADER.unpack_from, rest.find
        while length - at >= HEADER_BYTES:
            number, size = unpack(rest, at)
            if size > FRAME_BYTES_MAX or number not in STREAMS:
                raise ValueError("the engine's output stream is damaged")
            start = at + HEADER_BYTES
            end = start + size
            if end > length:
                break
            space = find(b" ", start, start + STAMP_BYTES_MAX) if has_stamps else -1
            if space < 0:
                yield Piece(STREAMS[number], b"", rest[start:end])
            else:
                yield Piece(STREAMS[number], rest[start:space], rest[space + 1 : end])
            at = end
        self.rest = rest[at:]

    def _lines(self) -> Iterator[Piece]:
        if not self.has_stamps:
            data, self.rest = self.rest, b""
            yield Piece("stdout", b"", data)
            return
        *lines, self.rest = self.rest.split(b"\n")
        for line in lines:
            yield from (self._piece("stdout", part) for part in parts_of(line + b"\n"))
        if len(self.rest) > LINE_BYTES_MAX:
            data, self.rest = self.rest, b""
            yield self._piece("stdout", data)

    def _piece(self, stream: str, data: bytes) -> Piece:
        if not self.has_stamps:
            return Piece(stream, b"", data)
        space = data.find(b" ", 0, STAMP_BYTES_MAX)
        is_stamped = space > 0 and parse_stamp(data[:space]) > 0
        return Piece(stream, data[:space], data[space + 1 :]) if is_stamped else Piece(stream, b"", data)


def parts_of(line: bytes) -> Iterator[bytes]:
    """A line of terminal output, stored by the engine in parts of 16 KiB that each begin with a time stamp."""
    while True:
        start = line.find(b" ", 0, STAMP_BYTES_MAX) + 1
        end = start + PART_BYTES
        space = line.find(b" ", end, end + STAMP_BYTES_MAX)
        if not start or space < 0 or not parse_stamp(line[end:space]):
            yield line
            return
        yield line[:end]
        line = line[end:]


def since(at: int) -> str:
    """A time in the format of the engine's `since` parameter: seconds and nanoseconds."""
    return f"{at // 1_000_000_000}.{at % 1_000_000_000:09d}"
