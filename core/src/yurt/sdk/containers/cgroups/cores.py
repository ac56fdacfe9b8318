"""Keeps containers off the cores that other tasks reserve, through the engine.

A container starts on all cores that its engine allows and leaves the reserved ones as soon as it runs: not every engine
changes a container before that. The engine's own call is used, because a service manager that applies the container's
settings again would undo a list that is written into the cgroup. Each container has at most one call at a time, which
is repeated until the list is the newest. What an unreachable engine did not take is sent when it lists its containers
again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable
from functools import partial

from yurt.sdk.containers.background import DriverTasks
from yurt.sdk.containers.cgroups import ContainerCgroup
from yurt.sdk.containers.engine import EngineDown
from yurt.sdk.core_partitions import CorePartitions, CoreSharer
from yurt.sdk.errors import Conflict, DriverError, NotFound

log = logging.getLogger(__name__)

SetCores = Callable[[str, str], Awaitable[None]]
"""Sets the cores of a container, as a list such as `0,2-3`."""


class ContainerCores:
    """The containers of one engine of this machine, in the partitions that all drivers share."""

    def __init__(self, partitions: CorePartitions, set_cores: SetCores, background: DriverTasks) -> None:
        self._partitions = partitions
        self._set_cores = set_cores
        self._background = background
        self._wanted: dict[str, tuple[int, ...]] = {}
        """The newest list of each container that is being changed."""
        self._unsent: dict[str, tuple[str, tuple[int, ...]]] = {}
        """The folder and list of each container whose engine could not be reached."""
        self._keys: set[str] = set()
        self._refused: set[str] = set()
        """The containers whose list the engine did not take; each is logged once."""

    def reserve(self, task_id: str, cores: tuple[int, ...]) -> None:
        """Take the cores of a task from the others before it starts."""
        if cores:
            self._keys.add(task_id)
            self._partitions.reserve(self._key(task_id), cores)
            self._partitions.write()

    def add(
        self, task_id: str, container_id: str, cgroup: ContainerCgroup, chosen: frozenset[int], *, is_new: bool = True
    ) -> None:
        """Count a running container without reserved cores; `chosen` are those of its job, empty for all.

        One of an earlier agent keeps its list until the next change or list of the engine: the task whose cores it
        leaves may not be found again yet.
        """
        allowed = cgroup.allowed_cores()
        cores = chosen & allowed or allowed
        member = CoreSharer(cores=cores, write=partial(self._put, container_id, cgroup.cpuset))
        has = cgroup.listed_cores()
        if has is None and not self._partitions.reserved:
            has = self._partitions.share(cores)  # Its list cannot be seen, and need not have one.
        self._keys.add(task_id)
        self._partitions.join(self._key(task_id), member, has)
        if is_new:
            self._partitions.write()

    def release(self, task_id: str) -> None:
        """Forget a task that has ended or was not started."""
        if task_id in self._keys:
            self._keys.discard(task_id)
            self._partitions.leave(self._key(task_id))
            self._partitions.write()

    def close(self) -> None:
        """Forget all tasks; containers continue as they are."""
        for task_id in self._keys:
            self._partitions.leave(self._key(task_id))
        self._keys.clear()
        self._unsent.clear()

    def send_again(self) -> None:
        """Send the lists that wait: the engine answers, and tasks of an earlier agent have been found."""
        self._partitions.write()
        unsent, self._unsent = self._unsent, {}
        for container_id, (folder, cores) in unsent.items():
            self._put(container_id, folder, cores)

    def _key(self, task_id: str) -> str:
        return f"{self._background.owner}:{task_id}"

    def _put(self, container_id: str, folder: str, cores: tuple[int, ...]) -> bool:
        is_running = container_id in self._wanted
        self._wanted[container_id] = cores
        self._unsent.pop(container_id, None)
        if not is_running:
            self._background.start("cores of a container", lambda: self._change(container_id, folder))
        return True

    async def _change(self, container_id: str, folder: str) -> None:
        """Make calls until the container has its newest list, or the engine refuses."""
        try:
            done: tuple[int, ...] = ()
            while (cores := self._wanted[container_id]) != done:
                await self._set_cores(container_id, ",".join(map(str, cores)))
                done = cores
            self._refused.discard(container_id)
        except EngineDown:
            self._unsent[container_id] = folder, self._wanted[container_id]
        except (NotFound, Conflict, DriverError) as error:
            self._log_refusal(container_id, folder, error)
        finally:
            del self._wanted[container_id]

    def _log_refusal(self, container_id: str, folder: str, error: Exception) -> None:
        if container_id not in self._refused and os.path.isdir(folder):  # Otherwise the container has ended.
            self._refused.add(container_id)
            log.warning(
                "cores of a container cannot be set; it may run on cores that other tasks reserve: "
                "driver=%s container=%s error=%s", self._background.owner, container_id[:12], error,
            )  # fmt: skip
