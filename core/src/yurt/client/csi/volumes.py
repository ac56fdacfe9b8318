"""Mounts CSI volumes for the allocations of this node.

    claimed -record of the intent-> staged -> published, a task may start
    all tasks over -> unpublished -> unstaged by its last user here -> record gone, the end is reported

The servers free a claim when its allocation is reported as ended, so an allocation with a mounted volume is not
reported as ended. A plugin that cannot be reached for UNDO_LIMIT_S does not delay the end further: the client then
unmounts by itself. It does not wait for a plugin without a task here when nothing is mounted. Every step may be
repeated, as CSI requires of plugins; a restarted agent continues from the records.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from weakref import WeakValueDictionary

from yurt.client.csi.mounts import is_mounted, remove_folders, unmount
from yurt.client.csi.paths import CsiFolders, make_folders
from yurt.client.csi.plugins import CsiPlugins, CsiPluginTask
from yurt.client.ports import ServerPort
from yurt.client.timed_waits import wait_or_sleep
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import DriverError, Invalid, PermissionDenied, RecoverableError, Unavailable, YurtError
from yurt.storage.client_db import ClientDatabase, CsiUse
from yurt.structs.alloc import Allocation
from yurt.structs.job import TaskGroup
from yurt.structs.volumes.csi import BLOCK_DEVICE, CSIClaimed, CSIClaimQuery

CSI = "csi"
PLUGIN_LIMIT_S = 60.0
"""The longest wait for a plugin before the start of a task fails and its restart policy applies."""
CLAIM_AGAIN_S = 1.0
UNDO_LIMIT_S = 30.0
UNDO_AGAIN_S = 1.0

log = logging.getLogger(__name__)


class CsiMounts:
    """Mounts volumes for allocations, and unmounts them."""

    def __init__(
        self,
        plugins: CsiPlugins,
        places: CsiFolders,
        env: Env,
        *,
        store: ClientDatabase,
        server: ServerPort,
        group: asyncio.TaskGroup,
    ) -> None:
        self._env, self._places, self._plugins = env, places, plugins
        self._store, self._server, self._group = store, server, group
        self._uses: dict[tuple[str, str], CsiUse] = {}
        self._locks: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()

    @property
    def uses(self) -> tuple[CsiUse, ...]:
        """The volumes that are mounted or being mounted."""
        return tuple(self._uses.values())

    def has(self, alloc_id: str) -> bool:
        """Whether a volume is mounted or being mounted for an allocation."""
        return any(use.alloc_id == alloc_id for use in self._uses.values())

    async def open(self, living: set[str]) -> None:
        """Read an earlier agent's records, and unmount volumes of allocations that are not among `living`."""
        self._uses = {(use.alloc_id, use.volume): use for use in await self._store.csi_uses()}
        for alloc_id in {use.alloc_id for use in self._uses.values()} - living:
            supervised(self._group, f"CSI volumes of {alloc_id[:8]}", self.release(alloc_id))

    async def publish(self, alloc: Allocation, group: TaskGroup, note: Callable[[str], None]) -> Mapping[str, str]:
        """Mount the group's volumes; returns their folders on the host by their names in the group.

        Waits while others hold a volume. Raises YurtError; only after a RecoverableError a retry may help.
        """
        return {name: await self._published(alloc, name, note) for name in csi_requests(group)}

    async def _published(self, alloc: Allocation, name: str, note: Callable[[str], None]) -> str:
        async with self._lock(alloc.id, name):
            use = self._uses.get((alloc.id, name))
            if use is not None:
                target = self._target(use)
                if await asyncio.to_thread(is_mounted, target):
                    return str(target)
            volume = await self._claimed(alloc, name, note)
            if volume.attachment_mode == BLOCK_DEVICE:
                raise Invalid(f"volume {name!r}: block-device is not available in this version; use file-system")
            return str(await self._mount(volume, alloc.id, name))

    async def _claimed(self, alloc: Allocation, name: str, note: Callable[[str], None]) -> CSIClaimed:
        query = CSIClaimQuery(node_id=alloc.node_id, alloc_id=alloc.id, volume=name)
        said = ""
        while True:
            try:
                return await self._server.claim_csi_volume(query)
            except Unavailable as error:
                if str(error) != said:
                    said = str(error)
                    note(f"Waiting for volume {name}: {said}")
            await self._env.sleep(CLAIM_AGAIN_S)

    async def _mount(self, volume: CSIClaimed, alloc_id: str, name: str) -> Path:
        task, is_staged = await self._plugin(volume.plugin_id)
        use = CsiUse(
            alloc_id=alloc_id, volume=name, id=volume.id, namespace=volume.namespace, external_id=volume.external_id,
            plugin_id=volume.plugin_id,
        )  # fmt: skip
        staging, target = self._staging(use), self._target(use)
        async with self._lock(use.namespace, use.id):
            await self._remember({**self._uses, (alloc_id, name): use})
            await asyncio.to_thread(make_folders, (staging, target.parent))
            staging_seen = self._places.path_in_plugin(task.block, staging, task.driver) if is_staged else ""
            if is_staged:
                await task.service.stage(volume, staging_seen)
            target_seen = self._places.path_in_plugin(task.block, target, task.driver)
            await task.service.publish(volume, staging=staging_seen, target=target_seen)
        if not await asyncio.to_thread(os.path.isdir, target):
            raise RecoverableError(f"CSI plugin {volume.plugin_id} has mounted volume {volume.id}, but not at {target}")
        return target

    async def _plugin(self, plugin_id: str) -> tuple[CsiPluginTask, bool]:
        limit_s = self._env.monotonic() + PLUGIN_LIMIT_S
        while True:
            changed, found = self._plugins.changed, self._plugins.mounting(plugin_id)
            if found is not None:
                return found
            left_s = limit_s - self._env.monotonic()
            if left_s <= 0:
                raise RecoverableError(f"CSI plugin {plugin_id} is not healthy on this node")
            await wait_or_sleep(self._env, changed, left_s)

    async def release(self, alloc_id: str) -> None:
        """Unmount all volumes of an allocation; without the plugin when it exceeds the time limit."""
        uses = [use for use in self._uses.values() if use.alloc_id == alloc_id]
        for use in uses:
            async with self._lock(use.alloc_id, use.volume):
                await self._release(use)

    async def _release(self, use: CsiUse) -> None:
        limit_s = self._env.monotonic() + UNDO_LIMIT_S
        while True:
            try:
                async with self._lock(use.namespace, use.id):
                    await self._unmount(use)
                    return
            except YurtError as error:
                if await self._is_unmounted(use):
                    break
                if self._env.monotonic() >= limit_s:
                    text = "unmounting volume without its plugin: volume=%s plugin=%s error=%s"
                    log.warning(text, use.id, use.plugin_id, error)
                    break
            await self._env.sleep(UNDO_AGAIN_S)
        async with self._lock(use.namespace, use.id):
            await asyncio.to_thread(_unmount_by_force, [self._target(use), *self._unused_staging(use)])
            await self._forget(use)

    async def _is_unmounted(self, use: CsiUse) -> bool:
        """Whether there is nothing to undo, and no task of the plugin here that could still mount the volume.

        So it is after a power failure. The plugin's next task may come once the node is ready, which it is once the
        ends of its allocations are reported.
        """
        if self._plugins.has_task(use.plugin_id):
            return False
        for path in (self._target(use), *self._unused_staging(use)):
            if await self._env.in_thread(is_mounted, path):
                return False
        return True

    async def _unmount(self, use: CsiUse) -> None:
        found = self._plugins.mounting(use.plugin_id)
        if found is None:
            raise Unavailable(f"CSI plugin {use.plugin_id} is not healthy on this node")
        task, is_staged = found
        target = self._target(use)
        await task.service.unpublish(use.external_id, self._places.path_in_plugin(task.block, target, task.driver))
        unused = self._unused_staging(use)
        for staging in unused if is_staged else ():
            await task.service.unstage(use.external_id, self._places.path_in_plugin(task.block, staging, task.driver))
        await asyncio.to_thread(remove_folders, [target, target.parent, *unused])
        await self._forget(use)

    def _unused_staging(self, use: CsiUse) -> list[Path]:
        """The staging path of the volume, if it has no other user on this node."""
        key = (use.plugin_id, use.namespace, use.id)
        others = [each for each in self._uses.values() if each != use]
        return [] if any((each.plugin_id, each.namespace, each.id) == key for each in others) else [self._staging(use)]

    async def _forget(self, use: CsiUse) -> None:
        await self._remember({key: each for key, each in self._uses.items() if each != use})

    async def _remember(self, uses: dict[tuple[str, str], CsiUse]) -> None:
        self._uses = uses
        await self._store.put_csi_uses(tuple(uses.values()))

    def _lock(self, *key: str) -> asyncio.Lock:
        pair = (key[0], key[1])
        return self._locks.setdefault(pair, asyncio.Lock())

    def _staging(self, use: CsiUse) -> Path:
        return self._places.staging(use.plugin_id, use.namespace, use.id)

    def _target(self, use: CsiUse) -> Path:
        return self._places.target(use.plugin_id, use.alloc_id, use.volume)


def csi_requests(group: TaskGroup) -> tuple[str, ...]:
    """The names of the group's CSI volumes."""
    return tuple(name for name, request in sorted(group.volumes.items()) if request.type == CSI)


def is_lasting(error: YurtError) -> bool:
    """Whether a retry is useless."""
    is_refusal = isinstance(error, DriverError) and not isinstance(error, RecoverableError)
    return is_refusal or isinstance(error, Invalid | PermissionDenied)


def _unmount_by_force(paths: list[Path]) -> None:
    for path in paths:
        unmount(path, is_lazy=True)
    remove_folders([*paths, *(path.parent for path in paths[:1])])
