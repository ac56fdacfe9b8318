"""Keeps containers off the cores that other tasks reserve, through the engine.

A container starts on all cores that its engine allows and leaves the reserved ones as soon as it runs: not every engine
changes a container before that. The engine's own call is used, because a service manager that applies the container's
settings again would undo a list that is written into the cgroup.

Each container has at most one call at a time, which is repeated until the list is the newest, and an engine has few:
its other calls use the same threads. A list that takes cores away is sent at once. One that only gives cores waits a
moment, because the next short task may take them again. What the engine did not take for now is sent when it lists its
containers again; what it refuses for good is not tried again before the next change.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from yurt.sdk.containers.background import DriverTasks, is_set_within
from yurt.sdk.containers.cgroups import ContainerCgroup, parse_cores, read_text
from yurt.sdk.containers.engine import EngineDown
from yurt.sdk.core_partitions import CorePartitions, CoreSharer
from yurt.sdk.errors import Conflict, DriverError, NotFound, RecoverableError

log = logging.getLogger(__name__)

CALLS_MAX = 2
WIDEN_DELAY_S = 1.0

SetCores = Callable[[str, str], Awaitable[None]]
"""Sets the cores of a container, as a list such as `0,2-3`."""


class SharingContainer:
    """A running container without reserved cores, and the lists that its engine took, shall get and did not take."""

    def __init__(self, container_id: str, folder: str, has: tuple[int, ...]) -> None:
        self.id = container_id
        self.folder = folder
        self.has = has
        """The list that it has; empty when unknown."""
        self.wanted = has
        """The newest list."""
        self.loses = asyncio.Event()
        """The newest list takes cores away."""
        self.refused: tuple[int, ...] = ()
        """The last list that the engine refused for good."""
        self.is_changing = False
        self.is_unsent = False
        """The engine did not take a list for now."""
        self.is_logged = False
        """It was logged that a list was not taken."""

    @property
    def needs_call(self) -> bool:
        """Whether the engine has not been told the newest list."""
        return self.wanted not in (self.has, self.refused) and not self.is_unsent

    @property
    def is_narrowed(self) -> bool:
        """Whether the newest list takes cores away."""
        return not self.has or not set(self.has) <= set(self.wanted)


class ContainerCores:
    """The containers of one engine of this machine, in the partitions that all drivers share."""

    def __init__(
        self, partitions: CorePartitions, set_cores: SetCores, background: DriverTasks, *, folder: str = ""
    ) -> None:
        """`folder` keeps what containers of older versions do not tell; "" for nothing."""
        self._partitions = partitions
        self._set_cores = set_cores
        self._background = background
        self._folder = folder
        self._calls = asyncio.Semaphore(CALLS_MAX)
        self._sharing: dict[str, SharingContainer] = {}
        """By the id of their tasks."""
        self._keys: set[str] = set()

    def reserve(self, task_id: str, cores: tuple[int, ...]) -> None:
        """Take the cores of a task from the others before it starts."""
        if cores:
            self._keys.add(task_id)
            self._partitions.reserve(self._key(task_id), cores)
            self._partitions.write()

    def add(self, task_id: str, container_id: str, cgroup: ContainerCgroup, chosen: frozenset[int]) -> None:
        """Count a running container without reserved cores; `chosen` are those of its job, empty for all.

        One whose cgroup is not seen here runs on another machine, and is not counted.
        """
        if not cgroup.cpuset:
            return
        allowed = cgroup.allowed_cores()
        cores = chosen & allowed or allowed
        has = cgroup.listed_cores()
        if has is None and not self._partitions.reserved:
            has = self._partitions.share(cores)  # Without a cpuset nothing has changed its list.
        self._sharing[task_id] = container = SharingContainer(container_id, cgroup.cpuset, has or ())
        self._keys.add(task_id)
        self._partitions.join(self._key(task_id), CoreSharer(cores=cores, write=partial(self._put, container)), has)
        self._partitions.write()

    def first_list(self, container_id: str, cgroup: ContainerCgroup) -> frozenset[int]:
        """The cores that a container of an older version had when it was first found, which are those of its job.

        That version changed no lists, and later ones do: so the first list is recorded, and read from then on.
        """
        path = os.path.join(self._folder, container_id)
        if self._folder and not read_text(path):
            listed = ",".join(map(str, cgroup.listed_cores() or ()))
            with suppress(OSError):
                os.makedirs(self._folder, exist_ok=True)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(listed)
        return parse_cores(read_text(path)) if self._folder else frozenset()

    def forget_first_list(self, container_id: str) -> None:
        """Forget the list of a container that is removed."""
        if self._folder:
            with suppress(OSError):
                os.unlink(os.path.join(self._folder, container_id))

    def release(self, task_id: str) -> None:
        """Forget a task that has ended or was not started."""
        ended = self._sharing.pop(task_id, None)
        if ended is not None:
            ended.wanted = ended.has
        if task_id in self._keys:
            self._keys.discard(task_id)
            self._partitions.leave(self._key(task_id))
            self._partitions.write()

    def close(self) -> None:
        """Forget all tasks; containers continue as they are."""
        for task_id in self._keys:
            self._partitions.leave(self._key(task_id))
        self._keys.clear()
        self._sharing.clear()

    def send_again(self) -> None:
        """Send the lists that the engine did not take for now: it answers again."""
        for container in self._sharing.values():
            if container.is_unsent:
                self._put(container, container.wanted)

    def _key(self, task_id: str) -> str:
        return f"{self._background.owner}:{task_id}"

    def _put(self, container: SharingContainer, cores: tuple[int, ...]) -> bool:
        container.wanted, container.is_unsent = cores, False
        if container.is_narrowed:
            container.loses.set()
        if not container.is_changing:
            container.is_changing = True
            self._background.start("cores of a container", lambda: self._change(container))
        return True

    async def _change(self, container: SharingContainer) -> None:
        """Make calls until the container has its newest list, or the engine does not take it."""
        try:
            while container.needs_call:
                await self._wait_widening(container)
                async with self._calls:
                    await self._send(container)
        finally:
            container.is_changing = False

    async def _wait_widening(self, container: SharingContainer) -> None:
        """Wait a moment before a list that only gives cores; one that takes some ends the wait."""
        if not container.is_narrowed:
            container.loses.clear()
            await is_set_within(container.loses, WIDEN_DELAY_S)

    async def _send(self, container: SharingContainer) -> None:
        """Send the newest list, unless the container has it by now."""
        if not container.needs_call:
            return
        cores = container.wanted
        try:
            await self._set_cores(container.id, ",".join(map(str, cores)))
        except EngineDown:
            container.is_unsent = True
        except (RecoverableError, Conflict) as error:
            container.is_unsent = True
            self._log_refusal(container, error)
        except (NotFound, DriverError) as error:
            container.refused = cores
            self._log_refusal(container, error)
        else:
            container.has, container.refused, container.is_logged = cores, (), False

    def _log_refusal(self, container: SharingContainer, error: Exception) -> None:
        if not container.is_logged and os.path.isdir(container.folder):  # Otherwise the container has ended.
            container.is_logged = True
            log.warning(
                "cores of a container cannot be set; it may run on cores that other tasks reserve: "
                "driver=%s container=%s error=%s", self._background.owner, container.id[:12], error,
            )  # fmt: skip
