"""CSI plugins, derived from the nodes that run them and the jobs that contain them; not stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter

import msgspec

from yurt.state.store import Snapshot
from yurt.structs.alloc import Allocation
from yurt.structs.job import Job, TaskGroup
from yurt.structs.node import CSIInfo, Node
from yurt.structs.predicates import is_terminal
from yurt.structs.task import TaskCSIPluginConfig
from yurt.structs.volumes.csi import CONTROLLER, MONOLITH, NODE, CSIPlugin

TABLES = ("nodes", "jobs", "allocs")
"""The tables from which plugins are derived."""


def csi_plugin(snapshot: Snapshot, plugin_id: str) -> CSIPlugin | None:
    """A plugin that a node or a job refers to."""
    return csi_plugins(snapshot).get(plugin_id)


def csi_plugins(snapshot: Snapshot) -> dict[str, CSIPlugin]:
    """All plugins by id."""
    holders = [node for node in snapshot.nodes.values() if node.csi_node_plugins or node.csi_controller_plugins]
    expected, jobs = _expected(snapshot)
    named = {name for node in holders for name in (*node.csi_node_plugins, *node.csi_controller_plugins)}
    return {
        plugin_id: _plugin(
            plugin_id, [node for node in holders if _is_holder(node, plugin_id)], jobs.get(plugin_id, []), expected
        )
        for plugin_id in sorted(named | jobs.keys())
    }


def plugin_allocs(snapshot: Snapshot, plugin_id: str) -> tuple[Allocation, ...]:
    """The allocations that run the plugin."""
    return tuple(
        alloc
        for job in snapshot.jobs.where("csi_plugin", "csi_plugin")
        for group in job.task_groups
        if any(block.id == plugin_id for block in _blocks(group))
        for alloc in _live(snapshot, job, group)
    )


def _is_holder(node: Node, plugin_id: str) -> bool:
    return plugin_id in node.csi_node_plugins or plugin_id in node.csi_controller_plugins


class _Role(msgspec.Struct, frozen=True):
    """The controller or node part of a plugin."""

    plugin_id: str
    part: str


def _expected(snapshot: Snapshot) -> tuple[Counter[_Role], dict[str, list[Job]]]:
    """The expected number of each part, and the jobs that contain a plugin."""
    expected: Counter[_Role] = Counter()
    jobs: dict[str, list[Job]] = {}
    for job, group in _holders(snapshot):
        count = len(_live(snapshot, job, group)) if job.type == "system" else group.count
        for block in _blocks(group):
            expected.update({_Role(block.id, part): count for part in _parts(block)})
            jobs.setdefault(block.id, []).append(job)
    return expected, jobs


def _holders(snapshot: Snapshot) -> Iterator[tuple[Job, TaskGroup]]:
    """The groups of unstopped jobs that contain plugins."""
    for job in snapshot.jobs.where("csi_plugin", "csi_plugin"):
        yield from ((job, group) for group in job.task_groups if not job.stop and any(_blocks(group)))


def _parts(block: TaskCSIPluginConfig) -> tuple[str, ...]:
    return (NODE, CONTROLLER) if block.type == MONOLITH else (block.type,)


def _blocks(group: TaskGroup) -> Iterable[TaskCSIPluginConfig]:
    return (task.csi_plugin_config for task in group.tasks if task.csi_plugin_config is not None)


def _live(snapshot: Snapshot, job: Job, group: TaskGroup) -> list[Allocation]:
    allocs = snapshot.allocs_of_job(job.namespace, job.id)
    return [alloc for alloc in allocs if alloc.task_group == group.name and not is_terminal(alloc)]


def _plugin(plugin_id: str, holders: list[Node], jobs: list[Job], expected: Counter[_Role]) -> CSIPlugin:
    nodes = {node.id: node_info for node in holders if (node_info := node.csi_node_plugins.get(plugin_id)) is not None}
    controllers = {
        node.id: node_info for node in holders if (node_info := node.csi_controller_plugins.get(plugin_id)) is not None
    }
    infos = (*controllers.values(), *nodes.values())
    info_of_provider = next((info for info in infos if info.provider), None)
    shown = [*holders, *jobs]
    assert shown, (plugin_id, "a plugin has a node or a job, which gives it its indexes")
    return CSIPlugin(
        id=plugin_id,
        provider=info_of_provider.provider if info_of_provider is not None else "",
        version=info_of_provider.provider_version if info_of_provider is not None else "",
        controller_required=any(info.requires_controller_plugin for info in infos),
        controllers=controllers,
        nodes=nodes,
        controllers_healthy=_healthy(controllers),
        controllers_expected=max(expected[_Role(plugin_id, CONTROLLER)], len(controllers)),
        nodes_healthy=_healthy(nodes),
        nodes_expected=max(expected[_Role(plugin_id, NODE)], len(nodes)),
        create_index=min(map(attrgetter("create_index"), shown)),
        modify_index=max(map(attrgetter("modify_index"), shown)),
    )


def _healthy(infos: Mapping[str, CSIInfo]) -> int:
    return sum(info.healthy for info in infos.values())
