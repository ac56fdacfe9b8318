"""The output of one container in `<logs_dir>/<task>.<stream>.N`, each byte once, over restarts of agent and engine.

The engine keeps a container's output with a time for each message. A reader follows it on the event loop and, after
each batch, notes in a small file how far it came: for each stream the time of the last message and how many messages
bore that time, and the length of the log files. Who takes over cuts the files to that length, asks the engine for
everything since a moment before that time, and skips what was written. An agent that dies between the two writes thus
neither loses nor doubles a line. Times only count while catching up: the parts of one long line share a time, and
clocks are set back.

The log folder is writable by the task, whose root could put links there: files are opened beneath a descriptor of
the folder and never through a link, and what is no plain file is replaced.

States of a reader: following -stream breaks-> waiting for the engine -> following; -container has ended, all read->
done.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import stat
from collections.abc import Awaitable, Callable, Iterable
from contextlib import closing, suppress

import msgspec
from yurt.sdk.containers.engine import Engine, EngineDown
from yurt.sdk.driver import LogRotation
from yurt.sdk.errors import DriverError, NotFound, RecoverableError

from yurt_driver_docker.frames import Frames, Piece, since

log = logging.getLogger(__name__)

STREAM_NAMES = ("stdout", "stderr")
POSITION_BYTES = 512
OVERLAP_NS = 100_000_000
FILE_MODE = 0o644
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
RETRY_FIRST_S, RETRY_MAX_S = 0.1, 5.0
DRAIN_S, DRAIN_ROUNDS = 5.0, 12


class Position(msgspec.Struct):
    """How far the output was read and written; a file is named by its number and its length."""

    reached: dict[str, tuple[int, int]] = {}
    files: dict[str, tuple[int, int]] = {}

    @property
    def since(self) -> int:
        """From when to ask for output again; 0 is from the beginning."""
        times = [at for at, _ in self.reached.values() if at]
        return max(0, min(times) - OVERLAP_NS) if times else 0


def open_plain(folder: int, name: str) -> int:
    """Open a log file for appending; a link, a FIFO or whatever else lies there is replaced."""
    try:
        found = os.open(name, FLAGS | os.O_CREAT, FILE_MODE, dir_fd=folder)
    except OSError:
        os.unlink(name, dir_fd=folder)
        return os.open(name, FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=folder)
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    os.unlink(name, dir_fd=folder)
    return os.open(name, FLAGS | os.O_CREAT | os.O_EXCL, FILE_MODE, dir_fd=folder)


class LogFiles:
    """The rotated files of a task."""

    def __init__(self, folder: str, task_name: str, rotation: LogRotation) -> None:
        self.task_name = task_name
        self.rotation = rotation
        self.folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        self.open_files: dict[str, int] = {}
        self.places: dict[str, tuple[int, int]] = {}

    def _name(self, stream: str, index: int) -> str:
        return f"{self.task_name}.{stream}.{index}"

    def _indexes(self, stream: str) -> list[int]:
        """The numbers of the files that exist."""
        prefix = f"{self.task_name}.{stream}."
        suffixes = [name.removeprefix(prefix) for name in os.listdir(self.folder) if name.startswith(prefix)]
        return sorted(int(suffix) for suffix in suffixes if suffix.isascii() and suffix.isdigit())

    def open(self, places: dict[str, tuple[int, int]]) -> None:
        """Go on at these places, cutting off what was written beyond; without one, at the end of the last file."""
        for stream in STREAM_NAMES:
            indexes = self._indexes(stream)
            index, size = places.get(stream) or (indexes[-1] if indexes else 0, -1)
            for later in indexes:
                if later > index:
                    os.unlink(self._name(stream, later), dir_fd=self.folder)
            found = open_plain(self.folder, self._name(stream, index))
            present = os.fstat(found).st_size
            if 0 <= size < present:
                os.ftruncate(found, size)
                present = size
            self.open_files[stream] = found
            self.places[stream] = (index, present)

    def write(self, stream: str, data: bytes) -> None:
        """Append; a file never grows beyond its limit, and lines stay whole where they can."""
        rest = memoryview(data)
        while rest:
            index, size = self.places[stream]
            take = fitting(rest, self.rotation.max_bytes - size, is_empty=size == 0)
            if take == 0:
                self._rotate(stream)
                continue
            written = os.write(self.open_files[stream], rest[:take])
            self.places[stream] = (index, size + written)
            rest = rest[written:]

    def _rotate(self, stream: str) -> None:
        """Begin the next file, and remove those that are too many."""
        index = self.places[stream][0] + 1
        os.close(self.open_files[stream])
        self.open_files[stream] = open_plain(self.folder, self._name(stream, index))
        os.ftruncate(self.open_files[stream], 0)
        self.places[stream] = (index, 0)
        for old in self._indexes(stream):
            if old <= index - self.rotation.max_files:
                os.unlink(self._name(stream, old), dir_fd=self.folder)

    def close(self) -> None:
        """Close every file."""
        for each in (*self.open_files.values(), self.folder):
            os.close(each)
        self.open_files.clear()


def fitting(data: memoryview, room: int, *, is_empty: bool) -> int:
    """How many bytes to write into the present file: all, whole lines, or as many as fit when a line fits nowhere."""
    if len(data) <= room:
        return len(data)
    if room > 0:
        line_end = bytes(data[:room]).rfind(b"\n") + 1
        if line_end or is_empty:
            return line_end or room
    return 0 if not is_empty else min(len(data), 1)


class Ledger:
    """The file that keeps a reader's position, rewritten in place."""

    def __init__(self, path: str) -> None:
        self.path = path
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def load(self) -> Position:
        """The noted position; a new one when there is none or it is torn."""
        text = os.pread(self.file, POSITION_BYTES, 0).rstrip(b"\0 ")
        try:
            return msgspec.json.decode(text, type=Position) if text else Position()
        except msgspec.DecodeError:
            return Position()

    def store(self, position: Position) -> None:
        """Note a position."""
        os.pwrite(self.file, json.dumps(msgspec.to_builtins(position)).encode().ljust(POSITION_BYTES), 0)

    def close(self) -> None:
        """Close the file; it stays for who takes over."""
        os.close(self.file)


def unseen(pieces: Iterable[Piece], position: Position, skip: dict[str, int]) -> list[Piece]:
    """The pieces after `position`; `skip` says which streams still catch up, and is used up."""
    if not skip:
        return list(pieces)
    fresh = []
    for piece in pieces:
        at, _ = position.reached.get(piece.stream, (0, 0))
        if piece.stream in skip:
            if piece.at < at:
                continue
            if piece.at == at and skip[piece.stream] > 0:
                skip[piece.stream] -= 1
                continue
            del skip[piece.stream]
        fresh.append(piece)
    return fresh


def advance(position: Position, pieces: list[Piece]) -> None:
    """Move a position behind pieces of one stream."""
    last = pieces[-1]
    same = next((count for count, each in enumerate(reversed(pieces)) if each.stamp != last.stamp), len(pieces))
    at, before = position.reached.get(last.stream, (0, 0))
    is_going_on = same == len(pieces) and last.at == at
    position.reached[last.stream] = (last.at, before + same if is_going_on else same)


class LogReader:
    """Follows the output of one container until it has ended."""

    def __init__(
        self, engine: Engine, container_id: str, *, files: Callable[[], LogFiles], ledger_path: str, is_terminal: bool
    ) -> None:
        self.engine = engine
        self.container_id = container_id
        self.make_files = files
        self.ledger_path = ledger_path
        self.is_terminal = is_terminal
        self.position = Position()
        self.batches = 0
        self.done = asyncio.Event()

    async def run(self, is_running: Callable[[], Awaitable[bool]]) -> None:
        """Read to the end; `is_running` asks the engine, and raises EngineDown while that cannot be told."""
        try:
            with closing(Ledger(self.ledger_path)) as self.ledger, closing(self.make_files()) as self.files:
                self.position = self.ledger.load()
                self.files.open(self.position.files)
                await self._follow(is_running)
        except NotFound:
            pass
        except (DriverError, OSError, ValueError) as error:
            name = self.container_id[:12]
            log.warning("docker driver: the output of container %s is no longer collected: %s", name, error)
        finally:
            self.done.set()

    async def drained(self) -> None:
        """Wait until all is read; a reader that reads nothing for a while, or reads on and on, is not waited for."""
        for _ in range(DRAIN_ROUNDS):
            seen = self.batches
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await self.done.wait()
            if self.done.is_set() or self.batches == seen:
                return

    async def _follow(self, is_running: Callable[[], Awaitable[bool]]) -> None:
        """Follow, and take up the thread again when the engine was away.

        A container that has ended is read once more without following: the engine ends a followed stream early when
        its file was rotated shortly before.
        """
        wait_s, is_last = RETRY_FIRST_S, False
        while True:
            try:
                await self._read_once(follows=not is_last)
                if is_last:
                    return
                is_last = not await is_running()
                wait_s = RETRY_FIRST_S
                if is_last:
                    continue
            except EngineDown:
                pass
            except RecoverableError:
                if is_last:
                    raise
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_MAX_S)

    async def _read_once(self, *, follows: bool) -> None:
        """One stream from the present position to its end."""
        query = {"stdout": "1", "stderr": "1", "timestamps": "1", "follow": "1" if follows else "0"}
        if self.position.since:
            query["since"] = since(self.position.since)
        frames = Frames(is_terminal=self.is_terminal, has_stamps=True)
        skip = {stream: same for stream, (_, same) in self.position.reached.items()}
        async with self.engine.stream("GET", f"/containers/{self.container_id}/logs", query=query) as response:
            async for data in response.content.iter_any():
                self._take(frames.feed(data), skip)
            self._take(frames.end(), skip)

    def _take(self, pieces: list[Piece], skip: dict[str, int]) -> None:
        """Write what is new, then note the position."""
        fresh = unseen(pieces, self.position, skip)
        if not fresh:
            return
        for stream in STREAM_NAMES:
            pieces = [piece for piece in fresh if piece.stream == stream]
            if pieces:
                self.files.write(stream, b"".join([piece.data for piece in pieces]))
                advance(self.position, pieces)
        self.batches += 1
        self.position.files = self.files.places
        self.ledger.store(self.position)
