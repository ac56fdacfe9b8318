"""Composes one agent of server, client, plugins and HTTP; starts and stops them.

Server and client are joined by direct calls: the client gets the server as its `ServerPort`, the server the client as
its `NodePort`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from aiohttp import web

from yurt.access import Access
from yurt.agent import binaries as binary_plugins
from yurt.agent.banner import DriverLine
from yurt.agent.component_configs import acl_config, agent_info, client_config, client_folder, server_config
from yurt.agent.config import AgentConfig
from yurt.agent.data_dir import AgentDataDir
from yurt.agent.limits import HttpLimits, http_limits
from yurt.agent.log_engine import log_engine, make_log
from yurt.agent.plugin_context import plugin_context
from yurt.agent.reload import PluginReloader
from yurt.agent.telemetry.settings import sink_settings, trace_settings
from yurt.agent.tls import TlsSettings, http_context, tls_settings
from yurt.client.client import Client, Surroundings
from yurt.client.config import AddedHooks, ClientConfig
from yurt.client.fingerprint.exclusion import CLOUDS, FINGERPRINTS
from yurt.client.fingerprint.host import host_uuid
from yurt.client.options import DriverChoice
from yurt.client.ports import ServerPort
from yurt.client.servers.node_token import identified
from yurt.http.agent_routes.metrics_snapshot import MetricsSource, gather
from yurt.http.app import add_audit, make_app
from yurt.http.call import AUTHORITY, CONTEXT, PLUGINS, RELOAD, RIGHTS
from yurt.http.cluster import CLUSTER
from yurt.http.edge.client_errors import STRANGERS
from yurt.http.edge.connections import Connections, ServedAddress
from yurt.http.edge.request_log import HTTP_OPTIONS
from yurt.http.edge.task_sockets import TaskSockets
from yurt.http.forwarding.regions import REGIONS
from yurt.plugins.manager import FAILED, LoadedPlugins, PluginManager, PluginStatus
from yurt.runtime.env import Env
from yurt.runtime.supervise import supervised
from yurt.sdk.value import replace
from yurt.server.backends import HttpBackend
from yurt.server.server import Server
from yurt.server.views import View
from yurt.storage.client_db import ClientDatabase

if TYPE_CHECKING:
    from yurt.agent.cluster.cluster import ServerCluster
    from yurt.agent.peers import ServerLinks
    from yurt.agent.regions import RegionLinks
    from yurt.agent.remote_agents import FarClients, FarServers
    from yurt.audit.trail import AuditTrail

log = logging.getLogger(__name__)

HTTP_CLOSE_LIMIT_S = 0.5
BackgroundTask = Callable[[], Coroutine[Any, Any, None]]
AUDIT_CLOSE_LIMIT_S = 5.0
PART_CLOSE_LIMIT_S = 30.0
"""Longer than the waits for drivers within a client that ends: it is for parts that do not end at all."""


def ignored(_: tuple[str, ...]) -> None:
    """Ignore new server addresses: a client in the server's own agent uses no other server."""


class Links(msgspec.Struct, frozen=True):
    """An agent's cluster, and its connections to and from other agents."""

    cluster: ServerCluster | None = None
    peers: ServerLinks | None = None
    regions: RegionLinks | None = None
    clients: FarClients | None = None
    servers: FarServers | None = None


class HttpEdge(msgspec.Struct, frozen=True):
    """The HTTP server of an agent."""

    runner: web.AppRunner
    tls: ssl.SSLContext | None
    limits: HttpLimits
    task_sockets: TaskSockets
    audit: AuditTrail | None = None

    async def end_streams(self) -> None:
        """End followed streams with their last chunks, while all that they read from still runs."""
        await self.runner.app[CONTEXT].followed.end_all(HTTP_CLOSE_LIMIT_S)

    def set_reload(self, reload: Callable[[], None]) -> None:
        """Set the function with which the API reloads the configuration; call it before the start."""
        self.runner.app[RELOAD] = reload


class AgentPlugins(msgspec.Struct, frozen=True):
    """The plugins of an agent: packages, binaries, and those that failed to load."""

    manager: PluginManager
    binaries: binary_plugins.Binaries
    failed: Sequence[PluginStatus] = ()


class Parts:
    """The running parts of one agent."""

    def __init__(
        self,
        *,
        server: Server | None,
        client: Client | None,
        links: Links,
        http: HttpEdge,
        plugins: AgentPlugins,
        background: Mapping[str, BackgroundTask] = {},
    ) -> None:
        """`background`: further tasks that run as long as the agent; their failure leaves the agent running."""
        self.server = server
        self.client = client
        self.links = links
        self.http = http
        self.plugins = plugins
        self._background = background
        self._server_ready = asyncio.Event()
        self._client_ready = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._server_task: asyncio.Task[None] | None = None
        self._cluster_task: asyncio.Task[None] | None = None
        self._audit_task: asyncio.Task[None] | None = None
        self._opened_log = False

    @property
    def node_id(self) -> str:
        """The client's node, or ""."""
        return self.client.node_id if self.client else ""

    async def start(
        self,
        group: asyncio.TaskGroup,
        sockets: Sequence[socket.socket],
        before_serving: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Begin to serve; HTTP answers at once, server and client follow.

        What `before_serving` does on a server that leads is done before anybody is answered.
        """
        if self.http.audit is not None:
            self._audit_task = group.create_task(self.http.audit.run(), name="audit log")
        if before_serving is not None and self.server is not None:
            self._server_task = group.create_task(self._run_server(self.server), name="server")
            await self._server_ready.wait()
            await before_serving()
        await self._serve_http(sockets)
        if self.links.clients is not None:
            await self.links.clients.start()
        if self.links.cluster is not None:
            await self.links.cluster.start()
            self._cluster_task = group.create_task(self.links.cluster.run(), name="cluster")
        if self.links.peers is not None:
            self._tasks.append(group.create_task(self.links.peers.run(), name="connections to the other servers"))
        if self.links.regions is not None:
            self._tasks.append(group.create_task(self.links.regions.run(), name="connections to other regions"))
        if self.server is not None and self._server_task is None:
            self._server_task = group.create_task(self._run_server(self.server), name="server")
        if self.links.servers is not None:
            self._tasks.append(group.create_task(self.links.servers.run(), name="connection to the servers"))
        if self.client is not None:
            self._tasks.append(group.create_task(self._run_client(self.client), name="client"))
        self._tasks += [supervised(group, name, run()) for name, run in self._background.items()]

    async def _serve_http(self, sockets: Sequence[socket.socket]) -> None:
        await self.http.runner.setup()
        own_sockets = self.links.clients.own_sockets if self.links.clients is not None else None
        connections = Connections(
            self.http.limits.per_address_max,
            own_sockets,
            strangers=self.http.runner.app[STRANGERS],
            options=HTTP_OPTIONS,
        )
        self.http.task_sockets.begin(
            self.http.runner, self.http.limits.per_address_max, self.http.runner.app[STRANGERS], HTTP_OPTIONS
        )
        handshake_s = self.http.limits.handshake_s
        for listener in sockets:
            await ServedAddress(
                self.http.runner, listener, connections, tls=self.http.tls, handshake_s=handshake_s
            ).start()

    async def _run_server(self, server: Server) -> None:
        """Run the server after its cluster has formed, since only then there is a log to open."""
        if self.links.cluster is not None and not self.links.cluster.formed.is_set():
            server.log.loader.awaits = "waits for its cluster to form"
            await self.links.cluster.formed.wait()
            server.log.loader.awaits = ""
        self._opened_log = True
        await server.run(ready=self._server_ready)

    async def _run_client(self, client: Client) -> None:
        if self.server is not None:
            await self._server_ready.wait()
        await client.run(ready=self._client_ready)

    async def wait_ready(self) -> None:
        """Wait until there is a leader and the node is ready."""
        if self.server is not None:
            await self._server_ready.wait()
        if self.client is not None:
            await self._client_ready.wait()

    def missing(self) -> list[str]:
        """The parts that are not ready yet, each with the reason; empty when all are ready."""
        found = []
        if self.server is not None and not self._server_ready.is_set():
            what = "knows no leader yet" if self.server.log.loader.is_restored else self.server.log.loader.why_unread
            found.append(f"the server {what}")
        if self.client is not None and not self._client_ready.is_set():
            what = "is not taken for ready by its servers yet"
            if found:
                what = "waits for the server"
            elif self.links.servers is not None and self.links.servers.problem:
                what = f"reaches no server: {self.links.servers.problem}"
            found.append(f"the client {what}")
        return found

    async def stop_tasks(self) -> None:
        """Stop every task of this node."""
        if self.client is not None:
            await self.client.stop_all()

    async def drain(self, env: Env) -> bool:
        """Drain this node where `drain_on_shutdown` says so; whether it is drained."""
        return self.client is not None and await self.client.drain(env)

    async def stop(self, *, leaves: bool) -> None:
        """Stop all parts; running tasks keep running. A server that leaves is removed from its cluster."""
        await self.http.end_streams()
        if self.client is not None:
            await self.client.finish_cleaning()
        for task in reversed(self._tasks):
            task.cancel()
            if (await asyncio.wait({task}, timeout=PART_CLOSE_LIMIT_S))[1]:
                log.error("a part of the agent does not end: limit_s=%g part=%s", PART_CLOSE_LIMIT_S, task.get_name())
        self.http.task_sockets.close()
        await self.http.runner.cleanup()
        await self._stop_audit()
        if self.links.clients is not None:
            await self.links.clients.stop()
        if self.server is not None and self._opened_log:
            await self.server.stop()
        if self._server_task is not None:
            self._server_task.cancel()
        if self.links.cluster is not None and self._cluster_task is not None:
            self._cluster_task.cancel()
            await asyncio.wait({self._cluster_task})
            await self.links.cluster.stop(leaves=leaves)
        await self.plugins.manager.close()
        await self.plugins.binaries.close()

    async def _stop_audit(self) -> None:
        """End the audit log with its last line."""
        if self.http.audit is None or self._audit_task is None:
            return
        self.http.audit.stop()
        _, late = await asyncio.wait({self._audit_task}, timeout=AUDIT_CLOSE_LIMIT_S)
        for task in late:
            log.error("audit log: the last lines are not written within %d s", AUDIT_CLOSE_LIMIT_S)
            task.cancel()

    def device_lines(self) -> dict[str, tuple[bool, str]]:
        """One line per device plugin: its devices, or why it has none."""
        return self.client.devices.lines() if self.client is not None else {}

    def driver_lines(self) -> list[DriverLine]:
        """The status of the node's drivers; a failed plugin appears under its own name."""
        assert self.client is not None
        lines = [
            DriverLine(name=name, is_healthy=info.healthy, reason=info.health_description)
            for name, info in self.client.node.drivers.items()
        ]
        return lines + [
            DriverLine(name=plugin.name, is_healthy=False, reason=plugin.reason, is_loaded=False)
            for plugin in self.plugins.failed
        ]


async def make_parts(config: AgentConfig, data: AgentDataDir, *, env: Env) -> Parts:
    """Construct every part; nothing runs yet."""
    tls = tls_settings(config)
    server, cluster, peers, regions = _own_server(config, data, env, tls) if config.is_server else NO_SERVER
    if server is not None:
        await env.in_thread(server.keys.keyring.open)  # a sealed root key without its key fails here
    servers: FarServers | None = None
    choice = DriverChoice(config.client.get("options", {}))
    plugins, loaded, binaries = PluginManager(refusal=choice.refusal), LoadedPlugins(), binary_plugins.Binaries()
    client, task_sockets = None, TaskSockets()
    if config.is_client:
        database = ClientDatabase(None if config.is_dev else client_folder(config, data) / "client.db")
        binaries = await binary_plugins.load(config, data, env)
        configs = {label: body for label, body in config.plugins.items() if label not in binaries.labels}
        packages = plugins.load(lambda name: plugin_context(config, data, name, choice.options), configs=configs)
        loaded = binaries.merged(packages, refusal=choice.refusal)
        _warn_of_unused(config, loaded, choice)
        settings = client_config(config, data)
        identity = await identified(database, env, host_uuid=host_uuid() if settings.has_host_uuid else "")
        port: ServerPort
        if server is not None:
            port = server.clients.calls
        else:
            from yurt.agent.remote_agents import FarServers

            servers = FarServers(config, identity=identity, env=env, tls=tls)
            port = servers.server
        surroundings = Surroundings(
            identity=identity,
            server=port,
            database=database,
            drivers=loaded.drivers,
            devices=loaded.devices,
            plugin_attributes=loaded.attributes(),
            learn_servers=servers.learn if servers is not None else ignored,
            task_api=task_sockets.serve,
        )
        client = Client(with_added(settings, loaded, tls, env), env, surroundings)
        if server is not None:
            server.clients.node_ports.attach(identity.node_id, client.calls)
        elif servers is not None:
            servers.join(client)
    info = agent_info(config, tuple(plugin_facts(status) for status in loaded.statuses))
    api = servers.api if servers is not None else None
    app = make_app(server.http if server is not None else None, client, info, env=env, servers=api, others=peers)
    trail = _audit(config, data, app, server)
    if cluster is not None and regions is not None:
        app[CLUSTER], app[REGIONS] = cluster, regions
    if client is not None:
        _let_servers_decide(app, config, client.node_id, servers, env)
        contexts = partial(plugin_context, config, data, options=config.client.get("options", {}))
        app[PLUGINS] = PluginReloader(
            plugins, client, statuses=loaded.statuses, context_for=contexts, facts=plugin_facts
        )
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=HTTP_CLOSE_LIMIT_S)
    links = Links(
        cluster=cluster,
        peers=peers,
        regions=regions,
        clients=_clients(config, server, cluster, tls),
        servers=servers,
    )
    return Parts(
        server=server,
        client=client,
        links=links,
        http=HttpEdge(runner, http_context(tls), http_limits(config), task_sockets, trail),
        plugins=AgentPlugins(plugins, binaries, [each for each in loaded.statuses if each.state == FAILED]),
        background={**_metric_tasks(config, app), **_trace_tasks(config, app)},
    )


def _metric_tasks(config: AgentConfig, app: web.Application) -> Mapping[str, BackgroundTask]:
    """The tasks that push the agent's metrics, if a sink is configured."""
    settings = sink_settings(config)
    if not settings.is_used:
        return {}
    from yurt.agent.telemetry.sinks import run_sinks

    context = app[CONTEXT]
    source = MetricsSource(settings=context.agent.telemetry, region=config.region, metrics=context.metrics)
    source = replace(source, client=context.client)
    if (server := context.server) is not None:
        # These go to the operator's own collectors: all rows are counted, as `/v1/metrics` does for everybody.
        view = partial(_whole_view, server)
        source = replace(source, facts=server.facts, view=view, cluster=app[CLUSTER])
    return {"metrics": partial(run_sinks, settings, context.env, partial(gather, source))}


def _trace_tasks(config: AgentConfig, app: web.Application) -> Mapping[str, BackgroundTask]:
    """The task that exports traces, if a collector is configured."""
    settings, context = trace_settings(config), app[CONTEXT]
    if settings is None or context.server is None:
        return {}
    from yurt.agent.telemetry.traces import run_traces

    return {"traces": partial(run_traces, settings, context.server, context.env)}


def _whole_view(server: HttpBackend) -> View:
    return View(server.replica.state, Access())


def _warn_of_unused(config: AgentConfig, loaded: LoadedPlugins, choice: DriverChoice) -> None:
    """Log which plugins and options of the client are not used."""
    for text in (
        *map(loaded.unused_text, loaded.unused),
        *choice.warnings(FINGERPRINTS.union(loaded.fingerprints)),
        *(
            f"client.fingerprint.{name}: there is no fingerprint of this name that can fail"
            for name in config.client.get("fingerprint", ())
            if name not in CLOUDS.union(loaded.fingerprints)
        ),
    ):
        log.warning("configuration without effect: %s", text)


def _audit(config: AgentConfig, data: AgentDataDir, app: web.Application, server: Server | None) -> AuditTrail | None:
    """The audit log of the application's requests, where there is one; raises Invalid."""
    block = config.raw.get("audit")
    if not block:
        return None
    from yurt.agent.blocks.audit import audit_trail

    counts = None if server is None else server.metrics
    trail = audit_trail(block, data.root, app[CONTEXT].env, counts)
    if trail is not None:
        add_audit(app, trail)
    return trail


def _let_servers_decide(
    app: web.Application, config: AgentConfig, node_id: str, servers: FarServers | None, env: Env
) -> None:
    """Let an agent without a server decide by the rights that a server reports; loaded only with access control."""
    times = acl_config(config.raw.get("acl", {}))
    if servers is None or not times.enabled:
        return
    from yurt.http.server_authority import ServerAuthority

    # A server answers with all rights at once, so the shortest of the times holds for them.
    ttl_s = min(times.token_ttl_s, times.policy_ttl_s, times.role_ttl_s)
    authority = ServerAuthority(partial(servers.server.caller_rights, node_id), env, ttl_s=ttl_s)
    app[AUTHORITY] = authority
    app[RIGHTS] = authority


def with_added(settings: ClientConfig, loaded: LoadedPlugins, tls: TlsSettings, env: Env) -> ClientConfig:
    """The client's settings with the additions of packages and of the agent."""
    return replace(settings, template_providers=loaded.providers, added=added_by(loaded, tls, env))


def added_by(loaded: LoadedPlugins, tls: TlsSettings, env: Env) -> AddedHooks:
    """The additions of packages and the agent to the client: all but drivers, device plugins and template providers."""
    fingerprints = dict(loaded.fingerprints)
    if tls.is_used:
        from yurt.agent.tls_expiry import NAME, TlsFingerprint  # Most agents of one machine have no certificate.

        fingerprints[NAME] = TlsFingerprint(tls, env)
    return AddedHooks(
        task=loaded.task_hooks,
        alloc=loaded.alloc_hooks,
        service_providers=loaded.service_providers,
        fingerprints=fingerprints,
        getters=loaded.artifact_getters,
    )


class OwnServer(NamedTuple):
    """The server of this agent, its cluster, and the connections to the cluster and to other regions."""

    server: Server | None = None
    cluster: ServerCluster | None = None
    links: ServerLinks | None = None
    regions: RegionLinks | None = None


NO_SERVER: Final = OwnServer()


def _own_server(config: AgentConfig, data: AgentDataDir, env: Env, tls: TlsSettings) -> OwnServer:
    """The server with its connections to the others; a dev agent's server is alone."""
    engine, settings = log_engine(config, data), server_config(config, data)
    if config.is_dev:
        log = make_log(config, data, engine=engine, own_endpoint="", env=env)
        return OwnServer(Server(settings, env=env, log=log))
    from yurt.agent.cluster.cluster import ServerCluster
    from yurt.agent.cluster.local_server import LocalServer
    from yurt.agent.peers import ServerLinks
    from yurt.agent.regions import FarAuthority, RegionLinks

    local = LocalServer(lambda: server.http)
    cluster = ServerCluster(config, data.server, engine=engine, env=env, tls=tls, local=local)
    log = make_log(config, data, engine=engine, own_endpoint=cluster.own_endpoint, env=env)
    links = ServerLinks(config, directory=cluster, env=env, tls=tls, run_id=cluster.run_id)
    regions = RegionLinks(config, directory=cluster, env=env, tls=tls, run_id=cluster.run_id)
    decides_itself = settings.authoritative_region in ("", config.region)
    token = settings.acl.replication_token
    authority = None if decides_itself else FarAuthority(regions, settings.authoritative_region, token=token, env=env)
    server = Server(settings, env=env, log=log, peers=links, authority=authority)
    return OwnServer(server, cluster, links, regions)


def _clients(
    config: AgentConfig, server: Server | None, cluster: ServerCluster | None, tls: TlsSettings
) -> FarClients | None:
    """The listener for agents that connect; a dev agent's server has none."""
    if server is None or cluster is None:
        return None
    from yurt.agent.remote_agents import FarClients

    return FarClients(config, server.rpc, tls, run_of=cluster.run_of)


def plugin_facts(status: msgspec.Struct) -> Mapping[str, Any]:
    """The status of a plugin as the API shows it: every field."""
    facts = {field.encode_name: getattr(status, field.name) for field in msgspec.structs.fields(status)}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in facts.items()}
