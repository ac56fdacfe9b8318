"""Calls of a Docker engine on single containers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from yurt.sdk.containers.engine import Engine
from yurt.sdk.driver import ExitResult
from yurt.sdk.errors import Conflict, DriverError, NotFound

from yurt_driver_docker import reports

REMOVE_ROUNDS, REMOVE_WAIT_S = 20, 0.1


class DockerCalls:
    """Makes calls with the `docker` package; queries go directly to the API."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def probe(self) -> None:
        """Check soon whether the engine answers."""
        await self.engine.ask("/version", is_urgent=True)

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        """Create a container; returns its id."""
        made = await self.engine.act(lambda client: client.create_container_from_config(body, name), slow=True)
        return str(made["Id"])

    async def prepare(self, container_id: str) -> bool:
        """Does nothing: this engine creates a container's namespaces and mounts only when it starts."""
        return False

    async def start(self, container_id: str) -> None:
        """Start the container."""
        await self.engine.act(lambda client: client.start(container_id), slow=True)

    async def inspect(self, container_id: str) -> dict[str, Any]:
        """The engine's description of a container."""
        found: dict[str, Any] = await self.engine.ask(f"/containers/{container_id}/json")
        return found

    async def kill(self, container_id: str, name: str) -> None:
        """Send a signal."""
        await self.engine.act(lambda client: client.kill(container_id, signal=name))

    async def set_cores(self, container_id: str, cores: str) -> None:
        """Set the cores on which a container may run."""
        await self.engine.act(lambda client: client.update_container(container_id, cpuset_cpus=cores))

    async def remove(self, container_id: str) -> None:
        """Kill and remove, with anonymous volumes; waits for a removal in progress."""
        for _ in range(REMOVE_ROUNDS):
            try:
                await self.engine.act(
                    lambda client: client.remove_container(container_id, v=True, force=True), slow=True
                )
                return
            except NotFound:
                return
            except Conflict:
                await asyncio.sleep(REMOVE_WAIT_S)
        raise DriverError(f"container {container_id[:12]} cannot be removed; look at the log of dockerd")

    def result_of(self, inspected: Mapping[str, Any]) -> ExitResult | None:
        """The exit result of a container; None while it runs."""
        return reports.exit_result(inspected) if reports.has_ended(inspected) else None

    async def prepare_exec(
        self, container_id: str, command: tuple[str, ...], *, tty: bool = False, has_input: bool = False
    ) -> str:
        """Create an exec for a command in a container; returns its id."""
        if not command:
            raise DriverError("the command is empty; name a command to run")
        try:
            made = await self.engine.act(
                lambda client: client.exec_create(container_id, list(command), stdin=has_input, tty=tty)
            )
        except Conflict as error:
            raise DriverError(f"the task does not run: {error}") from None
        return str(made["Id"])
