"""All about CSI on one node: what a client shares with its runners."""

from __future__ import annotations

from collections.abc import Mapping

from yurt.client.csi.places import Places
from yurt.client.csi.plugins import Plugins
from yurt.client.csi.volumes import CsiVolumes
from yurt.client.ports import ServerPort
from yurt.runtime.env import Env
from yurt.sdk.driver import Driver
from yurt.storage.client_db import ClientDatabase
from yurt.structs.job import TaskGroup


class Csi:
    """The plugins of a node, its volumes, and where they are."""

    def __init__(
        self, state_dir: str, *, env: Env, drivers: Mapping[str, Driver], store: ClientDatabase, server: ServerPort
    ) -> None:
        self.places = Places(state_dir)
        self.plugins = Plugins(env, self.places, drivers)
        self.volumes = CsiVolumes(env, self.places, self.plugins, store=store, server=server)


def is_plugin(group: TaskGroup) -> bool:
    """Whether a task of the group is a plugin: such a group ends after those that use its volumes."""
    return any(task.csi_plugin_config is not None for task in group.tasks)
