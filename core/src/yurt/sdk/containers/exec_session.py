"""A command in a container with its streams, over the engine's exec API on a dedicated connection.

The engine answers the start of an exec with an upgrade: from then on the connection carries the command's input one
way and its output the other, raw for a terminal, in frames of 8 bytes and a payload without one. No HTTP library hands
over the raw connection, so this request is written by hand; create, resize and inspect are ordinary requests.

The engine has no call to kill a command: the session kills it by the pid that the engine reports, if both run on the
same machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from yurt.sdk.containers.engine import ASK_S, Engine, EngineDown, failure
from yurt.sdk.containers.exec_to_end import END_LOOK_S, END_LOOKS, code_of, exit_code
from yurt.sdk.containers.frames import StreamFrames
from yurt.sdk.errors import Conflict, DriverError, NotFound
from yurt.sdk.exec import STDOUT, ExecOutput, TerminalSize

READ_SIZE = 32 * 1024
HEAD_BYTES_MAX = 64 * 1024
SWITCHED, OK = 101, 200
END_OF_INPUT = b"\x04"
HANGUP_LOOKS = 15


class EngineExecSession:
    """An `ExecSession` of an engine; `on_close` is called with the command's id when the session ends."""

    def __init__(
        self, engine: Engine, exec_id: str, *, tty: bool, on_close: Callable[[str], None] | None = None
    ) -> None:
        self._engine = engine
        self._exec_id = exec_id
        self._tty = tty
        self._on_close = on_close
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._has_input = True
        self._is_closed = False
        self._code: int | None = None
        self._over = asyncio.Event()

    async def start(self) -> None:
        """Start the created exec; raises DriverError with the engine's reason."""
        reader, writer = await open_connection(self._engine)
        try:
            async with asyncio.timeout(ASK_S * 3):
                await switch(
                    self._engine, reader, writer, f"/exec/{self._exec_id}/start", {"Detach": False, "Tty": self._tty}
                )
        except TimeoutError:
            writer.close()
            raise EngineDown(f"the {self._engine.name} engine did not start the command in time") from None
        except BaseException:
            writer.close()
            raise
        self._reader, self._writer = reader, writer

    async def output(self) -> AsyncIterator[ExecOutput]:
        """The command's output, as it arrives."""
        assert self._reader is not None
        frames = StreamFrames(is_terminal=self._tty, has_stamps=False)
        try:
            while data := await self._reader.read(READ_SIZE):
                if self._tty:
                    yield ExecOutput(data=data, stream=STDOUT)
                    continue
                for piece in frames.feed(data):
                    yield ExecOutput(data=piece.data, stream=piece.stream)
        except (ConnectionError, ValueError):
            return
        finally:
            self._over.set()

    async def write(self, data: bytes) -> None:
        """Write to its input; waits while the engine takes none."""
        if not self._has_input or self._writer is None:
            return
        try:
            self._writer.write(data)
            await self._writer.drain()
        except (ConnectionError, RuntimeError):
            self._has_input = False

    async def close_input(self) -> None:
        """Close its input."""
        if self._tty:
            await self.write(END_OF_INPUT)
            return
        if self._has_input and self._writer is not None and self._writer.can_write_eof():
            with suppress(OSError, RuntimeError):
                self._writer.write_eof()
        self._has_input = False

    async def resize(self, size: TerminalSize) -> None:
        """Set the size of its terminal."""
        if self._tty and size.width > 0 and size.height > 0:
            query = {"h": str(size.height), "w": str(size.width)}
            with suppress(DriverError, NotFound, Conflict):
                async with (
                    asyncio.timeout(ASK_S),
                    self._engine.stream("POST", f"/exec/{self._exec_id}/resize", query=query),
                ):
                    pass

    async def wait(self) -> int:
        """Wait for its end, detected by the end of its output."""
        await self._over.wait()
        if self._code is None:
            self._code = await exit_code(self._engine, self._exec_id)
        return self._code

    async def close(self) -> None:
        """Kill a running command and close the connection."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._end()
        finally:
            self._over.set()
            if self._writer is not None:
                self._writer.close()
                with suppress(ConnectionError, OSError):
                    await self._writer.wait_closed()
            if self._on_close is not None:
                self._on_close(self._exec_id)

    async def _end(self) -> None:
        """Send SIGHUP, then SIGKILL, to the command and its session."""
        if self._code is not None or not self._engine.target.socket_path:
            return
        with suppress(NotFound, EngineDown, OSError):
            pid = await self._pid()
            members = session_members(pid) if pid else []
            for member in members:
                kill(member, signal.SIGHUP)
            for _ in range(HANGUP_LOOKS):
                if not pid or not await self._pid():
                    break
                await asyncio.sleep(END_LOOK_S)
            else:
                members += session_members(pid)
            for member in members:
                kill(member, signal.SIGKILL)

    async def _pid(self) -> int:
        """The command's pid on the engine's machine, 0 when it has ended; waits for one that is just starting."""
        for _ in range(END_LOOKS):
            found = await self._engine.ask(f"/exec/{self._exec_id}/json")
            if code_of(found, self._engine) is not None:
                return 0
            if found.get("Pid"):
                return int(found["Pid"])
            await asyncio.sleep(END_LOOK_S)
        return 0


def session_members(leader: int) -> list[tuple[int, bytes]]:
    """The processes of a session with their start times; a command started by the engine is a session leader."""
    found = []
    for name in os.listdir("/proc"):
        fields = stat_fields(int(name)) if name.isdigit() else []
        if len(fields) > 19 and (int(fields[3]) == leader or int(name) == leader):
            found.append((int(name), fields[19]))
    return found


def stat_fields(pid: int) -> list[bytes]:
    """The fields after the name in /proc/<pid>/stat; empty when the process does not exist."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []


def kill(member: tuple[int, bytes], number: signal.Signals) -> None:
    """Signal a process, unless its pid was reused."""
    pid, started = member
    fields = stat_fields(pid)
    if len(fields) > 19 and fields[19] == started:
        with suppress(OSError):
            os.kill(pid, number)


async def open_connection(engine: Engine) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the engine."""
    target = engine.target
    engine.require_socket()
    try:
        async with asyncio.timeout(ASK_S):
            if target.socket_path:
                return await asyncio.open_unix_connection(target.socket_path)
            host, _, port = target.base_url.partition("://")[2].rpartition(":")
            return await asyncio.open_connection(host, int(port), ssl=target.tls_context())
    except (OSError, TimeoutError) as error:
        raise engine.unreachable(error) from None


async def switch(
    engine: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, body: dict[str, Any]
) -> None:
    """Request a protocol upgrade and read the answer's head; raises the engine's error."""
    data = json.dumps(body).encode()
    head = (
        f"POST {engine.prefix}{path} HTTP/1.1\r\nHost: engine\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    writer.write(head.encode() + data)
    try:
        await writer.drain()
        answer = (await reader.readuntil(b"\r\n\r\n")).decode(errors="replace")
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise EngineDown(f"the {engine.name} engine closed the connection: {error}") from None
    words = answer.split(None, 2)
    status = int(words[1]) if len(words) > 1 and words[1].isdigit() else 0
    if status not in (SWITCHED, OK):
        text = (await reader.read(HEAD_BYTES_MAX)).decode(errors="replace")
        raise failure(engine.name, status or 500, reason_in(text))


def reason_in(text: str) -> str:
    """The engine's reason in the body of an error answer, chunked or not."""
    start, end = text.find("{"), text.rfind("}")
    with suppress(ValueError, KeyError, TypeError):
        return str(json.loads(text[start : end + 1])["message"])
    return text.strip()[:500] or "no reason given"


async def begin(
    engine: Engine, exec_id: str, *, tty: bool, on_close: Callable[[str], None] | None = None
) -> EngineExecSession:
    """Start an exec that was created in a container."""
    session = EngineExecSession(engine, exec_id, tty=tty, on_close=on_close)
    await session.start()
    return session
