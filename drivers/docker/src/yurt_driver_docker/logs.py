"""Collects a container's output in `<logs_dir>/<task>.<stream>.N`, each byte once, across restarts of agent and engine.

The engine stores a container's output with a time for each message. A reader follows it on the event loop and, after
each batch, records its position in a small file: for each stream the time of the last message and the number of
messages with that time, and the length of the log files. The next reader truncates the files to that length, requests
all output since a moment before that time, and skips messages that were written. So an agent that dies between the two
writes neither loses nor repeats a line. Times are used only while catching up, because the parts of one long line share
a time, and clocks are set back.

Docker up to 20.10 repeats the newest file of a container from its beginning when it has rotated to that file while it
was followed. A message that is older than the one before it begins such a repetition, unless the clock of this machine
was set back meanwhile, and so does a line with the time and the text of the one before it. The reader then catches up
as after a reconnection.

States of a reader: following -stream breaks-> waiting for the engine -> following; -container has ended, all read->
done.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress

from yurt.sdk.containers.common import wall_clock
from yurt.sdk.containers.engine import Engine, EngineDown
from yurt.sdk.containers.frames import Piece, StreamFrames, since
from yurt.sdk.containers.logfiles import STREAM_NAMES, LogFiles, Position, PositionFile
from yurt.sdk.errors import Conflict, DriverError, NotFound, RecoverableError

log = logging.getLogger(__name__)

RETRY_FIRST_S, RETRY_MAX_S = 0.1, 5.0
STEP_NS = 1_000_000
"""From here on a change of the clock counts as a step; two readings of the clocks may lie apart by less."""
DRAIN_S, DRAIN_ROUNDS = 5.0, 12


def clock_difference_ns() -> int:
    """The wall clock less the monotonic clock, which is changed by steps of the wall clock alone."""
    return wall_clock() - time.monotonic_ns()


def is_seen(piece: Piece, position: Position, skip: dict[str, int]) -> bool:
    """Whether a piece of a stream that catches up was written before; `skip` lists such streams, and is consumed.

    For each stream it has the number of written messages with the time of the position. A stream has caught up with
    the last of these, not only with a newer message: the clock may be set back before that one comes.
    """
    at, _ = position.reached.get(piece.stream, (0, 0))
    if piece.at < at:
        return True
    left = skip.pop(piece.stream)
    if piece.at > at:
        return False
    if left > 1:
        skip[piece.stream] = left - 1
    return True


class Repetitions:
    """Finds where the engine begins to repeat messages; `clock` is the difference of wall clock and monotonic clock.

    An engine on another machine, or in a virtual one, has a clock of its own: its messages are taken as they come.
    `is_here` says whether the container runs under the kernel of this machine.
    """

    def __init__(
        self, position: Position, *, is_here: Callable[[], bool], clock: Callable[[], int] = clock_difference_ns
    ) -> None:
        """`position` is where the reader before ended; its caller advances it."""
        self._position = position
        self._is_here = is_here
        self._clock = clock
        self._newest: dict[str, Piece] = {}
        self._differences = dict.fromkeys(STREAM_NAMES, max(position.clock_ns, clock()))
        """The largest difference of the clocks since a message of the stream was older than the one before it.

        A message may be read after a step of the clock that came later, so a step counts until it was seen in a stream.
        """

    def new_runs(self, pieces: list[Piece], skip: dict[str, int]) -> Iterator[list[Piece]]:
        """The new pieces, a further run behind each repetition; the caller advances the position behind each run."""
        if is_here := self._is_here():
            self._note_clock()
        while pieces:
            fresh, pieces = self._until_repetition(pieces, skip, is_here=is_here)
            if fresh:
                yield fresh
            if pieces:
                skip |= {stream: same for stream, (_, same) in self._position.reached.items()}

    def _note_clock(self) -> None:
        """Record the difference of the clocks, also for the next reader: a step back may show in its messages."""
        difference_ns = self._clock()
        for stream, before_ns in self._differences.items():
            self._differences[stream] = max(before_ns, difference_ns)
        self._position.clock_ns = max(self._differences.values())

    def _until_repetition(
        self, pieces: list[Piece], skip: dict[str, int], *, is_here: bool
    ) -> tuple[list[Piece], list[Piece]]:
        """The new pieces before a repetition, and all pieces from its beginning on."""
        fresh = list[Piece]()
        for number, piece in enumerate(pieces):
            if piece.stream in skip:
                if is_seen(piece, self._position, skip):
                    continue
            elif is_here and self._is_repeated(piece):
                return fresh, pieces[number:]
            if piece.stamp:  # else it goes on with the piece before it
                self._newest[piece.stream] = piece
            fresh.append(piece)
        return fresh, []

    def _is_repeated(self, piece: Piece) -> bool:
        """Whether a repetition begins with this piece."""
        before = self._newest.get(piece.stream)
        # The engine writes all times with the same width: bytes that are in order need not be parsed.
        if before is None or piece.stamp > before.stamp or not piece.stamp:
            return False
        if piece.stamp == before.stamp:  # the parts of one line share a time, whole lines do not
            return before.data.endswith(b"\n") and (piece.data == before.data or not piece.data.endswith(b"\n"))
        return piece.at < before.at and not self._was_set_back(piece.stream)

    def _was_set_back(self, stream: str) -> bool:
        """Whether a step of the clock explains an older message."""
        before_ns, present_ns = self._differences[stream], self._clock()
        self._differences[stream] = present_ns
        return before_ns - present_ns > STEP_NS


def advance(position: Position, pieces: list[Piece]) -> None:
    """Advance a position behind pieces of one stream; those without a time leave it where it is."""
    if not pieces[-1].stamp:
        pieces = [piece for piece in pieces if piece.stamp]
        if not pieces:
            return
    last = pieces[-1]
    same = next((count for count, each in enumerate(reversed(pieces)) if each.stamp != last.stamp), len(pieces))
    at, before = position.reached.get(last.stream, (0, 0))
    is_going_on = same == len(pieces) and last.at == at
    position.reached[last.stream] = (last.at, before + same if is_going_on else same)


class LogReader:
    """Follows the output of one container until it has ended."""

    def __init__(
        self,
        engine: Engine,
        container_id: str,
        *,
        files: Callable[[], LogFiles],
        ledger_path: str,
        is_terminal: bool,
        is_here: Callable[[], bool],
    ) -> None:
        """`is_here`: as in `Repetitions`."""
        self.engine = engine
        self.container_id = container_id
        self.make_files = files
        self.ledger_path = ledger_path
        self.is_terminal = is_terminal
        self.position = Position()
        self.batches = 0
        self.done = asyncio.Event()
        self.is_here = is_here

    async def run(self, is_running: Callable[[], Awaitable[bool]]) -> None:
        """Read to the end; `is_running` queries the engine, and raises EngineDown while it is unreachable."""
        try:
            with closing(PositionFile(self.ledger_path)) as self.ledger, closing(self.make_files()) as self.files:
                self.position = self.ledger.load()
                self.repetitions = Repetitions(self.position, is_here=self.is_here)
                self.files.open(self.position.files)
                await self._follow(is_running)
        except (NotFound, Conflict):
            pass  # it was removed, or is being removed
        except (DriverError, OSError, ValueError) as error:
            name = self.container_id[:12]
            log.warning("docker driver: the output of container %s is no longer collected: %s", name, error)
        finally:
            self.done.set()

    async def drained(self) -> None:
        """Wait until all is read, unless the reader makes no progress or does not end."""
        for _ in range(DRAIN_ROUNDS):
            seen = self.batches
            with suppress(TimeoutError):
                async with asyncio.timeout(DRAIN_S):
                    await self.done.wait()
            if self.done.is_set() or self.batches == seen:
                return

    async def _follow(self, is_running: Callable[[], Awaitable[bool]]) -> None:
        """Follow, and reconnect when the engine was unreachable.

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
        """Read one stream from the present position to its end."""
        query = {"stdout": "1", "stderr": "1", "timestamps": "1", "follow": "1" if follows else "0"}
        if self.position.since:
            query["since"] = since(self.position.since)
        frames = StreamFrames(is_terminal=self.is_terminal, has_stamps=True)
        skip = {stream: same for stream, (_, same) in self.position.reached.items()}
        async with self.engine.stream("GET", f"/containers/{self.container_id}/logs", query=query) as response:
            async for data in response.content.iter_any():
                self._take(frames.feed(data), skip)
            self._take(frames.end(), skip)

    def _take(self, pieces: list[Piece], skip: dict[str, int]) -> None:
        """Write new output, then record the position."""
        for fresh in self.repetitions.new_runs(pieces, skip):
            for stream in STREAM_NAMES:
                of_stream = [piece for piece in fresh if piece.stream == stream]
                if of_stream:
                    self.files.write(stream, b"".join([piece.data for piece in of_stream]))
                    advance(self.position, of_stream)
            self.batches += 1
            self.position.files = self.files.places
            self.ledger.store(self.position)
