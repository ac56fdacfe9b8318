"""The agents of a simulated cluster: the real parts of server and client agents, composed as `agent.node` does.

What is left out of an agent: how servers find each other (they know each other's addresses from the start), plugins as
packages (the driver is given), and the sockets of the HTTP API.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from yurt import __version__
from yurt.agent.config import AgentConfig
from yurt.agent.peers import ServerLinks
from yurt.agent.remote_agents import FarClients, FarServers
from yurt.agent.tls import TlsSettings
from yurt.client.client import Client, Surroundings
from yurt.client.config import ClientConfig
from yurt.client.servers.node_token import identified
from yurt.http.agent_info import AgentInfo
from yurt.http.app import make_app
from yurt.lifecycle.device_health import DeviceHealthSettings
from yurt.runtime.env import Env
from yurt.sdk.device import DevicePlugin
from yurt.sdk.driver import Driver
from yurt.sdk.errors import Conflict, Invalid
from yurt.server.config import AclConfig, ServerConfig
from yurt.server.log.event_buffer import Event
from yurt.server.peers import Peers
from yurt.server.server import Server
from yurt.state import Changes
from yurt.storage import snapshot_files
from yurt.storage.client_db import ClientDatabase, NodeIdentity
from yurt.storage.etcd.log import EtcdLog
from yurt.storage.log import CommandLog
from yurt.structs import status
from yurt.structs.commands import AnyCommand
from yurt.structs.member import Member
from yurt.structs.network import NetworkResource
from yurt.structs.node import Node, NodeCpuResources, NodeDiskResources, NodeMemoryResources, NodeResources
from yurt.structs.rules import RULES_VERSION
from yurt.structs.status import ELIGIBLE
from yurt.testing.sim.csi.plugin import CsiNodes
from yurt.testing.sim.disk import SimDisk
from yurt.testing.sim.driver import ISOLATING, MOUNTING, NO_RUN_CHECKS, PLAIN, RunChecks, SimDriver, SimHost
from yurt.testing.sim.env import SimEnv
from yurt.testing.sim.etcd import SimEtcd
from yurt.testing.sim.foreign.devices import FaultyDevices
from yurt.testing.sim.foreign.drivers import FaultyDriver
from yurt.testing.sim.foreign.plugins import NOTHING_FOREIGN, Foreign
from yurt.testing.sim.host import NoHeapKeeper, no_networks
from yurt.testing.sim.http import Answer, SimApi
from yurt.testing.sim.loop import Process, SimLoop
from yurt.testing.sim.network import Listening, SimNetwork
from yurt.testing.sim.volumes.folders import folder_of_volumes, folder_to_register, make_folders

REGION, RPC_PORT = "global", 4647
TOKEN_HEADER: Final = "X-Nomad-Token"
EVENTS_KEPT: Final = 20
"""How many events a server keeps: few, so that readers fall behind."""
READ_PAUSE_S: Final = 6.0
NODE_MHZ, NODE_MB, NODE_DISK_MB = 4_000, 8_192, 50_000
OnApplied = Callable[["SimServer", AnyCommand, Changes], None]
OnRestored = Callable[["SimServer"], None]
MANAGEMENT: Final = "5ec7e700-0000-4000-8000-00000000ac1d"
"""The secret of the management token, where access control is on."""


@dataclass(frozen=True)
class World:
    """The parts that all agents of a run share."""

    loop: SimLoop
    network: SimNetwork
    etcd: SimEtcd
    folder: Path
    seed: int
    has_acl: bool = False
    foreign: Foreign = NOTHING_FOREIGN
    schedulers: int = 1
    """The scheduler workers of each server."""
    failover_ttl_s: float = 300.0
    """How long a new leader waits for the first heartbeat of each node."""
    has_volumes: bool = False
    """Whether nodes make and register host volumes."""
    splits_job_types: bool = False
    """Whether each server schedules two job types only."""
    csi: CsiNodes | None = None
    """The CSI plugin of all nodes, if they have one."""


class Directory:
    """A fixed membership: all servers know each other from the start."""

    def __init__(self, members: tuple[Member, ...]) -> None:
        self._members = members

    def members(self) -> tuple[Member, ...]:
        """All servers, by name."""
        return self._members

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Nothing changes."""

    def published_rules(self) -> Mapping[str, int]:
        """The rules of all servers."""
        return {each.name: each.rules for each in self._members}


def member(name: str, host: str) -> Member:
    """A server at a host."""
    return Member(
        name=f"{name}.{REGION}",
        region=REGION,
        datacenter="dc1",
        version=__version__,
        address=f"{host}:4648",
        rpc_addr=f"{host}:{RPC_PORT}",
        http_addr=f"{host}:4646",
        has_data=True,
        rules=RULES_VERSION,
    )


def _job_types(server: str) -> tuple[str, ...]:
    """The two job types that the workers of a server schedule, where servers differ in this; three servers have all."""
    number, types = int(server.removeprefix("srv")) - 1, status.JOB_TYPES
    return types[number % len(types)], types[(number + 1) % len(types)]


def _ignore(*_: object) -> None:
    """The default of callbacks without a check."""


@dataclass(frozen=True)
class ServerChecks:
    """The checks that follow what one server applies and restores."""

    applied: OnApplied = _ignore
    restored: OnRestored = _ignore
    event: Callable[[SimServer, Event, bool], None] = _ignore
    """A reader of a server's events got one; whether it is the first since the reader started again."""


NO_SERVER_CHECKS: Final = ServerChecks()


class SimServer(Server):
    """A server that reports applied commands to the checks and leaves the interpreter's settings alone."""

    def __init__(self, config: ServerConfig, *, env: Env, log: CommandLog, peers: Peers, checks: ServerChecks) -> None:
        super().__init__(config, env=env, log=log, peers=peers)
        self._heap = NoHeapKeeper()  # type: ignore[assignment]
        self._checks = checks

    def _on_applied(self, command: AnyCommand, changes: Changes, size: int) -> None:
        super()._on_applied(command, changes, size)
        self._checks.applied(self, command, changes)

    async def _fetch_state(self) -> None:
        await super()._fetch_state()
        self._checks.restored(self)


class ServerAgent:
    """The host of one server: its disk outlives the agent's processes."""

    def __init__(
        self, world: World, name: str, host: str, directory: Directory, *, has_own_etcd: bool = True,
        checks: ServerChecks = NO_SERVER_CHECKS,
    ) -> None:  # fmt: skip
        self.name = name
        self.host = host
        self.process: Process | None = None
        self.server: SimServer | None = None
        self.api: SimApi | None = None
        self.starts = 0
        self._world = world
        self._directory = directory
        self._has_own_etcd = has_own_etcd
        self._checks = checks
        self._log: EtcdLog | None = None
        world.etcd.names[host] = f"{name}.{REGION}"

    @property
    def is_up(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and not self.process.is_dead

    def start(self) -> None:
        """Start the agent."""
        assert not self.is_up, self.name
        self.starts += 1
        self.process = Process(f"{self.host}#{self.starts}")
        self._world.loop.run_process(self.process, self._run(self.process), f"agent {self.name}")

    async def _run(self, process: Process) -> None:
        world, name = self._world, f"{self.name}.{REGION}"
        env = SimEnv(world.loop, process, world.seed)
        agent = AgentConfig(
            name=self.name,
            is_server=True,
            rpc_address=self.host,
            http_addresses=(self.host,),
            advertise_rpc=f"{self.host}:{RPC_PORT}",
            advertise_http=f"{self.host}:4646",
            raw={"limits": {"rpc_max_conns_per_client": 0}},
        )
        folder, tls = world.folder / self.name, TlsSettings()
        endpoint = world.etcd.endpoint(self.host)
        self._log = log = EtcdLog(
            endpoints=(endpoint,),
            folder=folder / "log",
            name=name,
            region=REGION,
            env=env,
            own_endpoint=endpoint if self._has_own_etcd else "",
            connect=world.etcd.channel,
        )
        links = ServerLinks(agent, directory=self._directory, env=env, tls=tls, run_id=f"run of {name}")
        settings = ServerConfig(
            name=name,
            rpc_addr=agent.advertise_rpc,
            data_dir=str(folder),
            snapshot_threshold=200,
            num_schedulers=world.schedulers,
            enabled_schedulers=_job_types(self.name) if world.splits_job_types else (),
            failover_heartbeat_ttl_s=world.failover_ttl_s,
            event_buffer_size=EVENTS_KEPT,
            acl=AclConfig(enabled=world.has_acl),
        )
        server = self.server = SimServer(settings, env=env, log=log, peers=links, checks=self._checks)
        api = self.api = SimApi(world.loop, process)
        info = AgentInfo(version=__version__, name=self.name, http_addr=agent.advertise_http, host_names=(self.host,))
        api.app = make_app(server.http, None, info, env=env, others=links)
        api.app.freeze()
        clients = FarClients(agent, server.rpc, tls, run_of=lambda known: f"run of {known}", api=api, bind=self._bind)
        await clients.start()
        async with asyncio.TaskGroup() as group:
            group.create_task(links.run(), name="connections to the other servers")
            group.create_task(self._tell_restored(server), name="tell that the state is restored")
            group.create_task(self._read_events(server, env), name="reader of events")
            await server.run(ready=asyncio.Event())
            raise asyncio.CancelledError

    async def _tell_restored(self, server: SimServer) -> None:
        while not server.log.loader.is_restored:  # noqa: ASYNC110 - a condition on virtual time
            await asyncio.sleep(0.001)
        self._checks.restored(server)

    def _bind(self, host: str, port: int, address: str) -> Listening:
        try:
            return self._world.network.listen(host, port)
        except OSError as error:
            raise Invalid(f"cannot listen on {address}: {error}") from None

    async def _read_events(self, server: SimServer, env: SimEnv) -> None:
        """Read all events, with pauses between which the reader is not connected."""
        seen = 0
        while True:
            try:
                seen = await self._read_some(server, seen, count=1 + int(env.random() * 3 * EVENTS_KEPT))
            except Conflict:
                seen = 0  # it fell behind, and the stream says so
            await env.sleep(env.random() * READ_PAUSE_S)

    async def _read_some(self, server: SimServer, seen: int, *, count: int) -> int:
        """Read `count` events after an index; returns the index of the last one."""
        async with contextlib.aclosing(server.log.events.subscribe(seen + 1 if seen else 0)) as events:
            async for event in events:
                self._checks.event(server, event, not seen)
                seen, count = event.index, count - 1
                if not count:
                    break
        return seen

    @property
    def snapshots(self) -> list[Path]:
        """The snapshots on its disk, oldest first."""
        folder = self._world.folder / self.name / "log" / "snapshots"
        try:
            names = os.listdir(folder)  # looked at each second: pathlib's search costs ten times as much
        except FileNotFoundError:
            return []
        return [folder / name for name in sorted(names) if name.endswith(snapshot_files.SUFFIX)]

    async def call(self, method: str, path: str, body: bytes | None, *, token: str = "") -> Answer:
        """Send one request to its HTTP API; raises ConnectionRefusedError or ConnectionResetError."""
        if self.api is None or not self.is_up:
            raise ConnectionRefusedError("connection refused")
        return await self.api.call(method, path, body, {TOKEN_HEADER: token} if token else {})

    async def kill(self, *, with_host: bool = False) -> None:
        """End the process as SIGKILL does, or the machine as a power failure does."""
        process, self.server, self.api = self.process, None, None
        if process is None or process.is_dead:
            return
        self._world.network.end_process(process, is_silent=with_host)
        if with_host:
            self._world.etcd.fail_host(self.host)
        await self._world.loop.kill(process)
        self.close_files()

    def close_files(self) -> None:
        """Close what its process has open, as the kernel does at its end."""
        if self._log is not None:
            self._log._folder.close()

    def power_on(self) -> None:
        """Power the machine on: its etcd member and its agent start."""
        self._world.etcd.down.discard(self.host)
        self.start()


class ClientAgent:
    """The host of one client: its tasks and its disk outlive the agent's processes."""

    def __init__(
        self, world: World, name: str, host: str, servers: tuple[str, ...], *, checks: RunChecks = NO_RUN_CHECKS
    ) -> None:
        self.name = name
        self.host = host
        self.machine = SimHost(world.loop, host, world.seed, checks=checks)
        self.machine.csi = world.csi.add(name) if world.csi is not None else None
        self.disk = SimDisk(world.loop, f"{world.seed} {host}")
        self.process: Process | None = None
        self.client: Client | None = None
        self.starts = 0
        self._world = world
        self._servers = servers

    @property
    def is_up(self) -> bool:
        """Whether its process runs."""
        return self.process is not None and not self.process.is_dead

    @property
    def registrable(self) -> Path:
        """The folder below which its folders may be registered as volumes."""
        return folder_to_register(self._world.folder, self.name)

    @property
    def node_id(self) -> str:
        """The node's id; "" before its first start."""
        return self.client.node_id if self.client is not None else ""

    def start(self) -> None:
        """Start the agent."""
        assert not self.is_up, self.name
        self.starts += 1
        self.process = Process(f"{self.host}#{self.starts}")
        self._world.loop.run_process(self.process, self._run(self.process), f"agent {self.name}")

    async def _run(self, process: Process) -> None:
        world = self._world
        env = SimEnv(world.loop, process, world.seed)
        database = ClientDatabase(None, open_worker=self.disk.open_worker)
        identity = await identified(database, env)
        agent = AgentConfig(name=self.name, is_client=True, client={"servers": self._servers})
        servers = FarServers(agent, identity=identity, env=env, tls=TlsSettings())
        folder = world.folder / self.name
        has_volumes = world.has_volumes
        if has_volumes:
            make_folders(world.folder, self.name)
        config = ClientConfig(
            state_dir=str(folder / "state"),
            alloc_dir=str(folder / "alloc"),
            name=self.name,
            http_addr=f"{self.host}:4646",
            gc_disk_usage_threshold=101.0,
            gc_inode_usage_threshold=101.0,
            options={"ephemeral_disk.over_size": "off", "usage_history": "off", "memory_pressure": "off"},
            # Simulated devices break all the time: they return at once, and none is locked.
            device_health=DeviceHealthSettings(probation_s=0.0, max_faults=0),
            host_volumes_dir=str(folder_of_volumes(world.folder, self.name)) if has_volumes else "",
            host_volume_register_dirs=(str(self.registrable),) if has_volumes else (),
        )
        given = Surroundings(
            identity=identity,
            server=servers.server,
            database=database,
            drivers=self._drivers(process),
            devices=self._devices(process),
            learn_servers=servers.learn,
            find_networks=no_networks,
            describe=self._describe,
        )
        self.client = client = Client(config, env, given)
        servers.join(client)
        async with asyncio.TaskGroup() as group:
            group.create_task(servers.run(), name="connection to the servers")
            group.create_task(client.run(ready=asyncio.Event()), name="client")

    def _drivers(self, process: Process) -> dict[str, Driver]:
        """The simulator's own driver, or the driver under test."""
        given, devices = self._world.foreign
        made: Driver
        if given is not None:
            made = FaultyDriver(given, self.machine, process)
        else:
            plain = MOUNTING if self._world.has_volumes or self._world.csi is not None else PLAIN
            made = SimDriver(self.machine, process, ISOLATING if devices is not None else plain)
        return {made.name: made}

    def _devices(self, process: Process) -> dict[str, DevicePlugin]:
        """The device plugin under test; none by default."""
        given = self._world.foreign.devices
        return {} if given is None else {given.name: FaultyDevices(given, self.machine, process)}

    def _describe(self, config: ClientConfig, identity: NodeIdentity, attributes: Mapping[str, str]) -> Node:
        """The node of a small machine, the same in every run."""
        address = NetworkResource(mode="host", device="eth0", ip=self.host, cidr=f"{self.host}/32", mbits=1000)
        return Node(
            id=identity.node_id,
            secret_id=identity.secret_id,
            name=self.name,
            datacenter="dc1",
            http_addr=config.http_addr,
            attributes={
                "kernel.name": "linux",
                "cpu.arch": "amd64",
                "nomad.version": "2.0.6",
                "os.signals": "SIGINT,SIGKILL,SIGTERM,SIGUSR1",
                **attributes,
            },
            node_resources=NodeResources(
                cpu=NodeCpuResources(cpu_shares=NODE_MHZ, total_cpu_cores=4, reservable_cpu_cores=(0, 1, 2, 3)),
                memory=NodeMemoryResources(memory_mb=NODE_MB),
                disk=NodeDiskResources(disk_mb=NODE_DISK_MB),
                networks=(address,),
                min_dynamic_port=20_000,
                max_dynamic_port=20_100,
            ),
            scheduling_eligibility=ELIGIBLE,
        )

    async def kill(self, *, with_host: bool = False) -> None:
        """End the process as SIGKILL does; tasks keep running unless `with_host`, a power failure, ends them."""
        process = self.process
        if process is None or process.is_dead:
            return
        self._world.network.end_process(process, is_silent=with_host)
        await self._world.loop.kill(process)
        if with_host:
            self.machine.crash()


AnyAgent = ServerAgent | ClientAgent
