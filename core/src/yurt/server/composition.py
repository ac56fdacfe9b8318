"""Composes a server from its parts in the order of their dependencies: log, keys, resources, clients.

The layers are the packages' (`server-layers` in pyproject.toml). A part that needs one above it is given a callable or
a protocol that lies below both, for example `ports.FindNode`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from yurt.access.authority import ALLOW_ALL, Authority
from yurt.runtime.env import Env
from yurt.runtime.metrics import Metrics
from yurt.server.clients.agent_processes import AgentProcesses
from yurt.server.clients.client_calls import ClientCalls
from yurt.server.clients.clients import Clients
from yurt.server.clients.introduction import Introductions
from yurt.server.clients.leader_calls import LeaderCalls, LocalCalls
from yurt.server.clients.node_authentication import NodeAuthenticator
from yurt.server.clients.node_identities import NodeIdentities
from yurt.server.clients.node_ports import NodePorts
from yurt.server.clients.node_service import NodeService
from yurt.server.clients.registrations import NodeRegistrations
from yurt.server.config import ServerConfig
from yurt.server.keys.identities import Identities
from yurt.server.keys.keyring import Keyring
from yurt.server.keys.keys import Keys
from yurt.server.keys.root_key_gc import RootKeyCollector
from yurt.server.keys.root_keys import RootKeys
from yurt.server.log.current_leader import CurrentLeader
from yurt.server.log.event_buffer import EventBuffer
from yurt.server.log.log_times import LogTimes
from yurt.server.log.log_writer import LogWriter, OnApplied
from yurt.server.log.replica import Replica
from yurt.server.log.server_log import ServerLog
from yurt.server.log.snapshots import Snapshotter
from yurt.server.log.state_loader import StateLoader
from yurt.server.log.state_waits import StateWaiter
from yurt.server.peers import Peers
from yurt.server.read_models import ReadModels
from yurt.server.resources.acl_policies import AclPolicies
from yurt.server.resources.acl_tokens import AclTokens
from yurt.server.resources.allocs import Allocs
from yurt.server.resources.csi_volumes import CsiVolumes
from yurt.server.resources.deployments import Deployments
from yurt.server.resources.disk_migration import DiskMigration
from yurt.server.resources.host_volumes import HostVolumes
from yurt.server.resources.jobs import Jobs
from yurt.server.resources.nodes import Nodes
from yurt.server.resources.resources import LazyGangs, ServerResources
from yurt.server.resources.services import Services
from yurt.server.resources.system import System
from yurt.server.resources.template_queries import TemplateQueries
from yurt.server.resources.variables import Variables
from yurt.server.scheduling.scheduling import Scheduling
from yurt.server.usage_sums import UsageSums
from yurt.state.watch import Watches
from yurt.storage.log import CommandLog

if TYPE_CHECKING:
    from yurt.server.keys.caller_rights import CallerRightsReader
    from yurt.server.keys.callers import Callers
    from yurt.server.login.service import Logins
    from yurt.server.resources.region_replication import AuthoritativeRegion, Replication


class Foundation(msgspec.Struct, frozen=True):
    """The parts on which all others depend."""

    config: ServerConfig
    metrics: Metrics
    log: ServerLog
    leader: CurrentLeader
    peers: Peers
    authority: Authority
    """The authority that decides about callers."""
    read_models: ReadModels
    usage_sums: UsageSums

    @property
    def replica(self) -> Replica:
        """The replica: reads, changes and waits for the state."""
        return self.log.replica


def make_foundation(
    config: ServerConfig,
    env: Env,
    command_log: CommandLog,
    peers: Peers,
    *,
    on_applied: OnApplied,
    on_failed: Callable[[], None],
) -> Foundation:
    """Creates the log and leadership. `on_applied` and `on_failed` are called while the log is written or followed."""
    watches = Watches()
    metrics = Metrics()
    times = LogTimes(metrics, env.monotonic)
    writer = LogWriter(
        command_log,
        on_applied=on_applied,
        on_batch=watches.wake,
        on_failed=on_failed,
        times=times,
        rules=lambda: peers.rules,
    )
    snapshotter = Snapshotter(command_log, writer=writer, env=env, config=config)
    log = ServerLog(
        command_log=command_log,
        writer=writer,
        replica=Replica(writer, StateWaiter(watches, lambda: writer.state), env),
        watches=watches,
        events=EventBuffer(config.event_buffer_size),
        snapshotter=snapshotter,
        loader=StateLoader(command_log, writer=writer, snapshotter=snapshotter, peers=peers, env=env),
    )
    leader = CurrentLeader(config.name, command_log=command_log, writer=writer, peers=peers, env=env)
    authority = _authority(config, writer, leader, env)
    return Foundation(config, metrics, log, leader, peers, authority, ReadModels(log.replica), UsageSums(log.replica))


def _authority(config: ServerConfig, writer: LogWriter, leader: CurrentLeader, env: Env) -> Authority:
    """The authority by tokens and policies if access control is on; imported only then."""
    if not config.acl.enabled:
        return ALLOW_ALL
    from yurt.acl import AclAuthority

    return AclAuthority(
        writer,
        env.now,
        age=leader,
        age_max_s=config.acl.token_ttl_s,
        thread=threading.get_ident,
    )


def make_keys(base: Foundation) -> Keys:
    """Creates the keys; kept in memory without a data directory."""
    config, replica = base.config, base.replica
    keyring = Keyring(Path(config.data_dir) if config.data_dir else None, config.keyring)
    root_keys = RootKeys(replica, base.leader, config, keyring=keyring, peers=base.peers)
    callers = _callers(base, keyring, root_keys)
    return Keys(
        keyring=keyring,
        root_keys=root_keys,
        collector=RootKeyCollector(replica, config.gc, root_keys),
        identities=Identities(replica, config, root_keys=root_keys, keyring=keyring),
        callers=callers,
        caller_rights=_caller_rights(base, callers),
    )


def _caller_rights(base: Foundation, callers: Callers | None) -> CallerRightsReader | None:
    """The source of callers' rights for agents without a server; imported only with access control."""
    if callers is None:
        return None
    from yurt.acl import AclAuthority
    from yurt.server.keys.caller_rights import CallerRightsReader

    assert isinstance(base.authority, AclAuthority), "callers are known only with access control"
    return CallerRightsReader(base.replica, base.leader, base.authority, callers)


def _callers(base: Foundation, keyring: Keyring, root_keys: RootKeys) -> Callers | None:
    if not base.config.acl.enabled:
        return None
    from yurt.server.keys.callers import Callers
    from yurt.server.keys.sessions import Sessions

    return Callers(base.replica, base.leader, keyring, Sessions(base.replica, root_keys, keyring))


def make_resources(
    base: Foundation,
    keys: Keys,
    scheduling: Scheduling,
    node_ports: NodePorts,
    *,
    authority: AuthoritativeRegion | None,
) -> ServerResources:
    """Creates the operations and duties of each resource."""
    config, replica = base.config, base.replica
    acl_tokens = AclTokens(replica, config)
    acl_policies = AclPolicies(replica, config, root_keys=keys.root_keys, keyring=keys.keyring)
    system = System(base.log, config, history=scheduling.history, root_keys=keys.collector, acl_tokens=acl_tokens)
    return ServerResources(
        jobs=Jobs(replica, config, scheduling.limits),
        allocs=Allocs(replica),
        deployments=Deployments(replica),
        nodes=Nodes(replica),
        services=Services(replica),
        variables=Variables(replica, base.leader, region=config.region, root_keys=keys.root_keys, keyring=keys.keyring),
        host_volumes=HostVolumes(replica, node_ports.find, region=config.region),
        csi_volumes=CsiVolumes(replica),
        gangs=LazyGangs(replica, base.log.watches),
        acl_tokens=acl_tokens,
        acl_policies=acl_policies,
        system=system,
        replication=None if authority is None else _replication(base, authority, acl_policies),
    )


def lazy_logins(base: Foundation, keys: Keys) -> Callable[[], Logins]:
    """Creates the login service at the first login, because most servers never need its imports."""

    @cache
    def logins() -> Logins:
        from yurt.server.login.service import Logins

        return Logins(base.replica, keys)

    return logins


def _replication(base: Foundation, authority: AuthoritativeRegion, policies: AclPolicies) -> Replication:
    # Most servers are of one region, and save the import.
    from yurt.server.resources.region_replication import Replication

    return Replication(base.replica, authority, base.metrics, seal=policies.sealed if base.config.acl.enabled else None)


def make_clients(base: Foundation, keys: Keys, resources: ServerResources, node_ports: NodePorts) -> Clients:
    """Creates the server's side of clients."""
    config, replica, leader, peers = base.config, base.replica, base.leader, base.peers
    node_service = NodeService(
        env=replica.env,
        writer=replica.writer,
        waiter=replica.waiter,
        peers=peers,
        makes_pools=config.authoritative_region in ("", config.region),
        metrics=base.metrics,
    )
    node_identities = NodeIdentities(replica, config.region, root_keys=keys.root_keys, keyring=keys.keyring)
    introductions = Introductions(replica, config, root_keys=keys.root_keys, keyring=keys.keyring, metrics=base.metrics)
    local_calls = LocalCalls(
        leader,
        node_service,
        NodeRegistrations(node_service, node_identities, AgentProcesses(replica, node_ports), nodes=resources.nodes),
        keys=keys,
        resources=resources,
    )
    calls = ClientCalls(
        replica,
        LeaderCalls(leader, peers, local_calls),
        node_service,
        identities=keys.identities,
        template_queries=TemplateQueries(replica, resources.variables, base.authority),
        disk_migration=DiskMigration(replica, node_ports.find),
    )
    calls.metrics = base.metrics
    authenticator = NodeAuthenticator(
        replica, leader, base.log.loader, node_identities=node_identities, introductions=introductions
    )
    return Clients(node_ports, node_service, introductions, authenticator, local_calls, calls)
