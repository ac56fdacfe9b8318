"""The server: restores the state, follows or leads, and offers the cluster's operations.

It composes its parts (`composition`), runs them, and passes on to them what the log applies. Two things live as long as
the server: the log writer, which holds the state, and its role (`leadership.roles`), which follows the log or runs a
`Term`, all that only a leader does. What must be carried out by the leader finds it from any server.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from yurt.access import Authority
from yurt.runtime.env import Env
from yurt.runtime.metrics import Metrics
from yurt.runtime.supervise import supervised
from yurt.server.backends import HttpBackend, RpcBackend
from yurt.server.clients.node_ports import NodePorts
from yurt.server.composition import lazy_logins, make_clients, make_foundation, make_keys, make_resources
from yurt.server.config import ServerConfig
from yurt.server.leadership.peer_calls import PeerCalls
from yurt.server.leadership.roles import Roles
from yurt.server.leadership.term import Term
from yurt.server.log.catch_up import fetch_snapshot
from yurt.server.log.event_buffer import Event
from yurt.server.log.job_log_lines import log_lifecycle
from yurt.server.log.log_quota import gossip_sizes
from yurt.server.log.replica import Replica
from yurt.server.operations import OperationDependencies
from yurt.server.peers import NoPeers, Peers
from yurt.server.python_collector import HeapKeeper
from yurt.server.read_models import ReadModels
from yurt.server.scheduling.scheduling import Scheduling
from yurt.server.server_status import ServerFacts
from yurt.state import Changes, Snapshot
from yurt.storage.log import CommandLog
from yurt.structs.commands import AnyCommand, FinishRestore

if TYPE_CHECKING:
    from yurt.scheduler.capacity.limits import LimitsOf
    from yurt.server.resources.region_replication import AuthoritativeRegion


class Server:
    """A server of a region; `peers` are the others, `authority` is the authoritative region if it is another one."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        env: Env,
        log: CommandLog,
        peers: Peers | None = None,
        authority: AuthoritativeRegion | None = None,
        limits: LimitsOf | None = None,
    ) -> None:
        base = make_foundation(
            config,
            env,
            log,
            NoPeers(config.rpc_addr) if peers is None else peers,
            on_applied=self._on_applied,
            on_failed=self._step_down,
        )
        self._base = base
        self.config = config
        self.log = base.log
        self.leader = base.leader
        self.keys = make_keys(base)
        self.scheduling = Scheduling(base.replica, base.leader, log, config=config, metrics=base.metrics, limits=limits)
        node_ports = NodePorts(base.replica, base.peers)
        self.resources = make_resources(base, self.keys, self.scheduling, node_ports, authority=authority)
        self.clients = make_clients(base, self.keys, self.resources, node_ports)
        self.roles = Roles(
            base.replica,
            base.leader,
            log,
            config=config,
            make_term=self.make_term,
            fetch_state=self._fetch_state,
        )
        peer_calls = PeerCalls(
            base.replica, self.roles, log, loader=self.log.loader, keyring=self.keys.keyring, node_ports=node_ports
        )
        self.rpc = RpcBackend(self.clients, peer_calls, base.metrics)
        self.http = HttpBackend(
            config=config,
            replica=base.replica,
            leader=base.leader,
            loader=base.log.loader,
            events=base.log.events,
            authority=base.authority,
            callers=self.keys.callers,
            node_ports=node_ports,
            operation_dependencies=self._operation_dependencies(),
            facts=ServerFacts(
                base.replica,
                base.leader,
                roles=self.roles,
                log=base.log,
                metrics=base.metrics,
                usage_sums=base.usage_sums,
            ),
            metrics=base.metrics,
        )
        self._heap = HeapKeeper(env=env, metrics=base.metrics, rows=lambda: sum(map(len, self.state.tables())))
        self._stopping = asyncio.Event()
        self._finished = asyncio.Event()
        self._finished.set()

    @property
    def replica(self) -> Replica:
        """The replica: the state, and how to change it."""
        return self.log.replica

    @property
    def read_models(self) -> ReadModels:
        """Read models: rows for readers of many."""
        return self._base.read_models

    @property
    def metrics(self) -> Metrics:
        """The server's counters and measurements."""
        return self._base.metrics

    @property
    def authority(self) -> Authority:
        """The authority that decides about callers."""
        return self._base.authority

    @property
    def state(self) -> Snapshot:
        """The newest state."""
        return self.log.writer.state

    @property
    def is_leader(self) -> bool:
        """Whether this server leads and its duties run."""
        return self.leader.is_local

    @property
    def leader_name(self) -> str:
        """The name of the leader that this server follows; "" for none."""
        return self.leader.name

    @property
    def term(self) -> Term | None:
        """The present term while this server leads."""
        return self.roles.term

    async def run(self, *, ready: asyncio.Event) -> None:
        """Restore and serve until cancelled or stopped; `ready` is set once the state is loaded and a leader known."""
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
        self._heap.start()
        await self.log.loader.load()
        self.log.events.begin_after(self.state.index)
        self.clients.node_service.start(self.state)
        self._heap.freeze()
        async with asyncio.TaskGroup() as group:
            group.create_task(self.log.writer.run(), name="log writer")
            group.create_task(self.roles.run(ready), name="roles")
            supervised(group, "contact with the leader", self.roles.run_contact())
            supervised(group, "copies of root keys", self.keys.root_keys.run_copies())
            supervised(group, "scheduler workers for the leader", self.scheduling.run_afar())
            supervised(group, "snapshots", self.log.snapshotter.run())
            supervised(group, "database sizes", gossip_sizes(self.log.command_log, self.leader.peers))
            supervised(group, "garbage collector", self._heap.run())

    async def stop(self) -> None:
        """End `run`: hand over leadership, store a last snapshot and close the log."""
        self._stopping.set()
        await self._finished.wait()
        is_restored = self.log.loader.is_restored
        if is_restored:
            await self.roles.resign()
        self._heap.pause()
        try:
            if is_restored:
                await self.log.snapshotter.save()
            await self.log.command_log.close()
        finally:
            self._heap.restore_defaults()

    def make_term(self) -> Term:
        """The parts of one term, not yet running."""
        self.metrics.count("raft.state.leader")
        return Term(
            self.replica,
            self.config,
            scheduling=self.scheduling,
            node_service=self.clients.node_service,
            resources=self.resources,
            keys=self.keys,
        )

    def _operation_dependencies(self) -> OperationDependencies:
        """The operations of callers."""
        base, keys = self._base, self.keys
        return OperationDependencies(
            replica=base.replica,
            leader=base.leader,
            config=self.config,
            scheduling=self.scheduling,
            resources=self.resources,
            root_keys=keys.root_keys,
            introductions=self.clients.introductions,
            logins=lazy_logins(base, keys),
            read_models=base.read_models,
            sessions=None if keys.callers is None else keys.callers.sessions,
        )

    async def _fetch_state(self) -> None:
        """Continue from another server's state, and wake all waiters for a change."""
        log = self.log
        state = await fetch_snapshot(self.leader.peers, log.command_log, after=self.state.index)
        await log.loader.install(state)
        self.clients.node_service.start(state)
        self.keys.root_keys.look()
        log.events.break_off(state.index)
        self.read_models.reset()
        self._base.usage_sums.reset()
        log.watches.wake_all()
        log.replica.waiter.reached(state.index)

    def _step_down(self) -> None:
        self.roles.step_down()

    def _on_applied(self, command: AnyCommand, changes: Changes, size: int) -> None:
        """Notify the parts that follow the state of a command's changes, in this order."""
        index = self.state.index
        self._heap.note_writes(len(changes))
        self.clients.node_service.observe(changes, index=index)
        self.keys.root_keys.observe(changes)
        if self.roles.term is not None:
            self.roles.term.observe(changes, index=index)
        if isinstance(command, FinishRestore) and changes:
            self.clients.node_service.start(self.state)
            self.read_models.reset()
            self._base.usage_sums.reset()
            self.roles.restart_duties()
        else:
            log_lifecycle(changes)
        self.read_models.observe(changes)
        self._base.usage_sums.observe(changes)
        self.log.events.add(Event(index, changes, command.event_type, size))
        self.log.replica.waiter.reached(index)
