"""The volumes hook: mounts the folders of host volumes and CSI volumes in a task.

A task that writes to a host volume starts once no other one writes there that excludes it (`volumes.writers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from yurt.client.hooks.ending_tasks import EndingTask, wait_left
from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.client.volumes.host_volumes import DynamicHostVolumes
from yurt.client.volumes.mounts import VolumesThere, absent_paths, mounts_of
from yurt.client.volumes.writers import VolumeWriters
from yurt.lifecycle import events
from yurt.runtime.env import Env
from yurt.sdk.driver import Mount
from yurt.sdk.errors import Invalid
from yurt.sdk.hooks import Additions, TaskHookOf
from yurt.structs.node import Node


class VolumesHook(TaskHookOf[ClientTask]):
    """Adds a task's `volume_mount` blocks to its run, and checks that all of its mounts exist."""

    name = "volumes"

    def __init__(
        self, volumes: DynamicHostVolumes, writers: VolumeWriters, node: Callable[[], Node], *, env: Env
    ) -> None:
        self._volumes = volumes
        self._writers = writers
        self._node = node
        self._env = env

    async def prepare(self, task: ClientTask) -> Additions | None:
        """Return the mounts of the task's volumes, once it may write to them."""
        await self._wait_free(task)
        spec = task.spec
        try:
            mounts = mounts_of(
                spec.task,
                spec.group,
                alloc=spec.alloc,
                driver=task.driver,
                there=VolumesThere(host=self._node().host_volumes, csi=task.csi_folders),
                lookup=task.lookup,
            )
        except Invalid as error:
            raise SetupProblem(events.failed_validation(str(error))) from None
        await self._check(mounts, task.given.mounts)
        return Additions(mounts=mounts) if mounts else None

    async def _wait_free(self, task: ClientTask) -> None:
        """Wait until tasks that are being stopped have left the volumes; raises SetupProblem."""

        def find() -> tuple[EndingTask, str] | None:
            found = self._writers.before(task.spec.alloc, task.name, is_first_run=task.run == 0)
            return None if found is None else (found[0], f'host volume "{found[1]}"')

        await wait_left(task, self._env, find, event=events.task_setup)

    async def _check(self, of_volumes: tuple[Mount, ...], of_hooks: tuple[Mount, ...]) -> None:
        mounts = (*of_volumes, *of_hooks)
        if not mounts:
            return
        paths = tuple(mount.host_path for mount in mounts)
        try:
            await asyncio.to_thread(self._volumes.check_mounts, paths)
        except Invalid as error:
            raise SetupProblem(events.setup_failure(str(error)), is_recoverable=True) from None
        absent = await asyncio.to_thread(absent_paths, mounts)
        if absent:
            path, given = absent[0], {mount.host_path for mount in of_hooks}
            owner = "that a hook gives the task" if path in given else "of a host volume"
            text = f"the folder {path} {owner} is not on this node; make it, or mount what holds it"
            raise SetupProblem(events.setup_failure(text), is_recoverable=True)
