"""Single acts on a container."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from yurt.sdk.containers.engine import Engine
from yurt.sdk.errors import Conflict, DriverError, NotFound

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


async def prepare_exec(
    engine: Engine, container_id: str, command: tuple[str, ...], *, tty: bool = False, has_input: bool = False
) -> str:
    """Tell the engine of a command that will run in a container; the id under which it is started."""
    if not command:
        raise DriverError("there is no command to run; name one")
    try:
        made = await engine.act(
            lambda client: client.exec_create(container_id, list(command), stdin=has_input, tty=tty)
        )
    except Conflict as error:
        raise DriverError(f"the task does not run: {error}") from None
    return str(made["Id"])
