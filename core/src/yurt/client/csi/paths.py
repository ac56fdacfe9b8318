"""Folders of CSI plugins and their volumes, on the host and as a plugin sees them.

    csi/s/<digest>/csi.sock               the socket of one task that is a plugin
    csi/p/<plugin>/staging/<digest>       a volume, mounted once for all its users
    csi/p/<plugin>/allocs/<alloc>/<...>   a volume, mounted for one allocation

A task whose driver mounts volumes sees the folder of its plugin at `stage_publish_base_dir`, and that of its socket
at `mount_dir`; a task without a file system of its own sees both at their paths on the host.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from yurt.sdk.driver import Driver, Mount
from yurt.sdk.errors import Invalid
from yurt.structs.task import TaskCSIPluginConfig
from yurt.structs.volumes.csi import CONTROLLER

ENDPOINT = "CSI_ENDPOINT"
"""The variable with the path where a plugin must listen."""
SOCKET = "csi.sock"
SOCKET_DIGITS = 8
PLUGIN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
DEVICES = "/dev"


class PluginPaths(msgspec.Struct, frozen=True):
    """The environment, mounts and folders of a task that is a CSI plugin."""

    env: dict[str, str]
    mounts: tuple[Mount, ...]
    folders: tuple[Path, ...]
    """The folders that must exist before the task starts."""


class CsiFolders:
    """The folders of CSI plugins and volumes on this node."""

    def __init__(self, state_dir: str) -> None:
        self._root = Path(state_dir) / "csi"

    def socket(self, alloc_id: str, task: str) -> Path:
        """The socket of a plugin task; its path is short, because socket paths are limited to about 100 bytes."""
        return self._root / "s" / _digest(alloc_id, task)[:SOCKET_DIGITS] / SOCKET

    def plugin(self, plugin_id: str) -> Path:
        """The folder in which a plugin mounts its volumes."""
        if not PLUGIN_ID.fullmatch(plugin_id):
            raise Invalid(f'the id "{plugin_id[:64]}" of a CSI plugin must be of letters, digits, "_", "." and "-"')
        return self._root / "p" / plugin_id

    def of_task(self, alloc_id: str, task: str, block: TaskCSIPluginConfig, driver: Driver) -> PluginPaths:
        """The additions to a plugin task; raises Invalid when its driver cannot provide them."""
        socket, volumes = self.socket(alloc_id, task), self.plugin(block.id)
        folders = (socket.parent, volumes)
        if driver.capabilities.fs_isolation == "none":
            return PluginPaths({ENDPOINT: f"unix://{socket}"}, (), folders)
        if not driver.capabilities.mounts:
            raise Invalid(
                f"driver {driver.name!r} cannot run CSI plugins: it mounts no volumes; use docker or raw_exec"
            )
        mounts = [Mount(host_path=str(socket.parent), task_path=block.mount_dir)]
        if block.type != CONTROLLER:
            mounts.append(
                Mount(host_path=str(volumes), task_path=block.stage_publish_base_dir, propagation="bidirectional")
            )
            mounts += (
                [Mount(host_path=DEVICES, task_path=DEVICES)] if driver.capabilities.fs_isolation == "image" else []
            )
        return PluginPaths({ENDPOINT: f"unix://{posixpath.join(block.mount_dir, SOCKET)}"}, tuple(mounts), folders)

    def path_in_plugin(self, plugin: TaskCSIPluginConfig, path: Path, driver: Driver) -> str:
        """A path below the plugin's folder, as the plugin sees it."""
        if driver.capabilities.fs_isolation == "none":
            return str(path)
        return posixpath.join(plugin.stage_publish_base_dir, path.relative_to(self.plugin(plugin.id)).as_posix())

    def staging(self, plugin_id: str, namespace: str, volume_id: str) -> Path:
        """The staging path of a volume, shared by all its users on this node."""
        return self.plugin(plugin_id) / "staging" / _digest(namespace, volume_id)

    def target(self, plugin_id: str, alloc_id: str, volume: str) -> Path:
        """The target path of a volume of an allocation; `volume` is its name in the group."""
        return self.plugin(plugin_id) / "allocs" / alloc_id / _digest(volume)


def make_folders(paths: Iterable[Path]) -> None:
    """Make folders that only the client may enter."""
    for path in paths:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()
