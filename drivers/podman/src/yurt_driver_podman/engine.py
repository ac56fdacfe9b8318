"""Connects to a podman engine: the `podman` package behind the shared `Engine`, and its queries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import aiohttp
from yurt.sdk.containers.address import EngineAddress
from yurt.sdk.containers.common import OWNER_LABEL
from yurt.sdk.containers.engine import Engine, EngineDown, failure
from yurt.sdk.containers.packages import import_whole
from yurt.sdk.driver import ExitResult, Fingerprint
from yurt.sdk.errors import Conflict, DriverError, NotFound, RecoverableError

from yurt_driver_podman import reports
from yurt_driver_podman.config import ENGINE, INSTALL, PluginConfig

API_VERSION = "4.0.0"
PREFIX = f"/v{API_VERSION}/libpod"
CONFLICTS = ("state improper", "can only kill running", "is not running", "being removed", "has dependent containers")
REMOVE_ROUNDS, REMOVE_WAIT_S = 20, 0.1
INSPECT_ROUNDS, INSPECT_WAIT_S = 5, 0.05
EVENTS = ["died", "remove"]
T = TypeVar("T")


class PodmanLibrary:
    """The `podman` package; imported in a thread, on first use."""

    def new_client(self, target: EngineAddress, timeout_s: float) -> Any:
        """The package's API client, which adds the version and the prefix to each path."""
        package = import_whole("podman.api.client")
        return package.APIClient(base_url=f"unix://{target.socket_path}", version=API_VERSION, timeout=timeout_s)

    def do(self, act: Callable[[Any], T], client: Any) -> T:
        """Call a client and translate its errors."""
        errors = import_whole("podman.errors")
        try:
            return act(client)
        except errors.APIError as error:
            status = error.response.status_code if error.response is not None else 500
            raise refusal(status, str(error.explanation or error)) from None
        except errors.PodmanError as error:
            raise OSError(str(error)) from None


def refusal(status: int, message: str) -> Exception:
    """The engine's error; podman answers 500 for a container in the wrong state."""
    is_conflict = any(words in message for words in CONFLICTS)
    return failure(ENGINE, 409 if is_conflict else status, message)


def new_engine(socket_path: str) -> Engine:
    """The engine at a socket."""
    return Engine(ENGINE, EngineAddress(f"unix://{socket_path}"), PodmanLibrary(), prefix=PREFIX, frees_execs=True)


def post(path: str, body: Any = None, query: Mapping[str, str] | None = None) -> Callable[[Any], Any]:
    """A call: post, and decode the answer."""

    def do(client: Any) -> Any:
        data = None if body is None else json.dumps(body)
        response = client.post(path, params=query, data=data, headers={"Content-Type": "application/json"})
        response.raise_for_status()
        return response.json() if response.content else None

    return do


def delete(path: str, query: Mapping[str, str] | None = None) -> Callable[[Any], None]:
    """A call: delete."""

    def do(client: Any) -> None:
        client.delete(path, params=query).raise_for_status()

    return do


def labelled(*labels: str) -> str:
    """The filter for objects with these labels."""
    return json.dumps({"label": list(labels)})


class PodmanCalls:
    """Calls on single containers."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def probe(self) -> None:
        """Check soon whether the engine answers."""
        await self.engine.ask("/version", is_urgent=True)

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        """Create a container; returns its id."""
        made = await self.engine.act(post("/containers/create", {**body, "name": name}), slow=True)
        return str(made["Id"])

    async def prepare(self, container_id: str) -> bool:
        """Create its namespaces and mounts, without starting a process."""
        await self.engine.act(post(f"/containers/{container_id}/init"), slow=True)
        return True

    async def start(self, container_id: str) -> None:
        """Start the container."""
        await self.engine.act(post(f"/containers/{container_id}/start"), slow=True)

    async def inspect(self, container_id: str) -> dict[str, Any]:
        """The engine's description of a container.

        It reads of the container's process, and answers 500 when that one ends meanwhile: then it is asked again.
        """
        for rounds_left in reversed(range(INSPECT_ROUNDS)):
            try:
                found: dict[str, Any] = await self.engine.ask(f"/containers/{container_id}/json")
            except RecoverableError as error:
                if isinstance(error, EngineDown) or not rounds_left:
                    raise
                await asyncio.sleep(INSPECT_WAIT_S)
            else:
                break
        return found

    async def kill(self, container_id: str, name: str) -> None:
        """Send a signal."""
        await self.engine.act(post(f"/containers/{container_id}/kill", query={"signal": name}))

    async def set_cores(self, container_id: str, cores: str) -> None:
        """Set the cores on which a running container may run."""
        await self.engine.act(post(f"/containers/{container_id}/update", {"cpu": {"cpus": cores}}))

    async def remove(self, container_id: str) -> None:
        """Kill and remove, with anonymous volumes; waits for a removal in progress.

        Containers that share its network must go first. They are given the time to, then they are taken along: without
        that network their tasks are lost, and their restart policies decide.
        """
        for attempt in range(REMOVE_ROUNDS):
            query = {"force": "true", "v": "true", "timeout": "0", "depend": str(attempt > REMOVE_ROUNDS / 2).lower()}
            try:
                await self.engine.act(delete(f"/containers/{container_id}", query), slow=True)
                return
            except NotFound:
                return
            except Conflict:
                await asyncio.sleep(REMOVE_WAIT_S)
        raise DriverError(f"container {container_id[:12]} cannot be removed; try: podman rm -f {container_id[:12]}")

    def result_of(self, inspected: Mapping[str, Any]) -> ExitResult | None:
        """The exit result of a container."""
        return reports.result_of(inspected)


class PodmanQueries:
    """Queries a podman engine about its health and its containers."""

    install = INSTALL
    restart = "look at the log of podman's service, and restart it: systemctl restart podman.socket"

    def __init__(self, engine: Engine, config: PluginConfig, socket: str) -> None:
        self.engine = engine
        self.config = config
        self.socket = socket
        self.info: Mapping[str, Any] = {}

    @property
    def owned(self) -> str:
        """The label of this client's containers."""
        return f"{OWNER_LABEL}={self.config.owner}"

    async def look(self) -> Fingerprint:
        """The fingerprint of a healthy engine."""
        self.info = await self.engine.ask("/info", is_urgent=True)
        return reports.healthy(self.info, self.config, self.socket)

    def events(self) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The stream of end events of this client's containers."""
        filters = json.dumps({"type": ["container"], "event": EVENTS, "label": [self.owned]})
        return self.engine.stream("GET", "/events", query={"stream": "true", "filters": filters})

    async def states(self) -> dict[str, str]:
        """All containers of this client, with their states."""
        listing = await self.engine.ask("/containers/json", {"all": "true", "filters": labelled(self.owned)})
        return {str(each["Id"]): str(each.get("State", "")) for each in listing or ()}
