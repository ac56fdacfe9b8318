"""CSI plugins that run as tasks: probed repeatedly and described as part of the node.

A task that is a plugin has `health_timeout` to become ready after its start; one that does not is restarted by its
restart policy. Later failures make the plugin unhealthy until it answers again. Of several tasks that are the same
plugin the healthy one that started last counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from yurt.client.csi.paths import CsiFolders
from yurt.client.node.local_node import LocalNode
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.driver import Driver
from yurt.sdk.errors import YurtError
from yurt.sdk.value import NANOSECONDS, replace
from yurt.structs.alloc import Allocation
from yurt.structs.job import TaskGroup
from yurt.structs.node import CSIInfo, Node
from yurt.structs.task import TaskCSIPluginConfig
from yurt.structs.volumes.csi import CONTROLLER, NODE

if TYPE_CHECKING:
    from yurt.client.csi.service import CsiService

LOOK_EVERY_S = 30.0
LOOK_AGAIN_S = 0.5
"""The interval of probes while a plugin is unhealthy."""
LOOK_AGAIN_MAX_S = 5.0
HEALTHY = "healthy"

log = logging.getLogger(__name__)

Restart = Callable[[str, str], None]
"""Restarts a task of an allocation for a reason."""
Key = tuple[str, str]
"""A task that is a plugin: its allocation's id and its name."""


class CsiPluginTask(msgspec.Struct, frozen=True):
    """A plugin task in the run that started at `started_at`."""

    block: TaskCSIPluginConfig
    driver: Driver
    started_at: int
    service: CsiService
    restart: Restart


class CsiPlugins:
    """Probes the plugin tasks of this node and describes the node by them."""

    def __init__(
        self, env: Env, places: CsiFolders, drivers: Mapping[str, Driver], *, node: LocalNode, group: asyncio.TaskGroup
    ) -> None:
        self._env, self._places, self._drivers = env, places, drivers
        self._node, self._group = node, group
        self._tasks: dict[Key, CsiPluginTask] = {}
        self._looks: dict[Key, asyncio.Task[None]] = {}
        self._found: dict[Key, CSIInfo] = {}
        self.changed = asyncio.Event()
        """Set, then replaced by a new event, whenever the description of a plugin changes."""

    def follow(self, alloc: Allocation, group: TaskGroup, starts: Mapping[str, int], restart: Restart) -> None:
        """Follow the plugin tasks of an allocation; `starts` are the start times of its running tasks."""
        for task in group.tasks:
            key, block = (alloc.id, task.name), task.csi_plugin_config
            followed = self._tasks.get(key)
            started_at = starts.get(task.name, 0)
            if block is None or started_at == (followed.started_at if followed is not None else 0):
                continue
            if followed is not None:
                self._drop(key)
            if started_at and task.driver in self._drivers:
                self._watch(key, block, self._drivers[task.driver], started_at, restart)

    def _watch(self, key: Key, block: TaskCSIPluginConfig, driver: Driver, started_at: int, restart: Restart) -> None:
        from yurt.client.csi.service import CsiService  # gRPC is loaded on nodes that run a plugin, and on no others

        service = CsiService(self._places.socket(*key))
        self._tasks[key] = CsiPluginTask(block, driver, started_at, service, restart)
        self._looks[key] = supervised(self._group, f"CSI plugin {block.id}", self._look_after(key))

    def _drop(self, key: Key) -> None:
        self._tasks.pop(key)
        self._looks.pop(key).cancel()
        if self._found.pop(key, None) is not None:
            self._report()

    async def _look_after(self, key: Key) -> None:
        task = self._tasks[key]
        limit_s = self._env.monotonic() + task.block.health_timeout / NANOSECONDS
        was_healthy, pause_s = False, LOOK_AGAIN_S
        try:
            while True:
                found = await self._look(key, task)
                self._take(key, found)
                was_healthy = was_healthy or found.healthy
                if not was_healthy and self._env.monotonic() >= limit_s:
                    timeout_s = task.block.health_timeout / NANOSECONDS
                    reason = f"CSI plugin {task.block.id} was not ready within {timeout_s:g}s"
                    task.restart(key[1], f"{reason}: {found.health_description}")
                    return
                pause_s = LOOK_EVERY_S if found.healthy else min(pause_s * 2, LOOK_AGAIN_MAX_S)
                await self._env.sleep(pause_s)
        finally:
            await task.service.close()

    async def _look(self, key: Key, task: CsiPluginTask) -> CSIInfo:
        """Probe a plugin."""
        found = CSIInfo(plugin_id=task.block.id, alloc_id=key[0], update_time=self._env.now())
        try:
            if not await task.service.probe():
                return replace(found, health_description="the plugin says that it is not ready")
            who = await task.service.identity()
            is_controller = task.block.type != NODE and who.has_controller
            return replace(
                found,
                healthy=True,
                health_description=HEALTHY,
                requires_controller_plugin=who.has_controller,
                requires_topologies=who.has_topologies,
                provider=who.name,
                provider_version=who.version,
                node_info=await task.service.node_info() if task.block.type != CONTROLLER else None,
                controller_info=await task.service.controller_info() if is_controller else None,
            )
        except YurtError as error:
            return replace(found, health_description=str(error))

    def _take(self, key: Key, found: CSIInfo) -> None:
        before = self._found.get(key)
        if before is not None and replace(found, update_time=before.update_time) == before:
            return
        if before is not None and before.healthy and not found.healthy:
            log.warning("CSI plugin became unhealthy: plugin=%s reason=%s", found.plugin_id, found.health_description)
            kept = {"node_info": before.node_info, "controller_info": before.controller_info}
            found = replace(
                before, healthy=False, health_description=found.health_description, update_time=found.update_time,
                **kept,
            )  # fmt: skip
        self._found[key] = found
        self._report()

    def _report(self) -> None:
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()
        self._node.change(self.applied)

    def applied(self, node: Node) -> Node:
        """The node with its CSI plugins."""
        nodes: dict[str, CSIInfo] = {}
        controllers: dict[str, CSIInfo] = {}
        for key in self._in_order():
            found, kind = self._found[key], self._tasks[key].block.type
            if kind != CONTROLLER:
                nodes[found.plugin_id] = replace(found, controller_info=None)
            if kind != NODE:
                controllers[found.plugin_id] = replace(found, node_info=None)
        return replace(node, csi_node_plugins=nodes, csi_controller_plugins=controllers)

    def _in_order(self) -> list[Key]:
        """The plugin tasks, of each plugin the effective one last."""
        return sorted(self._found, key=lambda key: (self._found[key].healthy, self._tasks[key].started_at))

    def has_task(self, plugin_id: str) -> bool:
        """Whether a task that is this plugin runs here, healthy or not."""
        return any(task.block.id == plugin_id for task in self._tasks.values())

    def mounting(self, plugin_id: str) -> tuple[CsiPluginTask, bool] | None:
        """The healthy plugin task that mounts volumes here, and whether it stages them first; None without one."""
        for key in reversed(self._in_order()):
            found, task = self._found[key], self._tasks[key]
            if found.plugin_id == plugin_id and task.block.type != CONTROLLER and found.healthy:
                return task, found.node_info is not None and found.node_info.requires_node_stage_volume
        return None
