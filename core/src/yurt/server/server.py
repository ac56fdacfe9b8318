"""The server: restores the state, follows or leads the cluster, and offers the cluster's operations.

Two things live as long as the server: the log writer, which holds the state, and its role (`roles`), which follows the
log or runs a `Term`, all that only a leader does. What must be carried out by the leader finds it from any server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from yurt.fsm import snapshot as snapshots
from yurt.runtime.env import Env
from yurt.runtime.supervise import keep_running, supervised
from yurt.sdk.errors import NotFound, Reason, Unavailable
from yurt.server.clients.node_identities import NodeIdentities
from yurt.server.clients.node_ports import NodePorts
from yurt.server.clients.node_service import KNOWN_LIMIT_S, NodeService
from yurt.server.config import ServerConfig
from yurt.server.failures import no_leader
from yurt.server.keys.identities import Identities
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.root_keys import RootKeys
from yurt.server.leadership.leader_calls import LeaderCalls
from yurt.server.leadership.peer_calls import PeerCalls
from yurt.server.leadership.roles import Roles
from yurt.server.log.catch_up import fetch_snapshot
from yurt.server.log.decisions import Contention, Decision, decide
from yurt.server.log.event_buffer import Event, EventBuffer
from yurt.server.log.job_log_lines import log_life
from yurt.server.log.log_quota import tell_rooms
from yurt.server.log.log_writer import Committed, LogWriter
from yurt.server.log.snapshots import Snapshotter
from yurt.server.log.state_waits import StateWaiter
from yurt.server.metrics import Metrics
from yurt.server.peers import NoPeers, PeerPort, Peers
from yurt.server.ports import NodePort
from yurt.server.python_collector import HeapKeeper
from yurt.server.resources.allocs import Allocs
from yurt.server.resources.deployments import Deployments
from yurt.server.resources.disk_migration import fetch_disk
from yurt.server.resources.host_volumes import HostVolumes
from yurt.server.resources.jobs import Jobs
from yurt.server.resources.nodes import Nodes
from yurt.server.resources.services import Services
from yurt.server.resources.system import System
from yurt.server.resources.template_queries import TemplateQueries
from yurt.server.resources.variables import Variables
from yurt.server.scheduling.replay import History, replay
from yurt.server.scheduling.work_sources import FarWork, Work
from yurt.server.scheduling.worker import Worker
from yurt.state import Changes, Snapshot
from yurt.state.watch import Watches, WatchKey
from yurt.storage.log import CommandLog, LogTrimmed
from yurt.structs.commands import AnyCommand, FinishRestore
from yurt.structs.explain.explanation import Replay
from yurt.structs.rpc import (
    AllocBatch,
    AllocPull,
    HeldIdentity,
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
from yurt.structs.volumes.csi import CSIClaimed, CSIClaimQuery

if TYPE_CHECKING:
    from yurt.scheduler.capacity.limits import LimitsOf
    from yurt.server.leadership.term import Term
    from yurt.server.resources.region_replication import AuthoritativeRegion

log = logging.getLogger(__name__)

CONFIRM_LIMIT_S = 5.0
START_RETRY_S = 1.0
DUTY_RETRY_S = 1.0


class Server:
    """One server of a region; `peers` are the others, none unless they are set before `run`.

    `authority` is set before `run` where another region decides about namespaces and node pools.
    """

    def __init__(self, config: ServerConfig, *, env: Env, log: CommandLog, limits: LimitsOf | None = None) -> None:
        self.config = config
        self.peers: Peers = NoPeers(config.rpc_addr)
        self.authority: AuthoritativeRegion | None = None
        self.env = env
        self.watches = Watches()
        self.events = EventBuffer(config.event_buffer_size)
        self.metrics = Metrics()
        self.writer = LogWriter(log, on_applied=self._on_applied, on_batch=self.watches.wake, on_failed=self._step_down)
        self.waiter = StateWaiter(self.watches, lambda: self.state)
        self.node_service = NodeService(
            env=env,
            writer=self.writer,
            waiter=self.waiter,
            servers=lambda: self.peers.addresses,
            makes_pools=config.authoritative_region in ("", config.region),
        )
        self.contention = Contention()
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
        self.node_identities = NodeIdentities(self)
        self.template_queries = TemplateQueries(self)
        self.keyring = Keyring(Path(config.data_dir) if config.data_dir else None)
        self.started_at = env.now()
        self.roles = Roles(self, log)
        self.leader_calls = LeaderCalls(self)
        self.history = History()
        self.limits: Mapping[str, LimitsOf] = {} if limits is None else {"limits": limits}
        self._log = log
        self._snapshotter = Snapshotter(log, writer=self.writer, env=env, config=config)
        self._heap = HeapKeeper(env=env, metrics=self.metrics, rows=lambda: sum(map(len, self.state.tables())))
        self.node_ports = NodePorts(lambda: self.peers)
        self.peer_calls = PeerCalls(self)
        self._is_restored = False
        self.awaits = ""
        """What it waits for before it opens its log."""
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
    def why_unread(self) -> str:
        """What this server does while its state cannot be read."""
        return self.awaits or "still reads its state"

    def need_state(self) -> None:
        """Raises Unavailable while the state is not there yet."""
        if not self._is_restored:
            raise Unavailable(f"this server {self.why_unread}; try again in a moment")

    @property
    def is_leader(self) -> bool:
        """This server leads, and its duties run."""
        return self.roles.term is not None and self.writer.is_open

    @property
    def leader_name(self) -> str:
        """The name of the server that leads, as far as this one knows; "" for none."""
        return self.roles.leader_name

    @property
    def leader_since(self) -> int:
        """When this server's present or last term began, unix ns; 0: never."""
        return self.roles.leader_since

    @property
    def term(self) -> Term | None:
        """What runs while this server leads."""
        return self.roles.term

    async def run(self, *, ready: asyncio.Event) -> None:
        """Restore and serve until cancelled or stopped; `ready` is set once the state is there and a leader known."""
        self._finished.clear()
        try:
            async with asyncio.TaskGroup() as group:
                serving = group.create_task(self._serve(ready), name="serving")
                await self._stopping.wait()
                serving.cancel()
        finally:
            self._heap.restore_defaults()
            self._finished.set()

    async def _serve(self, ready: asyncio.Event) -> None:
        await self._restore()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.writer.run(), name="log writer")
            group.create_task(self.roles.run(ready), name="roles")
            supervised(group, "contact with the leader", self.roles.run_contact())
            supervised(group, "copies of root keys", self.root_keys.run_copies())
            for number in range(self.config.num_schedulers):
                supervised(group, f"scheduler worker {number} for the leader", self._work_for_leader())
            supervised(group, "snapshots", self._snapshotter.run())
            supervised(group, "room of the log", tell_rooms(self._log, lambda: self.peers))
            supervised(group, "garbage collector", self._heap.run())

    async def stop(self) -> None:
        """End `run`, let another server lead, store a last snapshot and close the log."""
        self._stopping.set()
        await self._finished.wait()
        if self._is_restored:
            await self.roles.resign()
        self._heap.pause()
        try:
            if self._is_restored:
                await self._snapshotter.save()
            await self._log.close()
        finally:
            self._heap.restore_defaults()

    async def confirm(self) -> None:
        """Return when this server is known to lead after the call; raises Unavailable ("No cluster leader").

        The log may confirm a later term than the one in which it was asked, whose state is not applied here yet.
        """
        try:
            async with asyncio.timeout(CONFIRM_LIMIT_S):
                await self._log.confirm()
        except (Unavailable, TimeoutError):
            raise no_leader() from None
        if not self.is_leader:
            raise no_leader()

    async def propose(self, command: AnyCommand) -> Committed:
        """Durable and applied when it returns; raises NotFound, Conflict, Invalid, PermissionDenied or Unavailable."""
        return await self.writer.propose(command)

    async def decide(self, decision: Decision) -> Committed:
        """Decide on the newest state and have `apply` confirm what the decision was based on (`deciding`)."""
        return await decide(self, decision)

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
        self.node_ports.attach(node_id, port)

    def detach_node(self, node_id: str, port: NodePort) -> None:
        """The node can no longer be reached through the port; others stay, older ones too."""
        self.node_ports.detach(node_id, port)

    def node_port(self, node_id: str) -> NodePort:
        """How to reach a node, here or through another server; raises NotFound or Unavailable."""
        if not self.node_ports.has(node_id) and node_id not in self.state.nodes:
            raise NotFound(f"Unknown node {node_id}", reason=Reason.UNKNOWN_NODE)
        return self.node_ports.find(node_id)

    async def register_node(self, request: RegisterNodeRequest) -> NodeReply:
        """Register or re-register a node."""
        return await self.leader_calls.make(lambda leader: leader.register_node(request))

    async def heartbeat(self, node_id: str, status: str, identity: HeldIdentity | None = None) -> NodeReply:
        """The node lives and believes itself to be `status`."""
        return await self.leader_calls.make(lambda leader: leader.heartbeat(node_id, status, identity))

    async def pull_allocs(self, node_id: str, *, min_index: int, timeout_s: float) -> AllocPull:
        """The node's allocations once they changed beyond `min_index`."""
        return await self.node_service.pull_allocs(node_id, min_index=min_index, timeout_s=timeout_s)

    async def get_allocs(self, node_id: str, alloc_ids: tuple[str, ...]) -> AllocBatch:
        """Allocations of the node with their jobs."""
        return await self.node_service.get_allocs(node_id, alloc_ids)

    async def update_allocs(self, request: UpdateAllocsRequest) -> int:
        """A client's reports; the index at which they were stored."""
        return await self.leader_calls.make(lambda leader: leader.update_allocs(request))

    async def emit_events(self, request: NodeEventsRequest) -> None:
        """Add events to a node."""
        await self.leader_calls.make(lambda leader: leader.emit_events(request))

    async def register_services(self, node_id: str, services: tuple[ServiceRegistration, ...]) -> int:
        """Service instances that run on the node; the index at which they are stored."""
        return await self.leader_calls.make(lambda leader: leader.register_services(node_id, services))

    async def deregister_services(self, node_id: str, ids: tuple[str, ...]) -> int:
        """Service instances that no longer run on the node."""
        return await self.leader_calls.make(lambda leader: leader.deregister_services(node_id, ids))

    async def fetch_disk(self, node_id: str, alloc_id: str) -> AsyncGenerator[bytes]:
        """The data of an allocation's predecessor, from the node where it ran."""
        await self._know_alloc(alloc_id)
        async with aclosing(fetch_disk(self, node_id, alloc_id)) as pieces:
            async for piece in pieces:
                yield piece

    async def ask_for_template(self, query: TemplateQuery) -> TemplateAnswer:
        """What a task's template needs of the cluster."""
        await self._know_alloc(query.alloc_id)
        if not self.is_leader and not await self.waiter.wait_index(query.min_index, timeout_s=query.timeout_s):
            raise Unavailable(f"this server is at index {self.state.index} and has not reached {query.min_index} yet")
        return await self.template_queries.ask(query)

    async def claim_csi_volume(self, query: CSIClaimQuery) -> CSIClaimed:
        """A CSI volume for an allocation of a node; only the leader knows who else has it."""
        return await self.leader_calls.make(lambda leader: leader.claim_csi_volume(query))

    async def sign_identity(self, query: IdentityQuery) -> SignedIdentity:
        """The token of a task that runs on a node."""
        await self._know_alloc(query.alloc_id)
        if self.root_keys.usable() is not None:
            return await self.identities.sign(query)
        return await self.leader_calls.make(lambda leader: leader.sign_identity(query))

    async def knows_node(self, node_id: str) -> bool:
        """Whether the cluster knows a node; a server that follows asks how far the leader is before it denies that."""
        if node_id not in self.state.nodes and not self.is_leader:
            try:
                index = (await self._leading_peer().status()).index
            except Unavailable as error:
                log.debug("how far the leader is cannot be asked: %s", error)
            else:
                await self.waiter.wait_index(index, timeout_s=KNOWN_LIMIT_S)
        return node_id in self.state.nodes

    async def _know_alloc(self, alloc_id: str) -> None:
        """A server that follows may learn of an allocation a moment after the client that asks about it."""
        if not self.is_leader and alloc_id not in self.state.allocs:
            known, limit_s = [("allocs", alloc_id)], KNOWN_LIMIT_S
            await self.wait_past(known, lambda state: alloc_id in state.allocs, min_index=0, timeout_s=limit_s)

    def worker(self, work: Work) -> Worker:
        """One that schedules on this server's state."""
        return Worker(
            work,
            env=self.env,
            current=lambda: self.state,
            waiter=self.waiter,
            metrics=self.metrics,
            limits=self.limits,
        )

    async def _work_for_leader(self) -> None:
        """Schedule what the leader has to spare, while this server follows; until cancelled."""
        worker = self.worker(FarWork(self._leading_peer, lambda: self.state, env=self.env))

        async def work() -> None:
            await worker.run_afar(self.roles.wait_following)

        await keep_running("a worker for the leader", work, pause=lambda: self.env.sleep(DUTY_RETRY_S))

    def _leading_peer(self) -> PeerPort:
        """The server that leads; raises Unavailable ("No cluster leader") while none does, or this one."""
        name = self.leader_name
        if name in ("", self.config.name):
            raise no_leader()
        return self.peers.peer(name)

    async def install(self, state: Snapshot) -> None:
        """Go on from the state of another server, which is newer; whoever waits for a change looks again."""
        await self.writer.install(state)
        self._snapshotter.index = state.index
        self.node_service.start(state)
        self.root_keys.look()
        self.events.break_off()
        self.watches.wake_all()
        self.waiter.reached(state.index)

    async def _restore(self) -> None:
        self._heap.start()
        await self._log.open()
        found = await self._log.load_snapshot()
        if found is not None:
            self.writer.state = snapshots.decode(found[1])
            self._snapshotter.index = self.state.index
        count = await self._replay()
        self.node_service.start(self.state)
        self._is_restored = True
        self._heap.freeze()
        if found is not None or count:
            log.info("state restored at index %d, %d commands replayed", self.state.index, count)

    async def _replay(self) -> int:
        """Apply the log; where it begins too late, a snapshot of another server comes before it."""
        while True:
            try:
                return await self.writer.replay()
            except (LogTrimmed, Unavailable) as error:
                if isinstance(self.peers, NoPeers):
                    raise
                log.warning("this server cannot start yet: %s", error)
                if isinstance(error, LogTrimmed) and await self._start_from_peer():
                    continue
            await self.env.sleep(START_RETRY_S)

    async def _start_from_peer(self) -> bool:
        """Begin with the state of another server; whether one gave it."""
        try:
            self.writer.state = await fetch_snapshot(self.peers, self._log, after=self.state.index)
        except Unavailable as error:
            log.error("this server cannot start yet: %s", error)
            return False
        self._snapshotter.index = self.state.index
        return True

    def _step_down(self) -> None:
        self.roles.step_down()

    def _on_applied(self, command: AnyCommand, changes: Changes) -> None:
        index = self.state.index
        self._heap.written += len(changes)
        self.node_service.observe(changes, index=index)
        self.root_keys.observe(changes)
        if self.roles.term is not None:
            self.roles.term.observe(changes, index=index)
        if isinstance(command, FinishRestore) and changes:
            self.node_service.start(self.state)
            self.roles.begin_anew()
        else:
            log_life(changes)
        self.events.add(Event(index, changes, command.event_type))
        self.waiter.reached(index)
