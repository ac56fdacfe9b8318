"""Creates containers for tasks: removes them when the caller gives up, and resolves name conflicts.

An engine cannot cancel the creation of a container. So the creation continues in the background, and its container is
removed when the caller no longer waits for it. A name in use is freed when it belongs to an ended run of the same task.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.common import LOGS_LABEL, NOMAD_LABEL, OWNER_LABEL, TASK_LABEL
from yurt.sdk.containers.tasks import Container
from yurt.sdk.driver import LogRotation, TaskRequest
from yurt.sdk.errors import Conflict, DriverError, NotFound, Reason, RecoverableError

FIRST_RETRY_S = 0.05


class CreationCalls(Protocol):
    """Engine calls for containers before they become tasks."""

    async def create(self, name: str, body: Mapping[str, Any]) -> str:
        """Create a container and return its id; the reason of a name conflict is IN_USE."""
        ...

    async def inspect(self, container_id: str) -> Mapping[str, Any]:
        """The engine's description of a container, by id or name."""
        ...

    async def remove(self, container_id: str) -> None:
        """Kill and remove a container."""
        ...


class ContainerCreator:
    """Creates the containers of one driver; `command` is the engine's command line program, for hints."""

    def __init__(
        self, calls: CreationCalls, background: DriverTasks, *, is_running: Callable[[str], bool], command: str
    ) -> None:
        self._calls = calls
        self._background = background
        self._is_running = is_running
        self._command = command

    async def make(self, request: TaskRequest, body: Mapping[str, Any], *, attempts: int) -> str:
        """Create the container of a task and return its id."""
        name = container_name(request)
        making = self._background.promise(
            "making of a container", lambda: self._create(name, request.task_id, body, attempts)
        )
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(self._undo)
            raise

    def _undo(self, made: asyncio.Future[str]) -> None:
        if not made.cancelled() and not made.exception():
            self.remove_in_background(made.result())

    def remove_in_background(self, container_id: str) -> None:
        """Remove in the background; the removal of dangling containers retries failures."""

        async def remove() -> None:
            with suppress(DriverError):
                await self._calls.remove(container_id)

        self._background.start("removal of a container", remove)

    async def _create(self, name: str, task_id: str, body: Mapping[str, Any], attempts: int) -> str:
        for attempt in range(max(1, attempts)):
            try:
                return await self._calls.create(name, body)
            except NotFound as error:
                raise RecoverableError(f"the container was not made: {error}") from None
            except (Conflict, DriverError) as error:
                if error.reason is not Reason.IN_USE:
                    raise DriverError(str(error)) from None if isinstance(error, Conflict) else error
                await self._clear_name(name, task_id)
                await asyncio.sleep(FIRST_RETRY_S * 2**attempt)
        raise RecoverableError(
            f'the name "{name}" is used by another container; remove it with: {self._command} rm -f {name}'
        )

    async def _clear_name(self, name: str, task_id: str) -> None:
        """Remove a container that an earlier run of the same task left; refuse any other.

        The table may still have its task, which could not be destroyed while the engine was unreachable.
        """
        try:
            found = await self._calls.inspect(name)
        except NotFound:
            return
        owner = str(((found.get("Config") or {}).get("Labels") or {}).get(TASK_LABEL, ""))
        is_same_task = owner.rpartition("/")[0] == task_id.rpartition("/")[0]
        if not owner or not is_same_task or self._is_running(str(found["Id"])):
            raise DriverError(f'the container name "{name}" is taken; remove it with: {self._command} rm -f {name}')
        await self._calls.remove(str(found["Id"]))


def container_name(request: TaskRequest) -> str:
    """The name of a container, as Nomad names it: `<task>-<alloc id>`."""
    return f"{request.task_name}-{request.alloc_id}"


def own_labels(request: TaskRequest, owner: str, is_selected: Callable[[str], bool]) -> dict[str, str]:
    """Nomad's labels, as chosen by `is_selected`, and the labels by which this client finds its containers."""
    facts = {
        "job_id": request.job_id,
        "job_name": request.job_id,
        "task_group_name": request.group_name,
        "task_name": request.task_name,
        "namespace": request.namespace,
    }
    labels = {name: value for name, value in facts.items() if is_selected(name)}
    nomad = {NOMAD_LABEL + name: value for name, value in {**labels, "alloc_id": request.alloc_id}.items()}
    record = {
        "folder": request.dirs.logs_dir,
        "task_name": request.task_name,
        "rotation": msgspec.to_builtins(request.logs),
        "cores": request.resources.reserved_cores,
        "cpuset_cpus": chosen_cores(request),
    }
    return {**nomad, TASK_LABEL: request.task_id, OWNER_LABEL: owner, LOGS_LABEL: json.dumps(record)}


def chosen_cores(request: TaskRequest) -> str:
    """The cores that the job chose without reserving them; "" without any, or where the driver has no such option."""
    return str(getattr(request.config, "cpuset_cpus", ""))


def container_of(
    inspected: Mapping[str, Any], address: str, rotation: Callable[[LogRotation], LogRotation]
) -> Container:
    """The container of a handle, from a container's labels."""
    record = json.loads(inspected["Config"]["Labels"].get(LOGS_LABEL, "{}"))
    return Container(
        container_id=str(inspected["Id"]),
        image_id=str(inspected["Image"]),
        logs_dir=str(record.get("folder", "")),
        task_name=str(record.get("task_name", "")),
        logs=rotation(msgspec.convert(record.get("rotation", {}), LogRotation)),
        is_terminal=bool(inspected["Config"].get("Tty")),
        address=address,
        cores=tuple(record["cores"]) if "cores" in record else None,
        cpuset_cpus=str(record.get("cpuset_cpus", "")),
    )
