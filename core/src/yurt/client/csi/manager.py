"""All about CSI on one node: what a client shares with its runners."""

from __future__ import annotations

from yurt.client.csi.places import CsiFolders
from yurt.client.csi.plugins import CsiPlugins
from yurt.client.csi.volumes import CsiVolumes
from yurt.structs.job import TaskGroup


class Csi:
    """The plugins of a node, its volumes, and where they are."""

    def __init__(self, plugins: CsiPlugins, volumes: CsiVolumes, places: CsiFolders) -> None:
        self.plugins = plugins
        self.volumes = volumes
        self.places = places


def is_plugin(group: TaskGroup) -> bool:
    """Whether a task of the group is a plugin: such a group ends after those that use its volumes."""
    return any(task.csi_plugin_config is not None for task in group.tasks)
