"""A client of QEMU's guest agent protocol, with the calls to run a command in a virtual machine.

The agent in the guest (`qemu-ga`) reads JSON from a serial port that the emulator provides as a socket, for one peer at
a time. It returns a command's output only after the command's end, so the driver starts a command, polls its status,
and fetches the output at its end. The guest is not trusted: its answers are bounded and decoded into closed types.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import AsyncIterator, Mapping
from typing import Any, TypeVar

import msgspec
from yurt.sdk.driver import ExecResult
from yurt.sdk.errors import DriverError
from yurt.sdk.exec import STDERR, STDOUT, ExecOutput, TerminalSize
from yurt.sdk.value import NANOSECONDS, Duration

from yurt_driver_qemu.monitor import connect

T = TypeVar("T", bound="GuestReply")

ANSWER_LIMIT_S = 10.0
FIRST_LOOK_S, LONGEST_LOOK_S = 0.02, 0.5
ANSWER_BYTES_MAX = 64 * 1024 * 1024
"""The longest answer: the agent keeps 16 MiB of each stream, which base64 makes a third longer."""
SENTINEL = b"\xff"
SIGNAL_BASE = 128
NO_ANSWER = "is qemu-guest-agent installed in the guest, and running?"


class GuestReply(msgspec.Struct, frozen=True):
    """The agent's answer to a command."""


class Begun(GuestReply, frozen=True):
    """`guest-exec`: the process in the guest."""

    pid: int


class Status(GuestReply, frozen=True, rename="kebab"):
    """`guest-exec-status`: the output is available once `exited` is true."""

    exited: bool
    exitcode: int = 0
    signal: int = 0
    out_data: bytes = b""
    err_data: bytes = b""


class GuestAgent:
    """The guest agent of one virtual machine."""

    def __init__(self, socket_path: str) -> None:
        self._socket_path = socket_path
        self._turn = asyncio.Lock()
        self._numbers = itertools.count(1)

    async def begin(self, command: tuple[str, ...]) -> GuestCommand:
        """Start a command; raises DriverError with the agent's error when the guest cannot."""
        if not command:
            raise DriverError("the command is empty; name a command to run")
        arguments = {"path": command[0], "arg": list(command[1:]), "capture-output": True}
        return GuestCommand(self, (await self._ask("guest-exec", arguments, Begun)).pid)

    async def run(self, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
        """Run a command to its end; killed at its time limit, or when the caller gives up."""
        running = await self.begin(command)
        try:
            async with asyncio.timeout(timeout / NANOSECONDS):
                found = await running.end()
        except TimeoutError:
            shown, limit_s = " ".join(command), timeout / NANOSECONDS
            raise DriverError(f'the command "{shown}" did not end within {limit_s:g} s and was killed') from None
        finally:
            await running.close()
        return ExecResult(exit_code=code_of(found), stdout=found.out_data, stderr=found.err_data)

    async def status(self, pid: int) -> Status:
        """A command's status, with its output once it has ended."""
        return await self._ask("guest-exec-status", {"pid": pid}, Status)

    async def _ask(self, command: str, arguments: Mapping[str, Any], kind: type[T]) -> T:
        """One command and its answer; raises DriverError with the agent's error."""
        async with self._turn:
            try:
                async with asyncio.timeout(ANSWER_LIMIT_S), self._conversation() as (reader, writer):
                    return await ask(reader, writer, command, arguments, kind)
            except TimeoutError:
                raise DriverError(f"the guest agent did not answer within {ANSWER_LIMIT_S:g} s: {NO_ANSWER}") from None
            except (OSError, EOFError, ValueError, msgspec.MsgspecError) as error:
                raise DriverError(f"the guest agent cannot be talked to: {error}") from None

    @contextlib.asynccontextmanager
    async def _conversation(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A synchronised connection: the next answer belongs to the next command."""
        reader, writer = await connect(self._socket_path, limit=ANSWER_BYTES_MAX)
        try:
            number = next(self._numbers)
            send(writer, "guest-sync-delimited", {"id": number}, before=SENTINEL)
            while True:
                await reader.readuntil(SENTINEL)
                if await answer(reader, int) == number:
                    break
            yield reader, writer
        finally:
            writer.close()


class GuestCommand:
    """A command in a guest, as a session without input: the agent accepts none for a running command."""

    def __init__(self, agent: GuestAgent, pid: int) -> None:
        self._agent = agent
        self._pid = pid
        self._looking = asyncio.Lock()
        self._found: Status | None = None

    async def end(self) -> Status:
        """Wait for its end. The agent reports it only once, so the result is cached."""
        delay = FIRST_LOOK_S
        async with self._looking:
            while self._found is None:
                found = await self._agent.status(self._pid)
                if found.exited:
                    self._found = found
                    break
                await asyncio.sleep(delay)
                delay = min(delay * 2, LONGEST_LOOK_S)
            return self._found

    async def output(self) -> AsyncIterator[ExecOutput]:
        """Both streams, once it has ended."""
        found = await self.end()
        for stream, data in ((STDOUT, found.out_data), (STDERR, found.err_data)):
            if data:
                yield ExecOutput(data=data, stream=stream)

    async def write(self, data: bytes) -> None:
        """Does nothing: the session takes no input."""

    async def close_input(self) -> None:
        """Does nothing: the session takes no input."""

    async def resize(self, size: TerminalSize) -> None:
        """Does nothing: the session has no terminal."""

    async def wait(self) -> int:
        """Wait for its end."""
        return code_of(await self.end())

    async def close(self) -> None:
        """Kill a running command, by another command, since the agent has no call for that."""
        if self._found is None:
            self._found = Status(exited=True, signal=signal.SIGKILL)
            with contextlib.suppress(DriverError):
                await self._agent.begin(("kill", "-9", str(self._pid)))


def code_of(found: Status) -> int:
    """The exit code; 128 and the number after a signal."""
    return SIGNAL_BASE + found.signal if found.signal else found.exitcode


async def ask(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    command: str,
    arguments: Mapping[str, Any],
    kind: type[T],
) -> T:
    """Send a command and read its answer."""
    send(writer, command, arguments)
    await writer.drain()
    found: T = await answer(reader, kind)
    return found


def send(writer: asyncio.StreamWriter, command: str, arguments: Mapping[str, Any], *, before: bytes = b"") -> None:
    """Write a command."""
    writer.write(before + msgspec.json.encode({"execute": command, "arguments": arguments}) + b"\n")


async def answer(reader: asyncio.StreamReader, kind: type[Any]) -> Any:
    """Read a command's answer; raises DriverError with the reason for a failure."""
    message = msgspec.json.decode(await reader.readline(), type=dict[str, msgspec.Raw])
    if "error" in message:
        found = msgspec.json.decode(message["error"], type=dict[str, Any])
        raise DriverError(f"the guest agent refused: {found.get('desc') or found.get('class') or 'without a reason'}")
    if "return" not in message:
        raise ValueError("it answers with something else than an answer")
    return msgspec.json.decode(message["return"], type=kind)
