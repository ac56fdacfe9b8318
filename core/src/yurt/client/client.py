"""A client: the part of an agent that runs allocations on its machine.

Order at start: who am I; what do I have (drivers, host); which tasks of an earlier agent still run (re-attached
before anything is said to a server); then registration, the list of allocations, the reports, and only then `ready`.
Cancelling `run` ends the watching and nothing else: tasks go on, and the next start finds them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from yurt.client import node_meta
from yurt.client.allocations import disk_use
from yurt.client.allocations.alloc_log_lines import life_line
from yurt.client.allocations.alloc_operations import AllocOperations
from yurt.client.allocations.alloc_runner import AllocRunner
from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.allocations.alloc_watch import AllocWatch
from yurt.client.allocations.disk_use import DiskWatch
from yurt.client.allocations.garbage import GarbageCollector
from yurt.client.allocations.rebuild import LostRecords, damage_event
from yurt.client.allocations.removals import Removals
from yurt.client.allocations.reports import DEV_RETRY_S, RETRY_S, Reporter
from yurt.client.config import ClientConfig
from yurt.client.context import ClientContext
from yurt.client.csi.manager import Csi, is_plugin
from yurt.client.devices.keeper import DeviceKeeper
from yurt.client.devices.manager import DeviceManager, HealthChange
from yurt.client.devices.wire import group_name
from yurt.client.drivers.driver_exchange import Drivers, exchange
from yurt.client.drivers.driver_table import DriverTable
from yurt.client.files.alloc_files import AllocFiles
from yurt.client.fingerprint.chosen import without_excluded
from yurt.client.fingerprint.cni import with_networks
from yurt.client.fingerprint.node import build_node, driver_schemas, with_driver
from yurt.client.networks.manager import Networks
from yurt.client.ports import ServerPort
from yurt.client.servers.connection import Connection
from yurt.client.servers.node_token import identified
from yurt.client.stats import host_usage
from yurt.client.tasks.exec_sessions import ExecSessions
from yurt.client.volumes.host_volumes import HostVolumes
from yurt.client.waiting import wait_or_sleep
from yurt.lifecycle import events, heartbeats
from yurt.lifecycle.alloc_list import Changes
from yurt.lifecycle.allocation import Stop
from yurt.runtime.env import Env
from yurt.runtime.insides import insides
from yurt.runtime.log_tap import log_texts
from yurt.runtime.supervise import supervised
from yurt.sdk.driver import Driver, Fingerprint, TaskHandle
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import replace, seconds
from yurt.storage.client_db import AllocRecord, ClientDatabase, DynamicMeta
from yurt.structs.alloc import Allocation, TaskState
from yurt.structs.commands import AllocUpdate
from yurt.structs.node import Node, NodeEvent
from yurt.structs.questions import is_client_terminal, is_server_terminal
from yurt.structs.rpc import HostStats, NodeEventsRequest, NodeMeta
from yurt.structs.status import CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_UNKNOWN, NODE_READY, ClientStatus
from yurt.structs.volumes.host import HostVolume, HostVolumeMade

FIRST_FINGERPRINT_S = 2.0
NODE_CHANGE_GATHER_S = 0.2
CUT_OFF_CHECK_S = 1.0

log = logging.getLogger(__name__)


class Client:
    """Runs the allocations of one node."""

    def __init__(
        self,
        config: ClientConfig,
        *,
        env: Env,
        server: ServerPort,
        drivers: Mapping[str, Driver],
        plugin_attributes: Mapping[str, str],
        database: ClientDatabase,
    ) -> None:
        self.config = config
        self._env = env
        self._server = server
        drivers = self._drivers = DriverTable(drivers)
        self._plugin_attributes = plugin_attributes
        self._store = database
        self._node = Node()
        self.allocs = AllocTable(env)
        self._meta = node_meta.combined(config.meta, {})
        self.devices = DeviceManager(env)
        self.devices.on_change = self._devices_changed
        self._keeper = DeviceKeeper(self.devices, env, lambda: self.allocs.live)
        self.networks = Networks(
            config.networks, env=env, drivers=drivers, state_dir=config.state_dir, is_dev=config.dev
        )
        self.host_volumes = HostVolumes(config, database, lambda: self.node)
        self.host_volumes.on_change = self._host_volumes_changed
        self.networks.on_change = self._networks_changed
        self.csi = Csi(config.state_dir, env=env, drivers=drivers, store=database, server=server)
        self.csi.plugins.on_change = self._csi_changed
        self._context = ClientContext(
            config=config,
            env=env,
            store=database,
            drivers=drivers,
            host_env=config.inherited_env(os.environ),
            node=lambda: self.node,
            server=server,
            devices=self.devices,
            networks=self.networks,
            csi=self.csi,
            host_volumes=self.host_volumes,
        )
        self._found = {name: asyncio.Event() for name in drivers}
        self._connection = Connection(
            server, env, node=lambda: self.node, schemas=driver_schemas(drivers), tokens=database, is_dev=config.dev
        )
        self._is_lost = asyncio.Event()
        self._is_lost.set()
        self._meta_lock = asyncio.Lock()
        self._garbage = GarbageCollector(config, env, self.allocs)
        self._lost = LostRecords(database, config.alloc_dir)
        execs = ExecSessions(lambda name, work: supervised(self._group, name, work))
        files, operations = AllocFiles(self._context, self.allocs), AllocOperations(self.allocs, self._context, execs)
        self.list_files, self.stat_file, self.read_file = files.list_files, files.stat_file, files.read_file
        self.stream_file, self.stream_logs = files.stream_file, files.stream_logs
        self.alloc_stats, self.alloc_checks = operations.alloc_stats, operations.alloc_checks
        self.restart_alloc, self.signal_alloc = operations.restart_alloc, operations.signal_alloc
        self.exec_task, self.pack_disk = operations.exec_task, operations.pack_disk

    @property
    def node(self) -> Node:
        """The node as it is now."""
        return self._node

    @property
    def node_id(self) -> str:
        """The node's id; empty before `run` has read or made it."""
        return self._node.id

    @property
    def is_ready(self) -> bool:
        """The servers hold the node for ready, as far as it knows."""
        return self._connection.status == NODE_READY

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers, as the last one that answered named them."""
        return self._connection.servers

    def follow_servers(self, learn: Callable[[tuple[str, ...]], None]) -> None:
        """Tell somebody whenever a server has named the servers."""
        self._connection.on_servers = learn

    def set_servers(self, addresses: tuple[str, ...]) -> None:
        """Go to these servers, until one that answers names others."""
        self._connection.set_servers(addresses)

    def server_found(self) -> None:
        """A server can be reached again: the node makes itself known at once."""
        self._connection.server_found()

    def alloc_namespace(self, alloc_id: str) -> str | None:
        """The namespace of an allocation of this node; None for one that this node does not run."""
        return self.allocs.namespace_of(alloc_id)

    async def run(self, *, ready: asyncio.Event) -> None:
        """Run until cancelled; `ready` is set once the servers have accepted the node as ready. Tasks survive."""
        identity = await identified(self._store, self._env)
        node = await asyncio.to_thread(build_node, self.config, identity, self._plugin_attributes)
        self._meta = node_meta.combined(self.config.meta, (await self._store.node_meta()).values)
        self._node = replace(node, meta=self._meta.meta)
        records = await asyncio.to_thread(self._lost.sort, await self._store.allocs())
        here = {record.id for record in records} | self._lost.ids
        reporter = Reporter(
            self._server,
            self._env,
            node_id=identity.node_id,
            retry_s=DEV_RETRY_S if self.config.dev else RETRY_S,
        )
        self._connection.on_reconnect = self._tell_again
        watch = AllocWatch(self._server, self._env, self._store, node_id=identity.node_id, is_dev=self.config.dev)
        async with asyncio.TaskGroup() as group:
            self._group, self._reporter, self._watch = group, reporter, watch
            for name, driver in self._drivers.items():
                supervised(group, f"fingerprint of driver {name}", self._follow_driver(name, driver))
            self.devices.begin(group)
            opening = group.create_task(self.networks.open(here), name="networks")
            await self.host_volumes.open()
            await self._wait_first_fingerprints()
            await self.devices.wait_first()
            await opening
            self._node = self._with_networks()
            self._node = self.host_volumes.applied(self._node)
            self.csi.plugins.begin(group)
            self._restore(records)
            self.allocs.set_restored()
            await self.csi.volumes.open(group, here)
            group.create_task(self._connection.run(), name="heartbeats")
            group.create_task(reporter.run(), name="allocation reports")
            group.create_task(self._follow_allocs(), name="allocation list")
            group.create_task(self._stop_cut_off(), name="stop_on_client_after")
            group.create_task(self._garbage.run(), name="garbage collection")
            mode = self.config.options.get(disk_use.OPTION, disk_use.STOP)
            sizes = DiskWatch(self.config.alloc_dir, self._env, mode=mode, runners=lambda: self.allocs.live)
            group.create_task(sizes.run(group), name="sizes of allocations")
            supervised(group, "networks of allocations", self.networks.keep_house())
            group.create_task(self._keeper.run(group), name="holders of devices")
            supervised(group, "template renderer", self._context.renderer.run())
            group.create_task(self._keep_ready(), name="readiness")
            await self._connection.ready.wait()
            ready.set()

    def _tell_again(self, index: int) -> None:
        """The servers have lost sight of this node: they are asked what it should run and told what it runs."""
        self._watch.look_again(index)
        self._reporter.resend()
        for runner in self.allocs.live.values():
            runner.resend_services()
        self._is_lost.set()

    async def _keep_ready(self) -> None:
        """Invariant E1: fetched, taken up and reported, then ready; and so again whenever the servers lost the node."""
        while True:
            await self._is_lost.wait()
            self._is_lost.clear()
            await self._watch.fresh.wait()
            for reported in [runner.reported for runner in self.allocs.live.values()]:
                await reported.wait()
            await self._reporter.wait_idle()
            if not self._is_lost.is_set():
                self._connection.allow_ready()

    # Drivers.

    async def _follow_driver(self, name: str, driver: Driver) -> None:
        async for found in driver.fingerprint():
            if self._drivers.get(name) is not driver:
                return
            self._take_fingerprint(name, found)

    async def exchange_drivers(self, new: Drivers, *, remake: Callable[[], Drivers]) -> int:
        """Put new drivers in the places of old ones of the same names, with their tasks; how many those are.

        Raises Conflict with the reason when the old code goes on, Unavailable before the node is ready.
        """
        if not self._connection.ready.is_set():
            raise Unavailable("the node is not ready yet: try again in a moment")
        former = dict(self._drivers)
        try:
            kept = await exchange(self._drivers, new, handles=self._held_handles, remake=remake)
        finally:
            self._connection.change_schemas(driver_schemas(self._drivers))
            for name, driver in self._drivers.items():
                if driver is not former.get(name):
                    self._found.setdefault(name, asyncio.Event())
                    supervised(self._group, f"fingerprint of driver {name}", self._follow_driver(name, driver))
        for name in new:
            self._tell_of_driver(name, f"its code was reloaded; tasks kept: {kept}")
        return kept

    def _held_handles(self) -> dict[str, list[TaskHandle]]:
        """What each driver holds for tasks."""
        found: dict[str, list[TaskHandle]] = {}
        for alloc in self.allocs.live.values():
            for task in alloc.tasks.values():
                if task.held_handle is not None:
                    found.setdefault(task.task.driver, []).append(task.held_handle)
        return found

    def _take_fingerprint(self, name: str, found: Fingerprint) -> None:
        """Change the node by what a driver said, and tell the servers when that differs from what they know."""
        old = self._node
        new = with_driver(old, name, found, self._env.now())
        known, told = old.drivers.get(name), new.drivers[name]
        self._found[name].set()
        if known is not None and replace(told, update_time=known.update_time) == known:
            return
        self._node = new
        self._connection.node_changed()
        if known is not None:
            if known.healthy and not told.healthy:
                log.warning("driver failed: driver=%s: %s", name, told.health_description)
            self._tell_of_driver(name, told.health_description or ("Healthy" if told.healthy else "Unhealthy"))

    def _tell_of_driver(self, name: str, text: str) -> None:
        details, now = {"driver": name}, self._env.now()
        self._tell_event(
            NodeEvent(message=f"Driver {name}: {text}", subsystem="Driver", details=details, timestamp=now)
        )

    def _tell_event(self, event: NodeEvent) -> None:
        request = NodeEventsRequest(node_id=self.node_id, events=(event,))
        supervised(self._group, f"node event of {event.subsystem}", self._server.emit_events(request))

    def _devices_changed(self, changes: tuple[HealthChange, ...]) -> None:
        """Tell the servers what the devices are now, and those who hold a device that has become bad or well."""
        new = self.devices.applied(self._node)
        if new != self._node:
            self._node = new
            self._connection.node_changed()
        for change in changes:
            details = {"device": change.id, "group": group_name(change.group)}
            now = self._env.now()
            self._tell_event(NodeEvent(message=change.text, subsystem="Device", details=details, timestamp=now))
        self._keeper.tell_health(changes)

    def _networks_changed(self) -> None:
        """Plugins or configurations have come or gone."""
        self._node = self._with_networks()
        self._connection.node_changed()

    def _with_networks(self) -> Node:
        return without_excluded(with_networks(self._node, self.networks.offered, self.config.networks), self.config)

    def _host_volumes_changed(self) -> None:
        """A volume has come or gone."""
        self._node = self.host_volumes.applied(self._node)
        self._connection.node_changed()

    def _csi_changed(self) -> None:
        """A plugin has become healthy or unhealthy, has come or gone."""
        self._node = self.csi.plugins.applied(self._node)
        self._connection.node_changed()

    async def _wait_first_fingerprints(self) -> None:
        """Give every driver a moment to say whether it works, so that the first registration is whole."""
        limit = self._env.monotonic() + FIRST_FINGERPRINT_S
        for name, found in self._found.items():
            if not await wait_or_sleep(self._env, found, limit - self._env.monotonic()):
                log.warning("driver %s has not said yet whether it works here", name)

    # Allocations.

    def _restore(self, records: tuple[AllocRecord, ...]) -> None:
        """Take up what an earlier agent ran."""
        for record in records:
            assert record.alloc is not None, record.id
            self._watch.know({record.id: record.alloc.alloc_modify_index})
            self._begin(record.alloc, record)

    async def _follow_allocs(self) -> None:
        await self._connection.registered.wait()
        if self._store.damage:
            self._tell_event(damage_event(self._store.damage, self._env))
        await self._watch.run(least_index=self._connection.registered_index, apply=self._apply)

    async def _apply(self, changes: Changes) -> None:
        for alloc in changes.fetched:
            self._take_over(alloc)
        self._lost.unclaimed()
        removals = Removals(self.allocs, self._context, group=self._group, forget=self._reporter.forget)
        removals.begin(changes.gone)
        self._reporter.open()

    def _take_over(self, alloc: Allocation) -> None:
        runner = self.allocs.live.get(alloc.id)
        if runner is not None:
            runner.take_over(alloc)
        if alloc.id in self.allocs:
            if alloc.client_status == CLIENT_UNKNOWN:
                self._reporter.resend(alloc.id)
        elif is_client_terminal(alloc):
            return
        elif is_server_terminal(alloc) and alloc.id not in self._lost.ids:
            self._report(self._ended_update(alloc.id, CLIENT_COMPLETE, "Stopped before it started on this client"))
        elif alloc.job is None or alloc.job.group(alloc.task_group) is None:
            text = f"the servers sent no group {alloc.task_group!r} with allocation {alloc.id}"
            self._report(self._ended_update(alloc.id, CLIENT_FAILED, text))
        else:
            self._begin(alloc, None)

    def _begin(self, alloc: Allocation, record: AllocRecord | None) -> None:
        runner = AllocRunner(alloc, self._context, group=self._group, report=self._report)
        self.allocs.live[alloc.id] = runner
        supervised(
            self._group,
            f"allocation {alloc.id[:8]}",
            self._until_retired(runner, record, after=self._predecessors(alloc), is_rebuilt=self._lost.take(alloc.id)),
            on_error=lambda error: self._runner_broke(runner, error),
        )

    async def _until_retired(
        self,
        runner: AllocRunner,
        record: AllocRecord | None,
        *,
        after: Sequence[weakref.ref[AllocRunner]],
        is_rebuilt: bool,
    ) -> None:
        """Run an allocation until nothing of it is left but a record."""
        await runner.run(record, after=after, is_rebuilt=is_rebuilt)
        while not await runner.wait_cleaned():
            log.warning("drivers still free what ended tasks held: allocation=%s", runner.id)
        self.allocs.retire(runner)

    def _predecessors(self, alloc: Allocation) -> tuple[weakref.ref[AllocRunner], ...]:
        """Allocations of this node that make room for this one."""
        ids = (alloc.previous_allocation, *alloc.preempted_allocations)
        return tuple(weakref.ref(self.allocs.live[each]) for each in ids if each in self.allocs.live)

    def _runner_broke(self, runner: AllocRunner, error: Exception) -> None:
        runner.end()
        self._report(self._ended_update(runner.alloc.id, CLIENT_FAILED, f"running the allocation failed: {error}"))

    def _ended_update(self, alloc_id: str, status: ClientStatus, description: str) -> AllocUpdate:
        states: Mapping[str, TaskState] = {}
        runner = self.allocs.live.get(alloc_id)
        if runner is not None:
            states = runner.states
        return AllocUpdate(
            id=alloc_id,
            node_id=self.node_id,
            client_status=status,
            client_description=description,
            task_states=states,
        )

    def _report(self, update: AllocUpdate) -> None:
        runner = self.allocs.live.get(update.id)
        line = life_line(runner.alloc.name if runner else "", self._reporter.status_of(update.id), update)
        if line:
            log.info("%s", line)
        self._reporter.offer(update)

    async def _stop_cut_off(self) -> None:
        """End the allocations of groups whose `stop_on_client_after` has passed without contact."""
        while True:
            await self._env.sleep(CUT_OFF_CHECK_S)
            self._stop_those_cut_off()

    def _stop_those_cut_off(self) -> None:
        now_s, last_s = self._env.monotonic(), self._connection.contact.last_ok_s
        for runner in self.allocs.live.values():
            job = runner.alloc.job
            after_s = heartbeats.stop_on_client_after_s(runner.task_group, job.type if job else "")
            if runner.is_live and heartbeats.is_cut_off(after_s, last_contact_s=last_s, now_s=now_s):
                log.warning("ending allocation %s: no contact to the servers for %gs", runner.alloc.id, after_s)
                runner.stop(Stop(reason=events.cut_off(seconds(after_s)), is_failure=True))

    async def stop_all(self) -> None:
        """Kill every task and wait for the ends, those of plugins last; `run` must still be running."""
        for is_last in (False, True):
            ending = [runner for runner in self.allocs.live.values() if is_plugin(runner.task_group) == is_last]
            for runner in ending:
                runner.stop_at_once()
            for runner in ending:
                await runner.wait_over()

    async def finish_cleaning(self) -> None:
        """Wait, within a bound, until the drivers have freed what ended tasks held: a container, say."""
        await asyncio.gather(*(runner.wait_cleaned() for runner in self.allocs.live.values()))

    # What servers ask of this node (`yurt.server.ports.NodePort`).

    async def host_stats(self) -> HostStats:
        """Use of the host."""
        return await host_usage(self.config, self._env, self.node, self.devices)

    async def node_meta(self) -> NodeMeta:
        """The node's metadata."""
        return self._meta

    async def apply_node_meta(self, changes: Mapping[str, str | None]) -> NodeMeta:
        """Change the node's metadata, on disk first; None takes a value away."""
        async with self._meta_lock:
            meta = node_meta.changed(self._meta, changes)
            await self._store.put_node_meta(DynamicMeta(values=meta.dynamic))
            self._meta = meta
        if self._node.meta != meta.meta:
            self._node = replace(self._node, meta=meta.meta)
            self._connection.node_changed()
        return meta

    async def node_identity(self) -> Mapping[str, Any]:
        """What the identity of the node says."""
        return await self._connection.token.claims()

    async def agent_process(self) -> str:
        """The process of this agent, as it registers with the servers."""
        return self._connection.token.process

    async def renew_node_identity(self) -> None:
        """Have the node's identity replaced with its next heartbeat."""
        self._connection.token.renew()

    monitor = staticmethod(log_texts)

    def agent_insides(self, *, what: str, options: Mapping[str, str]) -> AsyncGenerator[bytes]:
        """What the node's agent tells of itself."""
        return insides(what, options, is_debug=self.config.enable_debug)

    async def create_host_volume(self, volume: HostVolume) -> HostVolumeMade:
        """Have a plugin make a volume and offer it."""
        return await self.host_volumes.create(volume)

    async def register_host_volume(self, volume: HostVolume) -> HostVolumeMade:
        """Offer a folder of the node as a volume."""
        return await self.host_volumes.register(volume)

    async def delete_host_volume(self, volume: HostVolume) -> None:
        """Offer a volume no longer, and have its plugin remove it."""
        await self.host_volumes.delete(volume)

    async def collect_garbage(self, alloc_id: str | None) -> None:
        """Remove the directory of one terminal allocation, or of all of them."""
        await self._garbage.collect(alloc_id)
