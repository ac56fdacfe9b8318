"""Followed streams: answers that last until their reader leaves, such as events and logs.

When the agent stops, each of them ends with its last chunk, so that its reader sees an end and not a fault. An answer
with an end of its own, such as a file, breaks off instead: half a file must not look like a whole one. So does a stream
that is passed on, where its last piece ends within a frame or an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from aiohttp import hdrs, web

from yurt.runtime.env import Env

FOLLOWED: Final = "X-Yurt-Followed"
"""The header of a followed stream, also for the agents that pass it on; its value is the form of the stream."""
EVENTS: Final = "events"
FRAMES: Final = "frames"
PLAIN: Final = "plain"
ENDED: Final = "Ended"
"""The key of the last frame: Nomad's clients take the frame for a heartbeat, our command line resumes elsewhere."""
LAST_PIECES: Final = {FRAMES: b'{"%s":"the agent is stopping"}\n' % ENDED.encode()}
"""The last piece of a stream by its form, where the form has one."""
LAST_PIECE: Final[web.ResponseKey[Callable[[], bytes]]] = web.ResponseKey("last_piece")
"""Makes the last piece of a response that is compressed on its way."""


class FollowedStreams:
    """The followed streams that an agent is sending."""

    def __init__(self, env: Env) -> None:
        self._env = env
        self._tasks: dict[web.StreamResponse, asyncio.Task[object]] = {}
        self._limit_s: float | None = None
        """The time limit of the end; None while the agent runs."""
        self._ended = asyncio.Event()
        self._within_line: set[web.StreamResponse] = set()

    def begin(self, response: web.StreamResponse) -> None:
        """Register a stream of the current task; once the agent stops, it ends at its next wait."""
        task = asyncio.current_task()
        assert task is not None, "a response begins in the task of its request"
        self._tasks[response] = task
        if self._limit_s is not None:
            task.cancel()

    def note_piece(self, response: web.StreamResponse, piece: bytes) -> None:
        """Note whether a piece of a stream that is passed on ends within a line: its pieces are cut anywhere."""
        if response in self._tasks and piece:
            (self._within_line.discard if piece.endswith(b"\n") else self._within_line.add)(response)

    def forget(self, response: web.StreamResponse) -> None:
        """Remove a stream that has ended; no effect for other responses."""
        self._tasks.pop(response, None)
        self._within_line.discard(response)
        if not self._tasks:
            self._ended.set()

    def ends(self, response: web.StreamResponse) -> bool:
        """Whether the stream was cancelled because the agent stops."""
        return self._limit_s is not None and response in self._tasks

    async def finish(self, request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
        """Send the last piece and the last chunk of a cancelled stream; a reader that does not read is cut off."""
        task = self._tasks[response]
        task.uncancel()
        piece = None if self._is_cut(response) else _last_piece(response)
        if piece is None:
            if request.transport is not None:
                request.transport.close()
            return response
        response.force_close()
        try:
            async with self._env.timeout(self._limit_s):
                await response.write_eof(piece)
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        return response

    def _is_cut(self, response: web.StreamResponse) -> bool:
        """Whether the pieces sent so far end within a line."""
        return response.headers[FOLLOWED] != PLAIN and response in self._within_line

    async def end_all(self, limit_s: float) -> None:
        """End all streams, and those that begin from now on, within `limit_s` seconds."""
        self._limit_s = limit_s
        for task in self._tasks.values():
            task.cancel()
        if self._tasks:
            self._ended.clear()
            with suppress(TimeoutError):
                async with self._env.timeout(limit_s):
                    await self._ended.wait()


def _last_piece(response: web.StreamResponse) -> bytes | None:
    """None for a compressed stream that is passed on: only its sender can complete it."""
    if LAST_PIECE in response:
        return response[LAST_PIECE]()
    return None if hdrs.CONTENT_ENCODING in response.headers else LAST_PIECES.get(response.headers[FOLLOWED], b"")
