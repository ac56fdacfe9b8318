"""The server: restores the state, follows leadership, and offers the cluster's operations.

Three tasks live as long as the server: the log writer, the campaign reader, which takes every gain and loss of
leadership at once whatever the duties do, and the term keeper, which starts and ends terms to match. All that only a
leader does is in `Term`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from yurt.fsm import snapshot as snapshots
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.errors import NotFound, Unavailable
from yurt.server.allocs import Allocs
from yurt.server.config import ServerConfig
from yurt.server.deployments import Deployments
from yurt.server.disks import fetch_disk
from yurt.server.events import Event, EventBuffer
from yurt.server.gc import HeapKeeper
from yurt.server.host_volumes import HostVolumes
from yurt.server.identities import Identities
from yurt.server.jobs import Jobs
from yurt.server.keyring import Keyring
from yurt.server.life import log_life
from yurt.server.log_writer import LogWriter
from yurt.server.metrics import Metrics
from yurt.server.node_service import NodeService
from yurt.server.nodes import Nodes
from yurt.server.ports import NodePort
from yurt.server.replay import History, replay
from yurt.server.root_keys import RootKeys
from yurt.server.services import Services
from yurt.server.snapshots import Snapshotter
from yurt.server.stats import server_stats
from yurt.server.system import System
from yurt.server.template_queries import TemplateQueries
from yurt.server.term import Term
from yurt.server.variables import Variables
from yurt.server.waiting import StateWaiter
from yurt.state import Changes, Snapshot
from yurt.state.watch import Watches, WatchKey
from yurt.storage.log import CommandLog
from yurt.structs.cluster import SchedulerConfiguration
from yurt.structs.commands import AnyCommand, Applied, DropStagedPlans, FinishRestore, SetSchedulerConfiguration
from yurt.structs.explain import Replay
from yurt.structs.rpc import (
    AllocBatch,
    AllocPull,
    IdentityQuery,
    NodeEventsRequest,
    NodeReply,
    RegisterNodeRequest,
    SignedIdentity,
    TemplateAnswer,
    TemplateQuery,
    UpdateAllocsRequest,
)
from yurt.structs.service import ServiceRegistration

if TYPE_CHECKING:
    from yurt.scheduler.limits import LimitsOf

log = logging.getLogger(__name__)


class Server:
    """One server of a region."""

    def __init__(self, config: ServerConfig, *, env: Env, log: CommandLog, limits: LimitsOf | None = None) -> None:
        self.config = config
        self.env = env
        self.watches = Watches()
        self.events = EventBuffer(config.event_buffer_size)
        self.metrics = Metrics()
        self.writer = LogWriter(
            log, on_applied=self._on_applied, on_batch=self.watches.wake, on_failed=self._stop_leading
        )
        self.waiter = StateWaiter(self.watches, lambda: self.state)
        self.node_service = NodeService(env=env, writer=self.writer, waiter=self.waiter, servers=(config.rpc_addr,))
        self.jobs = Jobs(self)
        self.nodes = Nodes(self)
        self.allocs = Allocs(self)
        self.deployments = Deployments(self)
        self.services = Services(self)
        self.system = System(self)
        self.root_keys = RootKeys(self)
        self.variables = Variables(self)
        self.host_volumes = HostVolumes(self)
        self.identities = Identities(self)
        self.template_queries = TemplateQueries(self)
        self.keyring = Keyring(Path(config.data_dir) if config.data_dir else None)
        self.started_at = env.now()
        self.leader_since = 0
        self.history = History()
        self.limits: Mapping[str, LimitsOf] = {} if limits is None else {"limits": limits}
        self._log = log
        self._snapshotter = Snapshotter(log, writer=self.writer, env=env, config=config)
        self._heap = HeapKeeper(env=env, metrics=self.metrics)
        self._ports: dict[str, tuple[NodePort, ...]] = {}
        self._term: Term | None = None
        self._wants_lead = False
        self._is_restored = False
        self._lead_changed = asyncio.Event()
        self._stopping = asyncio.Event()
        self._finished = asyncio.Event()
        self._finished.set()

    @property
    def state(self) -> Snapshot:
        """The newest state."""
        return self.writer.state

    @property
    def command_log(self) -> CommandLog:
        """The log, to read."""
        return self._log

    @property
    def is_restored(self) -> bool:
        """The state is what the log says, and no longer empty because nothing was read yet."""
        return self._is_restored

    @property
    def is_leader(self) -> bool:
        """This server leads, and its duties run."""
        return self._term is not None and self.writer.is_open

    @property
    def term(self) -> Term | None:
        """What runs while this server leads."""
        return self._term

    async def run(self, *, ready: asyncio.Event) -> None:
        """Restore, campaign and serve until cancelled or stopped; `ready` is set when the first term has begun."""
        self._finished.clear()
        try:
            await self._restore()
            async with asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self.writer.run(), name="log writer"),
                    group.create_task(self._read_campaign(), name="campaign"),
                    group.create_task(self._keep_terms(ready), name="terms"),
                ]
                tasks.append(supervised(group, "snapshots", self._snapshotter.run()))
                tasks.append(supervised(group, "garbage collector", self._heap.run()))
                await self._stopping.wait()
                for task in tasks:
                    task.cancel()
        finally:
            self._heap.restore_defaults()
            self._finished.set()

    async def stop(self) -> None:
        """End `run`, store a last snapshot and close the log."""
        self._stopping.set()
        await self._finished.wait()
        self._heap.pause()
        try:
            await self._snapshotter.save()
            await self._log.close()
        finally:
            self._heap.restore_defaults()

    async def propose(self, command: AnyCommand) -> Applied:
        """Durable and applied when it returns; raises NotFound, Conflict, Invalid or Unavailable."""
        return await self.writer.propose(command)

    async def replay(self, eval_id: str) -> Replay:
        """Make an evaluation's attempts again and compare; raises NotFound or Conflict."""
        return await replay(self, eval_id)

    async def wait_past(
        self, keys: Iterable[WatchKey], index_of: Callable[[Snapshot], int], *, min_index: int, timeout_s: float
    ) -> Snapshot:
        """A blocking query: the state once `index_of` it exceeds `min_index`, or when the time is over."""
        return await self.waiter.wait_past(keys, index_of, min_index=min_index, timeout_s=timeout_s)

    def attach_node(self, node_id: str, port: NodePort) -> None:
        """The node can be reached through the port, which is asked before those that it had already."""
        self._ports[node_id] = (*self._ports.get(node_id, ()), port)

    def detach_node(self, node_id: str, port: NodePort) -> None:
        """The node can no longer be reached through the port; others stay, older ones too."""
        left = tuple(each for each in self._ports.pop(node_id, ()) if each is not port)
        if left:
            self._ports[node_id] = left

    def node_port(self, node_id: str) -> NodePort:
        """How to reach a node; raises NotFound or Unavailable."""
        ports = self._ports.get(node_id)
        if ports:
            return ports[-1]
        if node_id not in self.state.nodes:
            raise NotFound(f"Unknown node {node_id}")
        raise Unavailable("No path to node")

    def stats(self) -> dict[str, dict[str, str]]:
        """Figures for `/v1/agent/self`."""
        return server_stats(self)

    async def register_node(self, request: RegisterNodeRequest) -> NodeReply:
        """Register or re-register a node."""
        return await self.node_service.register_node(request)

    async def heartbeat(self, node_id: str, status: str) -> NodeReply:
        """The node lives and believes itself to be `status`."""
        return await self.node_service.heartbeat(node_id, status)

    async def pull_allocs(self, node_id: str, *, min_index: int, timeout_s: float) -> AllocPull:
        """The node's allocations once they changed beyond `min_index`."""
        return await self.node_service.pull_allocs(node_id, min_index=min_index, timeout_s=timeout_s)

    async def get_allocs(self, node_id: str, alloc_ids: tuple[str, ...]) -> AllocBatch:
        """Allocations of the node with their jobs."""
        return await self.node_service.get_allocs(node_id, alloc_ids)

    async def update_allocs(self, request: UpdateAllocsRequest) -> int:
        """A client's reports; the index at which they were stored."""
        return await self.node_service.update_allocs(request)

    async def emit_events(self, request: NodeEventsRequest) -> None:
        """Add events to a node."""
        await self.node_service.emit_events(request)

    async def register_services(self, node_id: str, services: tuple[ServiceRegistration, ...]) -> int:
        """Service instances that run on the node; the index at which they are stored."""
        return await self.services.register(node_id, services)

    async def deregister_services(self, node_id: str, ids: tuple[str, ...]) -> int:
        """Service instances that no longer run on the node."""
        return await self.services.deregister(node_id, ids)

    def fetch_disk(self, node_id: str, alloc_id: str) -> AsyncGenerator[bytes]:
        """The data of an allocation's predecessor, from the node where it ran."""
        return fetch_disk(self, node_id, alloc_id)

    async def ask_for_template(self, query: TemplateQuery) -> TemplateAnswer:
        """What a task's template needs of the cluster."""
        return await self.template_queries.ask(query)

    async def sign_identity(self, query: IdentityQuery) -> SignedIdentity:
        """The token of a task that runs on a node."""
        return await self.identities.sign(query)

    async def _restore(self) -> None:
        self._heap.start()
        await self._log.open()
        found = await self._log.load_snapshot()
        if found is not None:
            self.writer.state = snapshots.decode(found[1])
            self._snapshotter.index = self.state.index
        count = await self.writer.replay()
        self.node_service.start(self.state)
        self._is_restored = True
        self._heap.freeze()
        if found is not None or count:
            log.info("state restored at index %d, %d commands replayed", self.state.index, count)

    async def _read_campaign(self) -> None:
        async for event in self._log.campaign():
            self._wants_lead = event.is_leader
            if not event.is_leader:
                self.writer.close()
            self._lead_changed.set()

    def _stop_leading(self) -> None:
        self._wants_lead = False
        self._lead_changed.set()

    async def _keep_terms(self, ready: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as group:
            running: asyncio.Task[None] | None = None
            while True:
                await self._lead_changed.wait()
                self._lead_changed.clear()
                if running is not None:
                    self._term = None
                    running.cancel()
                    await asyncio.wait({running})
                    running = None
                if self._wants_lead:
                    term = await self._begin_term()
                    running = group.create_task(term.run(), name="term")
                    ready.set()

    async def _begin_term(self) -> Term:
        if not self.writer.is_open:
            await self.writer.replay()
            self.writer.open()
            await self._set_defaults()
            if len(self.state.table("staged_plans")):
                await self.writer.propose(DropStagedPlans())
        term = Term(self)
        term.restore()
        self._term = term
        self.leader_since = self.env.now()
        return term

    async def _set_defaults(self) -> None:
        """The scheduler configuration of the agent's file holds until somebody stores another."""
        configured = self.config.scheduler_config
        if configured != SchedulerConfiguration() and "" not in self.state.table("scheduler_config"):
            await self.writer.propose(SetSchedulerConfiguration(configuration=configured))

    def _on_applied(self, command: AnyCommand, changes: Changes) -> None:
        index = self.state.index
        self.node_service.observe(changes, index=index)
        if self._term is not None:
            self._term.observe(changes, index=index)
        if isinstance(command, FinishRestore) and changes:
            self.node_service.start(self.state)
            self._lead_changed.set()
        else:
            log_life(changes)
        self.events.add(Event(index, changes, type(command).__name__))
        self.waiter.reached(index)
