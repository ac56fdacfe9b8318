"""Runs a command in a container to its end, without input; returns its output, up to a bound, and its exit code."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from yurt.sdk.containers.engine import Engine, EngineDown
from yurt.sdk.containers.frames import StreamFrames
from yurt.sdk.driver import ExecResult
from yurt.sdk.errors import DriverError, NotFound
from yurt.sdk.value import NANOSECONDS, Duration

OUTPUT_BYTES_MAX = 8 * 1024 * 1024
END_LOOKS, END_LOOK_S = 50, 0.02
LOST_CODE = 137


async def execute(engine: Engine, exec_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
    """Run a created exec to its end, and kill it at its time limit."""
    try:
        async with asyncio.timeout(timeout / NANOSECONDS):
            output = await exec_output(engine, exec_id)
    except TimeoutError:
        await kill_exec(engine, exec_id)
        shown, limit_s = " ".join(command), timeout / NANOSECONDS
        raise DriverError(f'the command "{shown}" did not end within {limit_s:g} s and was killed') from None
    code = await exit_code(engine, exec_id)
    return ExecResult(exit_code=code, stdout=output["stdout"], stderr=output["stderr"])


def code_of(found: Mapping[str, Any], engine: Engine) -> int | None:
    """The exit code of an ended command; None while it runs, even where an engine reports a code."""
    code = found.get("ExitCode")
    has_ended = found.get("CanRemove") if engine.frees_execs else not found.get("Running")
    return int(code) if has_ended and code is not None else None


async def exit_code(engine: Engine, exec_id: str) -> int:
    """The exit code of a command whose output has ended; the engine reports it slightly later."""
    for _ in range(END_LOOKS):
        with suppress(EngineDown, NotFound):
            code = code_of(await engine.ask(f"/exec/{exec_id}/json"), engine)
            if code is not None:
                return code
        await asyncio.sleep(END_LOOK_S)
    return LOST_CODE


async def exec_output(engine: Engine, exec_id: str) -> dict[str, bytes]:
    """Start a created exec and read its output up to a bound."""
    frames = StreamFrames(is_terminal=False, has_stamps=False)
    output = {"stdout": bytearray(), "stderr": bytearray()}
    async with engine.stream("POST", f"/exec/{exec_id}/start", body={"Detach": False, "Tty": False}) as response:
        async for data in response.content.iter_any():
            for piece in frames.feed(data):
                buffer = output[piece.stream]
                buffer += piece.data[: OUTPUT_BYTES_MAX - len(buffer)]
    return {name: bytes(data) for name, data in output.items()}


async def kill_exec(engine: Engine, exec_id: str) -> None:
    """Kill a running command by its pid, since engines have no call for it; works on the engine's machine only."""
    with suppress(NotFound, EngineDown, OSError):
        found = await engine.ask(f"/exec/{exec_id}/json")
        if found.get("Running") and found.get("Pid") and engine.target.socket_path:
            os.kill(int(found["Pid"]), signal.SIGKILL)
