"""Frames of files and logs: a sequence of JSON objects, each with base64 data and its position in the file.

A reader has a position: the file, and the offset in it of the first byte that has not been shown. A task's log goes
on in the next of its files, and the oldest of them is removed in time; so its API counts from the beginning of the
oldest file that there is, and a place becomes an offset only with a listing of the files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from yurt.cli.api.lookup import api_path
from yurt.cli.errors import ApiError, BrokenOff
from yurt.cli.json_object import Json
from yurt.sdk.errors import Reason

if TYPE_CHECKING:
    from yurt.cli.api.client import ApiClient, Query


LINES_MAX = 1_000_000
LINE_BYTES_GUESS = 120
LOG_FOLDER = "alloc/logs"
MAY_PASS = frozenset({Reason.NO_PATH_TO_NODE, Reason.UNKNOWN_ALLOCATION, Reason.UNKNOWN_NODE})
"""Refusals of a server or a node that has just started, which may be temporary."""


ENDED = "Ended"
"""The key of the last frame of a followed stream whose agent stops (`yurt.http.edge.followed`)."""


class FilePosition(NamedTuple):
    """A position to resume from: a file and the offset in it, bytes."""

    file: str
    offset: int


START = FilePosition("", 0)
"""The beginning, in whichever file that is."""


class Gap(Exception):
    """A frame begins beyond the position: data between them is missing."""


class FrameSource(Protocol):
    """A file or log that is read in frames."""

    path: str
    """The route that streams it."""

    def query(self, api: ApiClient, place: FilePosition) -> Query:
        """The query that resumes at a position."""
        ...

    def before_end(self, api: ApiClient, count: int) -> FilePosition:
        """The position `count` bytes before the present end, or the beginning of a shorter file."""
        ...

    def shown(self, api: ApiClient, place: FilePosition, frame: Json) -> int:
        """The number of bytes of the frame that precede the position; raises Gap when the frame begins beyond it."""
        ...

    def has_more(self, api: ApiClient, place: FilePosition) -> bool:
        """Whether data exists beyond the position although the response ended without any."""
        ...

    def is_removed(self, api: ApiClient, place: FilePosition) -> bool:
        """Whether the file of the position has been removed."""
        ...


def _begin(frame: Json) -> int:
    """Where the data of a frame begins in its file: the frame gives its end, as Nomad's do."""
    return max((frame.get("Offset") or 0) - len(data_of(frame)), 0)


class FileSource:
    """One file of an allocation."""

    def __init__(self, alloc_id: str, path: str) -> None:
        self.path = api_path("client", "fs", "stream", alloc_id)
        self._stat = api_path("client", "fs", "stat", alloc_id)
        self._file = path

    def query(self, api: ApiClient, place: FilePosition) -> Query:
        """The offset in the file."""
        return {"path": self._file, "origin": "start", "offset": place.offset}

    def before_end(self, api: ApiClient, count: int) -> FilePosition:
        """By the size of the file."""
        size: int = api.get(self._stat, {"path": self._file})["Size"]
        return FilePosition("", max(size - count, 0))

    def shown(self, api: ApiClient, place: FilePosition, frame: Json) -> int:
        """None after a truncation, which a file event announces: reading restarts at the beginning."""
        return 0 if frame.get("FileEvent") else _overlap(place.offset, _begin(frame))

    def has_more(self, api: ApiClient, place: FilePosition) -> bool:
        """Never: an offset in one file means the same to every agent."""
        return False

    def is_removed(self, api: ApiClient, place: FilePosition) -> bool:
        """Not used: the stream itself ends when the file is removed."""
        return False


class LogSource:
    """A task's standard output or error, over all its files."""

    def __init__(self, alloc_id: str, task: str, kind: str) -> None:
        self.path = api_path("client", "fs", "logs", alloc_id)
        self._ls = api_path("client", "fs", "ls", alloc_id)
        self._task, self._kind = task, kind

    def query(self, api: ApiClient, place: FilePosition) -> Query:
        """The offset counts over all existing files."""
        before = 0
        if place.file:
            number = _number(place.file)
            sizes = self._sizes(api)
            before = sum(size for other, size in sizes.items() if other < number)
            before += place.offset if number in sizes else 0
        return {"task": self._task, "type": self._kind, "plain": False, "origin": "start", "offset": before}

    def before_end(self, api: ApiClient, count: int) -> FilePosition:
        """Computed from the sizes of all files; the beginning when the task has written none yet."""
        left = count
        for number, size in sorted(self._sizes(api).items(), reverse=True):
            if left <= size:
                return FilePosition(self._name(number), size - left)
            left -= size
        return START

    def shown(self, api: ApiClient, place: FilePosition, frame: Json) -> int:
        """A frame of the file that follows is right when all of the file before it has been shown."""
        if not place.file:
            return 0
        here, there = _number(place.file), _number(frame.get("File") or "")
        offset = _begin(frame)
        if there < here:
            return len(data_of(frame))
        if there == here:
            return _overlap(place.offset, offset)
        sizes = self._sizes(api)
        is_next = not any(here < number < there for number in sizes)
        if offset or not is_next or sizes.get(here, place.offset + 1) > place.offset:
            raise Gap
        return 0

    def has_more(self, api: ApiClient, place: FilePosition) -> bool:
        """When the oldest file went after the listing, the offset was beyond the end."""
        here = _number(place.file)
        try:
            sizes = self._sizes(api)
        except ApiError:
            return False
        return sizes.get(here, 0) > place.offset or any(size for number, size in sizes.items() if number > here)

    def is_removed(self, api: ApiClient, place: FilePosition) -> bool:
        """The oldest files are removed while the task writes."""
        return bool(place.file) and _number(place.file) not in self._sizes(api)

    def _name(self, number: int) -> str:
        return f"{LOG_FOLDER}/{self._task}.{self._kind}.{number}"

    def _sizes(self, api: ApiClient) -> dict[int, int]:
        """The sizes of the log's files by number; empty before the folder of logs exists."""
        pattern = re.compile(re.escape(f"{self._task}.{self._kind}.") + r"\d+")
        try:
            entries: list[Json] = api.get(self._ls, {"path": LOG_FOLDER}) or []
        except ApiError as error:
            if error.status != 404 or error.reason in MAY_PASS:
                raise
            return {}
        return {_number(entry["Name"]): entry["Size"] for entry in entries if pattern.fullmatch(entry["Name"])}


def _number(name: str) -> int:
    """The number at the end of a log file's name; -1 for other names."""
    digits = name.rpartition(".")[2]
    return int(digits) if digits.isdigit() else -1


def _overlap(requested: int, offset: int) -> int:
    if offset > requested:
        raise Gap
    return requested - offset


def frames(api: ApiClient, path: str, query: Query, *, silence_s: float | None = None) -> Iterator[Json]:
    """The frames of a stream; one without data is a heartbeat. Raises when the stream is silent for too long."""
    decoder, buffer = json.JSONDecoder(), ""
    for piece in api.stream(path, query, silence_s=silence_s):
        buffer += piece.decode()
        while True:
            buffer = buffer.lstrip()
            if not buffer:
                break
            try:
                frame, end = decoder.raw_decode(buffer)
            except ValueError:
                break
            buffer = buffer[end:]
            if ENDED in frame:
                raise BrokenOff(f"The stream of {api.connection.address} ended: {frame[ENDED]}")
            yield frame


def data_of(frame: Json) -> bytes:
    """The bytes of a frame."""
    import base64

    return base64.b64decode(frame.get("Data") or "")


def place_after(place: FilePosition, frame: Json) -> FilePosition:
    """The position after a frame; offset 0 when the file was truncated."""
    if frame.get("FileEvent"):
        return FilePosition(frame.get("File") or place.file, 0)
    data = data_of(frame)
    if not data:
        return place
    return FilePosition(frame.get("File") or place.file, frame.get("Offset") or len(data))


def last_lines(api: ApiClient, source: FrameSource, count: int) -> tuple[bytes, FilePosition]:
    """The last lines and the position after them. Reads from further back until there are enough lines."""
    count = min(max(count, 0), LINES_MAX)
    guess = count * LINE_BYTES_GUESS
    while True:
        place = source.before_end(api, guess)
        data, end = read_to_end(api, source, place)
        lines = [line for line in re.split(rb"(?<=\n)", data) if line]
        if place == START or len(lines) > count:
            return b"".join(lines[-count:]) if count else b"", end
        guess = max(guess, LINE_BYTES_GUESS) * 8


def read_to_end(api: ApiClient, source: FrameSource, place: FilePosition) -> tuple[bytes, FilePosition]:
    """The data from a position to the present end, and the position after it."""
    parts = []
    for frame in frames(api, source.path, {**source.query(api, place), "follow": False}):
        parts.append(data_of(frame))
        place = place_after(place, frame)
    return b"".join(parts), place
