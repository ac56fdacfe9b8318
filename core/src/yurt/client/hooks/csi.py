"""The CSI hooks: folders for plugin tasks, the volumes of a group, and the supervision of running plugins."""

from __future__ import annotations

import asyncio

from yurt.client.allocations.client_alloc import ClientAlloc
from yurt.client.csi.manager import Csi
from yurt.client.csi.paths import CsiFolders, make_folders
from yurt.client.csi.volumes import CsiMounts, csi_requests, is_lasting
from yurt.client.tasks.client_task import ClientTask, SetupProblem
from yurt.client.timed_waits import value_unless
from yurt.lifecycle import events
from yurt.sdk.errors import Invalid, YurtError
from yurt.sdk.hooks import Additions, AllocHookOf, TaskHookOf

UNMOUNTING = "Tasks have ended, volumes are being unmounted"


class CsiPluginHook(TaskHookOf[ClientTask]):
    """Adds the folders in which a plugin task listens and mounts to its run."""

    name = "csi_plugin"

    def __init__(self, places: CsiFolders) -> None:
        self._places = places

    async def prepare(self, task: ClientTask) -> Additions | None:
        """Make the folders and return the plugin's socket path and mounts."""
        block = task.spec.task.csi_plugin_config
        if block is None:
            return None
        try:
            place = self._places.of_task(task.spec.alloc.id, task.name, block, task.driver)
        except Invalid as error:
            raise SetupProblem(events.failed_validation(str(error))) from None
        await asyncio.to_thread(make_folders, place.folders)
        return Additions(fixed_env=place.env, mounts=place.mounts)


class TaskCsiVolumesHook(TaskHookOf[ClientTask]):
    """Mounts the volumes of a group before its first task; the hook `volumes` then mounts them in each task."""

    name = "csi_volumes"

    def __init__(self, volumes: CsiMounts) -> None:
        self._volumes = volumes

    async def prepare(self, task: ClientTask) -> Additions | None:
        """Mount the group's volumes for the allocation, unless they are mounted."""
        spec = task.spec
        if not csi_requests(spec.group):
            return None
        mounting = self._volumes.publish(spec.alloc, spec.group, lambda text: task.note(events.task_setup(text)))
        try:
            task.csi_folders = await value_unless(task.killed, mounting) or {}
        except YurtError as error:
            failure = events.setup_failure(str(error))
            raise SetupProblem(failure, is_recoverable=not is_lasting(error)) from None
        return None


class AllocCsiVolumesHook(AllocHookOf[ClientAlloc]):
    """Unmounts the volumes of an allocation whose tasks have ended."""

    name = "csi_volumes"

    def __init__(self, volumes: CsiMounts) -> None:
        self._volumes = volumes

    async def exited(self, alloc: ClientAlloc) -> None:
        """Unmount the volumes before the end is reported, because the servers then free them."""
        if self._volumes.has(alloc.id):
            alloc.report_still_running(UNMOUNTING)
            await self._volumes.release(alloc.id)


class CsiPluginsHook(AllocHookOf[ClientAlloc]):
    """Supervises the running plugin tasks of each allocation."""

    name = "csi_plugins"

    def __init__(self, csi: Csi) -> None:
        self._plugins = csi.plugins

    def update(self, alloc: ClientAlloc) -> None:
        """Follow the plugin tasks that run now."""
        self._plugins.follow(alloc.alloc, alloc.group, alloc.running, alloc.restart)

    def finish(self, alloc: ClientAlloc) -> None:
        """Stop following the plugins of an allocation that is over."""
        self._plugins.follow(alloc.alloc, alloc.group, {}, alloc.restart)
