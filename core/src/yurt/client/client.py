"""Composes a client, the part of an agent that runs allocations on its machine, from its parts.

Order at start: what does this machine have (host, drivers, devices, networks, volumes); which tasks of an earlier agent
still run (re-attached before anything is said to a server); then registration, the list of allocations, the reports,
and only then `ready`. Cancelling `run` ends the watching and nothing else: tasks go on, and the next start finds them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from yurt.client import usage_history
from yurt.client.allocations import disk_use, memory_pressure
from yurt.client.allocations.alloc_operations import AllocOperations
from yurt.client.allocations.alloc_service import AllocService
from yurt.client.allocations.alloc_table import AllocTable
from yurt.client.allocations.disconnection import DisconnectionWatch
from yurt.client.allocations.disk_use import DiskWatch
from yurt.client.allocations.garbage import GarbageCollector
from yurt.client.allocations.idle_watch import IdleWatch
from yurt.client.allocations.memory_pressure import MemoryPressure
from yurt.client.allocations.usage import UsageMeter
from yurt.client.config import ClientConfig
from yurt.client.context import ClientContext
from yurt.client.csi.manager import Csi
from yurt.client.csi.paths import CsiFolders
from yurt.client.csi.plugins import CsiPlugins
from yurt.client.csi.volumes import CsiMounts
from yurt.client.devices import activity as device_activity
from yurt.client.devices.activity import DeviceActivity
from yurt.client.devices.claim_watch import ClaimWatch
from yurt.client.devices.health_keeper import DeviceHealthKeeper
from yurt.client.devices.holders import DeviceHolders, HealthNotices
from yurt.client.devices.manager import DeviceManager
from yurt.client.drivers.driver_exchange import Drivers
from yurt.client.drivers.driver_manager import DriverManager
from yurt.client.drivers.driver_table import DriverTable
from yurt.client.files.alloc_files import AllocFiles
from yurt.client.files.dynamic_users import DynamicUsers
from yurt.client.fingerprint.exclusion import cloud_fingerprints, permitted_fingerprints, without_excluded
from yurt.client.fingerprint.fingerprints import Fingerprints, clouds_of
from yurt.client.fingerprint.node import build_node
from yurt.client.fingerprint.package_fingerprints import PackageFingerprints
from yurt.client.gauges import ClientGauges
from yurt.client.host_usage import HostUsage
from yurt.client.networks.construction import Construction
from yurt.client.networks.detection import find_offered
from yurt.client.networks.makers import NamespaceMakers
from yurt.client.networks.manager import Networks
from yurt.client.networks.offers import Finder, OfferedNetworks
from yurt.client.networks.records import RecordFolder, owner_of
from yurt.client.node.local_node import LocalNode
from yurt.client.node.metadata import Metadata, static_meta
from yurt.client.node.node_events import NodeEvents
from yurt.client.node_calls import NodeCalls
from yurt.client.ports import ServerPort, ServeTask
from yurt.client.servers.addresses import Addresses, ServerAddresses
from yurt.client.servers.connection import ServerConnection
from yurt.client.servers.node_registration import NodeRegistration
from yurt.client.servers.node_token import NodeToken
from yurt.client.tasks.exec_sessions import ExecSessions
from yurt.client.templates.context import TemplateContext
from yurt.client.usage_history import UsageHistory
from yurt.client.volumes.host_volumes import DynamicHostVolumes
from yurt.client.volumes.writers import VolumeWriters
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk import core_partitions
from yurt.sdk.device import DevicePlugin
from yurt.sdk.driver import Driver
from yurt.sdk.errors import Unavailable
from yurt.sdk.value import NANOSECONDS, duration_text
from yurt.storage.client_db import ClientDatabase, NodeIdentity
from yurt.structs.node import DrainSpec, Node
from yurt.structs.status import NODE_READY

if TYPE_CHECKING:
    from yurt.client.allocations.shutdown_drain import ShutdownDrain

RECOVERY_LIMIT_S = 30.0
"""Time limit for the recovery of tasks; then their cores may change."""

Describe = Callable[[ClientConfig, NodeIdentity, Mapping[str, str]], Node]


class ClientLoop(msgspec.Struct, frozen=True):
    """A task that runs as long as the client; if it `may_fail`, its failure leaves the others running."""

    name: str
    run: Callable[[], Coroutine[Any, Any, None]]
    may_fail: bool = False


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of an agent that its client uses."""

    identity: NodeIdentity
    server: ServerPort
    database: ClientDatabase
    drivers: Mapping[str, Driver]
    devices: Mapping[str, DevicePlugin] = msgspec.field(default_factory=dict)
    plugin_attributes: Mapping[str, str] = msgspec.field(default_factory=dict)
    learn_servers: Callable[[Addresses], None] = lambda _: None
    """Called with the servers' addresses whenever a new list arrives."""
    find_networks: Finder = find_offered
    describe: Describe = build_node
    """Describes the node from facts about the machine; blocking."""
    task_api: ServeTask | None = None


class Client:
    """Runs the allocations of one node."""

    def __init__(self, config: ClientConfig, env: Env, surroundings: Surroundings) -> None:
        self.config = config
        self._surroundings = surroundings
        self._group = group = asyncio.TaskGroup()
        """The group of all tasks of the client, which `run` enters once."""
        self._node = node = LocalNode(
            Node(id=surroundings.identity.node_id, secret_id=surroundings.identity.secret_id),
            visible=partial(without_excluded, config=config),
        )
        self._node_events = NodeEvents(surroundings.server, env, node=node, group=group)
        self.allocs = AllocTable(env)
        drivers = DriverTable(surroundings.drivers)
        self._drivers = DriverManager(drivers, env, node=node, events=self._node_events, group=group)
        holders = DeviceHolders(self.allocs.unfinished_tasks)
        notices = HealthNotices(holders, self._node_events)
        health = DeviceHealthKeeper(
            config.device_health,
            env,
            plugins=surroundings.devices,
            store=surroundings.database,
            watch=notices,
            on_change=lambda: node.change(self.devices.applied),
        )
        self.devices = DeviceManager(
            surroundings.devices, env, node=node, group=group, health=health, on_plugin=notices.report_plugin
        )
        offers = OfferedNetworks(config.networks, env, node=node, find=surroundings.find_networks)
        context = self._context(env, offers, drivers, holders)
        self.context = context
        """The parts that its runners share."""
        retries = config.fingerprint_retries
        follow = partial(
            PackageFingerprints, env=env, node=node, events=self._node_events, group=group, retries=retries
        )
        self._fingerprints = Fingerprints(
            drivers=self._drivers,
            devices=self.devices,
            offers=offers,
            host_volumes=context.host_volumes,
            added=follow(permitted_fingerprints(config)),
            clouds=follow(cloud_fingerprints(clouds_of(os.environ), config)),
        )
        self.alloc_service = AllocService(
            self.allocs, context, node_id=node.id, group=group, register_again=node.register_again
        )
        on_lost = self.alloc_service.readiness.lose
        self._standing = standing = NodeRegistration(
            env,
            beat_due=node.beat_due,
            on_lost=on_lost,
            on_marks=health.take_marks,
            lists=self.alloc_service.watch,
            is_dev=config.dev,
        )
        token = NodeToken(surroundings.database, env, wake=node.beat_due.set)
        addresses = ServerAddresses(surroundings.learn_servers)
        self._connection = ServerConnection(
            surroundings.server,
            env,
            node=node,
            token=token,
            standing=standing,
            servers=addresses,
        )
        self.calls = self._calls(context, token)
        self._loops = self._compose_loops(context, holders, offers)

    def _context(
        self, env: Env, offers: OfferedNetworks, drivers: DriverTable, holders: DeviceHolders
    ) -> ClientContext:
        """Compose the parts that runners of allocations and tasks share."""
        config, surroundings, node, group = self.config, self._surroundings, self._node, self._group
        folder, makers = RecordFolder.of_machine(config.state_dir), NamespaceMakers(drivers)
        construction = Construction(config.networks, env, makers=makers, folder=folder)
        owner = owner_of(config.state_dir, is_dev=config.dev)
        places = CsiFolders(config.state_dir)
        plugins = CsiPlugins(env, places, drivers, node=node, group=group)
        volumes = CsiMounts(plugins, places, env, store=surroundings.database, server=surroundings.server, group=group)
        host_volumes = DynamicHostVolumes(config, surroundings.database, node)
        return ClientContext(
            config=config,
            env=env,
            store=surroundings.database,
            drivers=drivers,
            host_env=config.inherited_env(os.environ),
            node=node.current,
            server=surroundings.server,
            devices=self.devices,
            holders=holders,
            activity=DeviceActivity(
                env,
                devices=self.devices,
                holders=holders,
                interval_s=device_activity.interval_of(config.options),
                on_bucket=self.allocs.save,
            ),
            networks=Networks(offers, construction, env, owner=owner),
            csi=Csi(plugins, volumes, places),
            host_volumes=host_volumes,
            writers=VolumeWriters(self.allocs.unfinished_tasks, host_volumes.volume),
            templates=TemplateContext(
                settings=config.template,
                providers=config.template_providers,
                region=config.region,
                env=env,
                node=node.current,
                server=surroundings.server,
            ),
            task_api=surroundings.task_api,
            users=DynamicUsers(config.users),
        )

    def _calls(self, context: ClientContext, token: NodeToken) -> NodeCalls:
        config, env, allocs, node = self.config, context.env, self.allocs, self._node
        meter = partial(UsageMeter, env, node=node, devices=self.devices)
        usage = HostUsage(config.alloc_dir, env, node=node, devices=self.devices)
        pressure = MemoryPressure() if config.options.get(memory_pressure.OPTION) != usage_history.OFF else None
        execs = ExecSessions(partial(supervised, self._group))
        return NodeCalls(
            files=AllocFiles(config.alloc_dir, env, allocs=allocs, drivers=context.drivers),
            operations=AllocOperations(allocs, context, meter=meter(), execs=execs),
            garbage=GarbageCollector(config, env, allocs, on_removed=context.users.release),
            usage=usage,
            history=UsageHistory(allocs, env, meter=meter(pressure=pressure), node=node, devices=self.devices),
            # Its own meter: what `alloc status -stats` measures is since the last time that somebody asked.
            figures=ClientGauges(
                allocs, context, node=node, usage=usage, meter=meter(), status=lambda: self._standing.status
            ),
            metadata=Metadata(static_meta(config.meta), store=self._surroundings.database, node=node),
            token=token,
            host_volumes=context.host_volumes,
            is_debug=config.enable_debug,
        )

    def _compose_loops(
        self, context: ClientContext, holders: DeviceHolders, offers: OfferedNetworks
    ) -> tuple[ClientLoop, ...]:
        """Compose the loops that begin once an earlier agent's tasks have been restored."""
        config, env, group, service = self.config, context.env, self._group, self.alloc_service
        over_size = config.options.get(disk_use.OPTION, disk_use.STOP)
        sizes = DiskWatch(config.alloc_dir, env, mode=over_size, runners=lambda: self.allocs.live)
        disconnection = DisconnectionWatch(self.allocs, env, contact=lambda: self._standing.contact)
        spec = config.shutdown_drain
        has_history = config.options.get(usage_history.OPTION, usage_history.ON) != usage_history.OFF
        return (
            *(
                [ClientLoop("end of the shutdown drain", partial(self._end_drain, spec, env), may_fail=True)]
                if spec
                else ()
            ),
            ClientLoop("heartbeats", self._connection.run),
            ClientLoop("allocation reports", service.reporter.run),
            ClientLoop("allocation list", self._follow_allocs),
            ClientLoop("stop_on_client_after", disconnection.run),
            ClientLoop("garbage collection", self.calls.garbage.run),
            ClientLoop("sizes of allocations", partial(sizes.run, group)),
            *self._usage_loops(context, has_history=has_history),
            ClientLoop("networks of allocations", context.networks.run, may_fail=True),
            ClientLoop("networks of this machine", offers.run, may_fail=True),
            ClientLoop("health of devices", partial(self.devices.health.run, group)),
            ClientLoop("holders of devices", ClaimWatch(self.devices, holders, env, group=group).run),
            ClientLoop("idle devices", IdleWatch(self.devices, self.allocs, env).run, may_fail=True),
            ClientLoop("template renderer", context.templates.renderer.run, may_fail=True),
            ClientLoop("readiness", partial(service.readiness.run, self._standing.allow_ready)),
        )

    def _usage_loops(self, context: ClientContext, *, has_history: bool) -> tuple[ClientLoop, ...]:
        """The loops that sample tasks and, with a history, record the usage of tasks, devices and the host."""
        history = self.calls.history
        if has_history:
            return (
                ClientLoop("usage of the last minutes", history.run, may_fail=True),
                ClientLoop("activity of devices", context.activity.run, may_fail=True),
            )
        if self.config.options.get(memory_pressure.OPTION) == usage_history.OFF:
            return ()
        return (ClientLoop("memory pressure of tasks", partial(history.run, keeps=False), may_fail=True),)

    # The node and its servers.

    @property
    def node(self) -> Node:
        """The current node; before `run` it has only its id."""
        return self._node.value

    @property
    def node_id(self) -> str:
        """The node's id."""
        return self._node.id

    @property
    def is_ready(self) -> bool:
        """Whether the servers' last answer took the node for ready."""
        return self._standing.status == NODE_READY

    def facts(self) -> dict[str, str]:
        """The figures for Nomad's `agent-info`, by its names."""
        standing = self._standing
        return {
            "cluster_id": self.alloc_service.watch.cluster_id,
            "heartbeat_ttl": duration_text(round(standing.contact.ttl_s * NANOSECONDS)),
            "known_servers": ",".join(self.servers),
            "last_heartbeat": duration_text(round(standing.silence_s * NANOSECONDS)),
            "node_id": self.node_id,
            "num_allocations": str(len(self.allocs.live)),
        }

    @property
    def servers(self) -> Addresses:
        """The addresses of the servers, from the last server that answered."""
        return self._connection.servers.addresses

    def set_servers(self, addresses: Addresses) -> None:
        """Use these servers until a server's answer names others."""
        self._connection.servers.replace(addresses)

    def server_found(self) -> None:
        """Contact the servers at once, because one can be reached again."""
        self._connection.server_found()

    def alloc_namespace(self, alloc_id: str) -> str | None:
        """The namespace of an allocation of this node; None for one that this node does not run."""
        return self.allocs.namespace_of(alloc_id)

    # The life of the client.

    async def run(self, *, ready: asyncio.Event) -> None:
        """Run until cancelled; `ready` is set once the servers have accepted the node as ready. Tasks survive."""
        surroundings = self._surroundings
        described = await asyncio.to_thread(
            surroundings.describe, self.config, surroundings.identity, surroundings.plugin_attributes
        )
        self._node.change(lambda _: described)
        await self.calls.metadata.load()
        await self.devices.health.load()
        async with self._group as group:
            restored = asyncio.Event()
            supervised(group, "cores of recovered tasks", self._hold_cores(restored))
            fingerprinted = group.create_task(self._fingerprints.begin(), name="first fingerprints")
            await self.alloc_service.restore(fingerprinted)
            restored.set()
            for loop in self._loops:
                if loop.may_fail:
                    supervised(group, loop.name, loop.run())
                else:
                    group.create_task(loop.run(), name=loop.name)
            await self._standing.ready.wait()
            ready.set()

    async def _hold_cores(self, restored: asyncio.Event) -> None:
        """Let nothing change the cores of tasks before all that reserve some are known; bounded for slow engines."""
        with core_partitions.held():
            await restored.wait()
            await self.alloc_service.wait_recovered(RECOVERY_LIMIT_S)

    async def _follow_allocs(self) -> None:
        await self._standing.registered.wait()
        damage = self._surroundings.database.damage
        if damage:
            self._node_events.emit("Storage", f"Client state damaged: {damage}")
        await self.alloc_service.follow(self._standing.registered_index)

    async def exchange_drivers(self, new: Drivers, *, remake: Callable[[], Drivers]) -> int:
        """Replace drivers by new ones of the same names that recover their tasks; the number of these tasks.

        Raises Conflict with the reason when the old code goes on, Unavailable before the node is ready.
        """
        if not self._standing.ready.is_set():
            raise Unavailable("the node is not ready yet: try again in a moment")
        return await self._drivers.exchange(new, handles=self.allocs.live_handles, remake=remake)

    async def stop_all(self) -> None:
        """Kill every task and wait for the ends; `run` must still be running."""
        await self.alloc_service.runners.stop_all()

    async def drain(self, env: Env) -> bool:
        """Drain the node before the agent leaves; returns False when not configured or failed: tasks may still run."""
        spec = self.config.shutdown_drain
        return spec is not None and await self._shutdown_drain(spec, env).begin()

    async def _end_drain(self, spec: DrainSpec, env: Env) -> None:
        """End the drain of an earlier shutdown once the servers consider the node ready."""
        await self._standing.ready.wait()
        await self._shutdown_drain(spec, env).end()

    def _shutdown_drain(self, spec: DrainSpec, env: Env) -> ShutdownDrain:
        from yurt.client.allocations.shutdown_drain import ShutdownDrain  # Few agents drain.

        return ShutdownDrain(
            spec,
            self._surroundings.server,
            env,
            node_id=self.node_id,
            allocs=self.allocs,
            reporter=self.alloc_service.reporter,
        )

    async def finish_cleaning(self) -> None:
        """Wait, within a bound, until drivers have freed the resources of ended tasks."""
        await self.alloc_service.runners.finish_cleaning()
