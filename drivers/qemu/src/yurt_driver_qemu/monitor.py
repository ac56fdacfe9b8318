"""A client of QEMU's machine protocol (QMP), with the calls to press a virtual machine's power button."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import msgspec
from yurt.sdk.errors import DriverError

ANSWER_LIMIT_S = 5.0
LINES_MAX = 100
LINE_BYTES_MAX = 64 * 1024


async def press_power_button(socket_path: str) -> None:
    """Request a shutdown of the guest by ACPI; raises DriverError when the emulator does not answer."""
    try:
        async with asyncio.timeout(ANSWER_LIMIT_S):
            await converse(socket_path, ("qmp_capabilities", "system_powerdown"))
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error) or f"no answer within {ANSWER_LIMIT_S:g} s"
        raise DriverError(f"the monitor of the virtual machine cannot be reached: {reason}") from None


async def connect(
    socket_path: str, *, limit: int = LINE_BYTES_MAX
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to a socket of the emulator; `limit` bounds a line."""
    folder = os.open(os.path.dirname(socket_path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:  # The way through /proc has no limit to its length, as a socket's own path has.
        short = f"/proc/self/fd/{folder}/{os.path.basename(socket_path)}"
        where = short if sys.platform == "linux" else socket_path
        return await asyncio.open_unix_connection(where, limit=limit)
    finally:
        os.close(folder)


async def converse(socket_path: str, commands: tuple[str, ...]) -> None:
    """Connect and execute commands."""
    reader, writer = await connect(socket_path)
    try:
        await answer_with(reader, "QMP")
        for command in commands:
            writer.write(msgspec.json.encode({"execute": command}) + b"\n")
            await writer.drain()
            await answer_with(reader, "return")
    finally:
        writer.close()


async def answer_with(reader: asyncio.StreamReader, key: str) -> None:
    """Read up to an answer with this key, skipping events; raises ValueError for an error."""
    for _ in range(LINES_MAX):
        line = await reader.readline()
        if not line:
            raise ValueError("it closed the connection")
        message: dict[str, Any] = msgspec.json.decode(line, type=dict[str, Any])
        if "error" in message:
            raise ValueError(str(message["error"].get("desc", "refused")))
        if key in message:
            return
    raise ValueError("it talks without an answer")
