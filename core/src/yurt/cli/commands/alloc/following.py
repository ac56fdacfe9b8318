"""Print a file or a log. With -f, resume at another server when the sending agent fails or falls silent.

The last shown byte has a position (`yurt.cli.api.frames`). When the answer breaks off, the rest is requested from
there, from the same agent and the other servers in turn, within a time limit. The list of servers is read before any
failure, because a dead server cannot name the others. The first frames of the new answer say where they stand; what
they repeat is left out, and an answer that begins too late (the oldest file was removed while the place was turned
into an offset) is thrown away and asked for once more. Data removed in the meantime are lost, which is reported.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from yurt.cli.api.frames import (
    MAY_PASS,
    START,
    FilePosition,
    FrameSource,
    Gap,
    data_of,
    frames,
    last_lines,
    place_after,
)
from yurt.cli.errors import ApiError, BrokenOff, Unreachable
from yurt.cli.json_object import Json
from yurt.sdk.errors import YurtError

if TYPE_CHECKING:
    from yurt.cli.api.client import ApiClient


PATIENCE_S = 120.0
"""How long an interrupted stream is retried."""
SILENCE_S = 20.0
"""A followed stream sends something each second; after a silence of this length it counts as broken."""
PAUSE_MIN_S, PAUSE_MAX_S = 0.25, 2.0
SERVERS_MAX = 16
REOPEN_MAX = 5
"""Consecutive answers with a gap at the start, after which the gap is accepted."""
LOOPBACK = ("127.", "::1", "localhost")


class Bounds(NamedTuple):
    """Time limits in seconds."""

    patience_s: float = PATIENCE_S
    silence_s: float = SILENCE_S
    pause_s: float = PAUSE_MIN_S


class StartPosition(NamedTuple):
    """Where to begin: the number of last lines, or of last bytes (both -1: at the beginning)."""

    lines: int = -1
    characters: int = -1


def write_out(data: bytes) -> None:
    """Write to standard output and flush."""
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()


def print_source(
    api: ApiClient, source: FrameSource, begin: StartPosition, *, follow: bool, bounds: Bounds | None = None
) -> bool:
    """Print the present content, and with `follow` new content; returns whether there was any."""
    if begin.lines >= 0:
        data, place = _last_lines(api, source, begin.lines, may_be_missing=follow)
        write_out(data)
        has_output = bool(data) or begin.lines == 0
    else:
        place = source.before_end(api, begin.characters) if begin.characters >= 0 else START
        has_output = False
    if follow:
        return Follower(api, source, place, bounds or Bounds()).run() or has_output
    if begin.lines >= 0:
        return has_output
    for frame in frames(api, source.path, {**source.query(api, place), "follow": False}):
        if data := data_of(frame):
            write_out(data)
            has_output = True
    return has_output


def _last_lines(api: ApiClient, source: FrameSource, count: int, *, may_be_missing: bool) -> tuple[bytes, FilePosition]:
    try:
        return last_lines(api, source, count)
    except ApiError as error:
        if error.status == 404 and may_be_missing:  # a task that has not started yet; if not, following says so
            return b"", START
        raise


class Follower:
    """Follows one source to its end, across failures of the agents that send it."""

    def __init__(self, api: ApiClient, source: FrameSource, place: FilePosition, bounds: Bounds) -> None:
        self._api = api
        self._source = source
        self._place = place
        self._bounds = bounds
        self._apis = [api]
        self._reopen_count = 0
        self.has_output = False

    def run(self) -> bool:
        """Print until the source ends; returns whether there was anything. Raises the last failure if none resumes."""
        from yurt.cli.terminal.closed_output import ending_with_reader

        self._apis += other_servers(self._api)
        try:
            with ending_with_reader():
                self._follow()
        finally:
            for api in self._apis[1:]:
                api.close()
        return self.has_output

    def _follow(self) -> None:
        answer = self._begun(self._api)
        while True:
            error: YurtError | None = None
            try:
                self._print(answer)
                return
            except Gap:
                self._reopen_count += 1
            except (BrokenOff, Unreachable, ApiError) as failure:
                error = failure
            answer = self._resumed(error)

    def _begun(self, api: ApiClient) -> Iterator[Json]:
        """The frames from the place on, of an agent that has sent the first one."""
        self._api = api
        query = {**self._source.query(api, self._place), "follow": True}
        answer = frames(api, self._source.path, query, silence_s=self._bounds.silence_s)
        return _with_first(next(answer, None), answer)

    def _print(self, answer: Iterator[Json]) -> None:
        is_checked = False
        for frame in answer:
            data = data_of(frame)
            if data and not is_checked:
                seen = self._seen(frame)
                is_checked = seen < len(data)
                if not is_checked:
                    continue
                data = data[seen:]
            self._place = place_after(self._place, frame)
            if data:
                self._reopen_count = 0
                self.has_output = True
                write_out(data)
        if not is_checked and self._reopen_count < REOPEN_MAX and self._source.has_more(self._api, self._place):
            raise Gap

    def _seen(self, frame: Json) -> int:
        """How much of a first frame has been shown; raises Gap for a frame to discard."""
        try:
            return self._source.shown(self._api, self._place, frame)
        except Gap:
            if self._source.is_removed(self._api, self._place) or self._reopen_count >= REOPEN_MAX:
                _say("Some of the output written meanwhile may be missing: the file was removed.")
                return 0
            raise

    def _resumed(self, error: YurtError | None) -> Iterator[Json]:
        """A stream that resumes, from the first agent that sends one; raises the last failure at the time limit."""
        began, pause_s = time.monotonic(), self._bounds.pause_s
        first = self._apis.index(self._api)
        if error is not None:
            bound = f"{self._bounds.patience_s:g} s"
            _say(f"{str(error).rstrip('.')}. Following goes on where an agent answers (within {bound}).")
            time.sleep(pause_s)
            first += 1
        turns = [*self._apis[first:], *self._apis[:first]]
        while True:
            found = self._first_stream(turns)
            if not isinstance(found, YurtError):
                if error is not None:
                    _say(f"Following again, through {self._api.connection.address}.")
                return found
            error = found
            if time.monotonic() - began + pause_s > self._bounds.patience_s:
                raise BrokenOff(f"Nobody went on for {self._bounds.patience_s:g} s. {error}")
            time.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)

    def _first_stream(self, turns: list[ApiClient]) -> Iterator[Json] | YurtError:
        """The stream of the first agent that sends one, or the last failure; raises permanent errors."""
        failure: YurtError = BrokenOff("Nobody is known")
        for api in turns:
            try:
                return self._begun(api)
            except (BrokenOff, Unreachable) as error:
                failure = error
            except ApiError as error:
                if not _may_pass(error):
                    raise
                failure = error
        return failure


def _with_first(first: Json | None, rest: Iterator[Json]) -> Iterator[Json]:
    if first is not None:
        yield first
        yield from rest


def _may_pass(error: ApiError) -> bool:
    return error.status >= 500 or error.status == 429 or error.reason in MAY_PASS


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def other_servers(api: ApiClient) -> list[ApiClient]:
    """The other servers of the agent's region that it knows; empty when it does not answer.

    An address on loopback is another machine's own, unless the agent itself was reached there.
    """
    from urllib.parse import urlsplit

    from yurt.cli.api.client import ApiClient

    address = api.connection.address
    here = urlsplit(address if "://" in address else f"http://{address}")
    if here.scheme not in ("http", "https"):
        return []
    try:
        members: Json = api.get("/v1/agent/members") or {}
    except YurtError:
        return []
    region = api.connection.region or members.get("ServerRegion")
    rows = [each for each in members.get("Members") or () if each["Status"] != "left"]
    tags: list[Json] = [each.get("Tags") or {} for each in rows]
    addresses = [each.get("http_addr") or "" for each in tags if each.get("region") == region]
    is_near = (here.hostname or "").startswith(LOOPBACK)
    return [
        ApiClient(api.connection._replace(address=f"{here.scheme}://{other}"))
        for other in addresses[:SERVERS_MAX]
        if other and other != here.netloc and (is_near or not other.strip("[").startswith(LOOPBACK))
    ]
