"""CSI: tasks that are plugins, volumes that a group mounts, and plugins that are watched while they run."""

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
    """Gives a task that is a plugin the folders in which it listens and mounts."""

    name = "csi_plugin"

    def __init__(self, places: CsiFolders) -> None:
        self._places = places

    async def prepare(self, task: ClientTask) -> Additions | None:
        """Provide the folders and the path where the plugin listens."""
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
    """Has the first task of a group mount its volumes; the hook `volumes` gives them to the tasks that name them."""

    name = "csi_volumes"

    def __init__(self, volumes: CsiMounts) -> None:
        self._volumes = volumes

    async def prepare(self, task: ClientTask) -> Additions | None:
        """Mount them for the allocation, unless that was done."""
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
    """Looks after the tasks that are plugins and run."""

    name = "csi_plugins"

    def __init__(self, csi: Csi) -> None:
        self._plugins = csi.plugins

    def update(self, alloc: ClientAlloc) -> None:
        """Follow those that run now."""
        self._plugins.follow(alloc.alloc, alloc.group, alloc.running, alloc.restart)

    def finish(self, alloc: ClientAlloc) -> None:
        """The allocation is over: stop following its plugins."""
        self._plugins.follow(alloc.alloc, alloc.group, {}, alloc.restart)
