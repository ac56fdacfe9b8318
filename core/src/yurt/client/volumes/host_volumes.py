"""Dynamic host volumes of this node: created, restored and deleted by plugins.

`mkdir` is built in: a folder below `host_volumes_dir`, named by the volume's id. Any other plugin is an executable in
`host_volume_plugin_dir`. It is called with the operation as its argument and DHV_ variables, and answers with JSON on
standard output. `create` is called again at every start of the agent, so a plugin must accept an existing volume.
A volume is recorded before it is offered, and its record is deleted before the volume is. An existing folder can be
registered when the configuration lists it (`registered_folders`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from typing import Protocol

from yurt.client.config import ClientConfig
from yurt.client.node.local_node import LocalNode
from yurt.client.volumes.registered_folders import RegisteredFolders
from yurt.client.volumes.volume_programs import find_programs
from yurt.sdk.errors import Conflict, Invalid, NotFound, YurtError
from yurt.sdk.value import replace
from yurt.storage.client_db import ClientDatabase, HostVolumeRecord
from yurt.structs.node import HostVolumeInfo, Node
from yurt.structs.volumes.host import HostVolume, HostVolumeMade

MKDIR = "mkdir"
MKDIR_VERSION = "0.1.0"
DEFAULT_MODE = "0700"
VOLUME_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
OWNER_MAX = 2**32 - 2
ATTRIBUTE = "plugins.host_volume.{}.version"

log = logging.getLogger(__name__)


class Plugin(Protocol):
    """A plugin that creates and deletes volumes. Calls raise YurtError."""

    version: str

    async def create(self, volume: HostVolume, node: Node) -> HostVolumeMade:
        """Create the volume, or return the existing one."""
        ...

    async def delete(self, volume: HostVolume, node: Node) -> None:
        """Remove the volume with its contents."""
        ...


class Mkdir:
    """Volumes that are folders. Parameters: `mode` (octal), `uid` and `gid`."""

    version = MKDIR_VERSION

    def __init__(self, folder: str) -> None:
        self._folder = folder

    async def create(self, volume: HostVolume, node: Node) -> HostVolumeMade:
        """Create the folder if missing."""
        mode, owner = mkdir_parameters(volume.parameters)
        return HostVolumeMade(path=await asyncio.to_thread(self._make, volume.id, mode, owner))

    def _make(self, volume_id: str, mode: int, owner: tuple[int, int]) -> str:
        path = os.path.join(self._folder, volume_id)
        try:
            os.makedirs(self._folder, mode=0o711, exist_ok=True)
            try:
                os.mkdir(path, mode=0o700)
            except FileExistsError:
                if os.path.islink(path) or not os.path.isdir(path):
                    raise Conflict(f"{path} exists and is not a folder") from None
                return path
            os.chown(path, *owner)
            os.chmod(path, mode)
        except OSError as error:
            raise Invalid(f"mkdir: {path} cannot be made: {error.strerror}") from None
        return path

    async def delete(self, volume: HostVolume, node: Node) -> None:
        """Remove the folder; not an error when it is missing."""
        await asyncio.to_thread(self._remove, volume.id)

    def _remove(self, volume_id: str) -> None:
        path = os.path.join(self._folder, volume_id)
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise Invalid(f"mkdir: {path} cannot be removed: {error.strerror}") from None


def mkdir_parameters(parameters: Mapping[str, str]) -> tuple[int, tuple[int, int]]:
    """The mode and the owner of a folder; -1 leaves an id as it is. Raises Invalid."""
    strange = sorted(set(parameters) - {"mode", "uid", "gid"})
    if strange:
        raise Invalid(f'mkdir: unknown parameter "{strange[0]}"; it has mode, uid and gid')
    mode = parameters.get("mode", DEFAULT_MODE)
    if not re.fullmatch(r"[0-7]{3,4}", mode):
        raise Invalid(f'mkdir: mode = "{mode}" must be octal, such as "0755"')
    owner = []
    for name in ("uid", "gid"):
        text = parameters.get(name, "-1")
        if not re.fullmatch(r"-1|[0-9]{1,10}", text) or int(text) > OWNER_MAX:
            raise Invalid(f'mkdir: {name} = "{text}" must be a number, or -1')
        owner.append(int(text))
    return int(mode, 8), (owner[0], owner[1])


class DynamicHostVolumes:
    """The dynamic host volumes of the node, and the node's description by them."""

    def __init__(self, config: ClientConfig, store: ClientDatabase, node: LocalNode) -> None:
        self._config, self._store, self._node = config, store, node
        own = (config.state_dir, config.alloc_dir, config.host_volumes_dir, config.host_volume_plugin_dir)
        self._folders = RegisteredFolders(config.host_volume_register_dirs, own=own)
        self._plugins: dict[str, Plugin] = {MKDIR: Mkdir(config.host_volumes_dir)} if config.host_volumes_dir else {}
        self._records: dict[str, HostVolumeRecord] = {}
        self._offered: dict[str, HostVolumeInfo] = {}
        self._lock = asyncio.Lock()

    async def open(self) -> None:
        """Find the plugins and restore the volumes of earlier agents; a volume that fails is not offered."""
        folder = self._config.host_volume_plugin_dir
        programs = await find_programs(folder, self._config.host_volumes_dir) if folder else {}
        self._plugins = {**programs, **self._plugins}
        self._records = {record.volume.id: record for record in await self._store.host_volumes()}
        await asyncio.gather(*(self._take_up(record) for record in self._records.values()))
        self._node.change(self.applied)

    async def _take_up(self, record: HostVolumeRecord) -> None:
        volume = record.volume
        try:
            made = await self._checked_path(volume) if record.is_registered else await self._make(volume)
        except YurtError as error:
            log.warning("host volume is not offered: name=%s volume=%s error=%s", volume.name, volume.id, error)
            return
        self._offered[volume.name] = HostVolumeInfo(path=made.path, id=volume.id)

    def applied(self, node: Node) -> Node:
        """The node with its host volumes and their plugins."""
        versions = {ATTRIBUTE.format(name): plugin.version for name, plugin in self._plugins.items()}
        return replace(
            node,
            attributes={**node.attributes, **versions},
            host_volumes={**self._config.host_volumes, **self._offered},
        )

    def volume(self, name: str) -> HostVolume | None:
        """The offered volume of this name, as it was last changed; None when there is none."""
        offered = self._offered.get(name)
        record = self._records.get(offered.id) if offered is not None else None
        return None if record is None else record.volume

    async def create(self, volume: HostVolume) -> HostVolumeMade:
        """Make a volume and offer it; a call with the id of an existing volume changes that."""
        async with self._lock:
            self._check_name(volume)
            return await self._offer(volume, await self._make(volume), is_registered=False)

    async def register(self, volume: HostVolume) -> HostVolumeMade:
        """Offer an existing folder as a volume."""
        async with self._lock:
            self._check_name(volume)
            return await self._offer(volume, await self._checked_path(volume), is_registered=True)

    async def delete(self, volume: HostVolume) -> None:
        """Withdraw and delete a volume; a registered folder stays on disk. An unknown volume is ignored."""
        async with self._lock:
            record = self._records.get(volume.id)
            if record is not None:
                await self._drop(record)

    async def _drop(self, record: HostVolumeRecord) -> None:
        volume = record.volume
        offered = self._offered.pop(volume.name, None)
        self._node.change(self.applied)
        try:
            if not record.is_registered:
                await self._plugin(volume).delete(volume, self._node.value)
        except YurtError:
            if offered is not None:
                self._offered[volume.name] = offered
                self._node.change(self.applied)
            raise
        rest = {key: each for key, each in self._records.items() if key != volume.id}
        await self._store.put_host_volumes(tuple(rest.values()))
        self._records = rest

    async def _offer(self, volume: HostVolume, made: HostVolumeMade, *, is_registered: bool) -> HostVolumeMade:
        stored = replace(volume, host_path=made.path, capacity_bytes=made.capacity_bytes)
        records = {**self._records, volume.id: HostVolumeRecord(volume=stored, is_registered=is_registered)}
        await self._store.put_host_volumes(tuple(records.values()))
        self._records = records
        self._offered[volume.name] = HostVolumeInfo(path=made.path, id=volume.id)
        self._node.change(self.applied)
        return made

    def _check_name(self, volume: HostVolume) -> None:
        if not VOLUME_ID.fullmatch(volume.id):
            raise Invalid(f'"{volume.id[:64]}" is not a valid volume ID')
        offered = self._offered.get(volume.name)
        if volume.name in self._config.host_volumes or (offered is not None and offered.id != volume.id):
            raise Conflict(f'this node offers a host volume "{volume.name}" already; choose another name')

    def _plugin(self, volume: HostVolume) -> Plugin:
        plugin = self._plugins.get(volume.plugin_id)
        if plugin is None:
            plugins = ", ".join(sorted(self._plugins)) or "none"
            raise NotFound(f'this node has no host volume plugin "{volume.plugin_id}"; it has {plugins}')
        return plugin

    async def _make(self, volume: HostVolume) -> HostVolumeMade:
        plugin = self._plugin(volume)
        made = await plugin.create(volume, self._node.value)
        try:
            await self._check_folder(made.path)
        except Invalid:
            if volume.id not in self._records:
                await plugin.delete(replace(volume, host_path=made.path), self._node.value)
            raise
        return made

    async def _checked_path(self, volume: HostVolume) -> HostVolumeMade:
        """The path of a registered volume; raises Invalid when the configuration does not allow it."""
        offered = [each.path for each in self._offered.values() if each.id != volume.id]
        others = [*offered, *(each.path for each in self._config.host_volumes.values())]
        await asyncio.to_thread(self._folders.check, volume.host_path, others=others)
        return HostVolumeMade(path=volume.host_path, capacity_bytes=volume.capacity_bytes)

    def check_mounts(self, paths: Iterable[str]) -> None:
        """Raise Invalid when a registered folder was replaced; call it right before mounting.

        Blocking.
        """
        registered = {each.volume.host_path for each in self._records.values() if each.is_registered}
        for path in paths:
            if path in registered:
                self._folders.check(path)

    async def _check_folder(self, path: str) -> None:
        is_plain = path.startswith("/") and path.strip("/.") and "\0" not in path and ".." not in path.split("/")
        if not is_plain or not await asyncio.to_thread(os.path.isdir, path):
            raise Invalid(f"host path {path!r} is not a folder of this node, given by its full path")
