"""The CSI parts of one node that runners share."""

from __future__ import annotations

from yurt.client.csi.paths import CsiFolders
from yurt.client.csi.plugins import CsiPlugins
from yurt.client.csi.volumes import CsiMounts
from yurt.structs.job import TaskGroup


class Csi:
    """The CSI plugins, volumes and folders of a node."""

    def __init__(self, plugins: CsiPlugins, volumes: CsiMounts, places: CsiFolders) -> None:
        self.plugins = plugins
        self.volumes = volumes
        self.places = places


def is_plugin(group: TaskGroup) -> bool:
    """Whether a task of the group is a CSI plugin; such groups end after the users of their volumes."""
    return any(task.csi_plugin_config is not None for task in group.tasks)
