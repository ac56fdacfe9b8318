"""Renders in a child process that is started on demand and ends when it is idle.

When a template takes too long, the process is killed, the template fails, and the next request starts another process.
One rendering runs at a time, so that templates never use more than one core.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys

import msgspec

from yurt.client.templates.render_protocol import LENGTH, Rendered, RenderRequest

PROGRAM = ("-I", "-m", "yurt.client.templates.render_program")
LIMIT_S = 15.0
IDLE_S = 20.0
ANSWER_MAX = 64 * 1024 * 1024
PASSED_ENV = ("PATH", "LANG", "TZDIR")

log = logging.getLogger(__name__)


class Renderer:
    """One client's child process for renderings."""

    def __init__(self, *, idle_s: float = IDLE_S, limit_s: float = LIMIT_S) -> None:
        self._process: asyncio.subprocess.Process | None = None
        self._left: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._is_closed = False
        self._idle_s = idle_s
        self._limit_s = limit_s
        self._idle: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int:
        """The child's process id, 0 while there is none."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    async def render(self, request: RenderRequest) -> Rendered:
        """Render a template; the result has its text, its missing answers, or its error."""
        async with self._turn:
            if self._is_closed:
                return Rendered(error=f"{request.name}: the agent is shutting down")
            self._stay()
            answer = await self._attempt(request, is_last=not self.pid) or await self._attempt(request, is_last=True)
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._leave)
            assert answer is not None
            return answer

    async def _attempt(self, request: RenderRequest, *, is_last: bool) -> Rendered | None:
        """The result; None when a reused process has ended, possibly because of another template."""
        is_done = False
        try:
            async with asyncio.timeout(self._limit_s):
                answer = await self._ask(request)
            is_done = True
            return answer
        except TimeoutError:
            return Rendered(error=f"{request.name}: rendering takes longer than {self._limit_s:g} s")
        except (OSError, EOFError, msgspec.DecodeError) as error:
            if not is_last:
                return None
            log.warning("template process ended unexpectedly: error=%s", error)
            return Rendered(error=f"{request.name}: rendering took too much time or memory and was ended")
        finally:
            if not is_done:
                await self._end()

    async def run(self) -> None:
        """End the child process when cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            await self.close()

    async def close(self) -> None:
        """End the child process and start no other."""
        self._is_closed = True
        async with self._turn:
            self._stay()
            await self._end()

    async def _ask(self, request: RenderRequest) -> Rendered:
        process = self._process if self.pid else await self._start()
        assert process is not None and process.stdin is not None and process.stdout is not None
        body = msgspec.msgpack.encode(request)
        process.stdin.write(LENGTH.pack(len(body)) + body)
        await process.stdin.drain()
        size = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))[0]
        if size > ANSWER_MAX:
            raise OSError(f"an answer of {size} bytes")
        return msgspec.msgpack.decode(await process.stdout.readexactly(size), type=Rendered)

    async def _start(self) -> asyncio.subprocess.Process:
        await self._end()
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *PROGRAM,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            cwd="/",
            env={name: os.environ[name] for name in PASSED_ENV if name in os.environ},
        )
        return self._process

    def _stay(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _leave(self) -> None:
        """End an idle process by closing its input."""
        process = self._process
        if process is not None and process.stdin is not None and not self._turn.locked():
            process.stdin.close()
            self._process, self._left = None, process

    async def _end(self) -> None:
        processes, self._process, self._left = (self._process, self._left), None, None
        for process in processes:
            if process is not None:
                await self._kill(process)

    async def _kill(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        transport = process._transport  # type: ignore[attr-defined]
        transport.close()
