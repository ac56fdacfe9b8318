"""Single acts on a container."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any

from yurt.sdk.containers.engine import Engine, EngineDown
from yurt.sdk.driver import ExecResult
from yurt.sdk.errors import Conflict, DriverError, NotFound
from yurt.sdk.value import NANOSECONDS, Duration

from yurt_driver_docker.frames import Frames

OUTPUT_BYTES_MAX = 8 * 1024 * 1024
REMOVE_ROUNDS, REMOVE_WAIT_S = 20, 0.1


async def inspect(engine: Engine, container_id: str) -> dict[str, Any]:
    """What the engine knows of a container."""
    found: dict[str, Any] = await engine.ask(f"/containers/{container_id}/json")
    return found


async def kill(engine: Engine, container_id: str, name: str) -> None:
    """Send a signal."""
    await engine.act(lambda client: client.kill(container_id, signal=name))


async def remove(engine: Engine, container_id: str) -> None:
    """Kill and remove, with anonymous volumes; waits for a removal that is under way."""
    for _ in range(REMOVE_ROUNDS):
        try:
            await engine.act(lambda client: client.remove_container(container_id, v=True, force=True), slow=True)
            return
        except NotFound:
            return
        except Conflict:
            await asyncio.sleep(REMOVE_WAIT_S)
    raise DriverError(f"container {container_id[:12]} cannot be removed; look at the log of dockerd")


async def remove_quietly(engine: Engine, container_id: str) -> None:
    """Remove what nobody waits for; what stays is found by the removal of dangling containers."""
    with suppress(DriverError):
        await remove(engine, container_id)


async def execute(engine: Engine, container_id: str, command: tuple[str, ...], *, timeout: Duration) -> ExecResult:
    """Run a command in a container, and kill it when it takes too long."""
    if not command:
        raise DriverError("there is no command to run; name one")
    try:
        made = await engine.act(lambda client: client.exec_create(container_id, list(command)))
    except Conflict as error:
        raise DriverError(f"the task does not run: {error}") from None
    exec_id = str(made["Id"])
    try:
        async with asyncio.timeout(timeout / NANOSECONDS):
            output = await exec_output(engine, exec_id)
    except TimeoutError:
        await kill_exec(engine, exec_id)
        shown, limit_s = " ".join(command), timeout / NANOSECONDS
        raise DriverError(f'the command "{shown}" did not end within {limit_s:g} s and was killed') from None
    code = (await engine.ask(f"/exec/{exec_id}/json")).get("ExitCode")
    return ExecResult(exit_code=int(code or 0), stdout=output["stdout"], stderr=output["stderr"])


async def exec_output(engine: Engine, exec_id: str) -> dict[str, bytes]:
    """Start a prepared command and read all that it writes, up to a bound."""
    frames = Frames(is_terminal=False, has_stamps=False)
    output = {"stdout": bytearray(), "stderr": bytearray()}
    async with engine.stream("POST", f"/exec/{exec_id}/start", body={"Detach": False, "Tty": False}) as response:
        async for data in response.content.iter_any():
            for piece in frames.feed(data):
                kept = output[piece.stream]
                kept += piece.data[: OUTPUT_BYTES_MAX - len(kept)]
    return {name: bytes(data) for name, data in output.items()}


async def kill_exec(engine: Engine, exec_id: str) -> None:
    """Kill a command that still runs; the engine has no call for it, so this works on the engine's machine only."""
    with suppress(NotFound, EngineDown, OSError):
        found = await engine.ask(f"/exec/{exec_id}/json")
        if found.get("Running") and found.get("Pid") and engine.target.socket_path:
            os.kill(int(found["Pid"]), signal.SIGKILL)
