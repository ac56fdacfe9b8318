"""Connects to a plugin binary, watches its process, and starts it again when it dies or hangs.

    absent -connect-> serving -(process ends | no answer to health checks)-> absent -(after a back-off)-> serving

Users of the plugin call `ready`, which waits for a while during a restart. After each start the plugin gets its
configuration, then its users recover their state in it (`subscribe`). A plugin that hangs blocks only its callers: each
call has a time limit, and the agent itself never waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
from collections.abc import Awaitable, Callable

import msgspec

from yurt.goplugin.connection import CallSpec, Connection, NotOffered, PluginGone
from yurt.goplugin.hclspec import encode_config, schema_from_spec, struct_of
from yurt.goplugin.health import PING_LIMIT_S, PING_S, HealthCheck
from yurt.goplugin.messages import (
    BASE_SERVICE,
    CONTROLLER_SERVICE,
    STDIO_SERVICE,
    Message,
    base_message,
)
from yurt.goplugin.process import PluginProcess, PluginSpec, find_process, log_line, start_process
from yurt.runtime.background import Background
from yurt.runtime.env import Env
from yurt.sdk.errors import DriverError, Invalid, RecoverableError, YurtError
from yurt.sdk.schema import decode_config
from yurt.sdk.value import Value
from yurt.structs.node import ProcessorTopology

log = logging.getLogger(__name__)

CALL_LIMIT_S = 30.0
CONNECT_LIMIT_S = 60.0
READY_LIMIT_S = 30.0
SHUTDOWN_LIMIT_S = 2.0
BACKOFF_FIRST_S = 1.0
BACKOFF_MAX_S = 60.0
STEADY_S = 60.0
API_VERSIONS = ("v0.1.0",)
TYPES = {2: "driver", 3: "device"}
EFFICIENCY = 1
"""The grade of a power-saving core; other cores have 0."""

PLUGIN_INFO = CallSpec(service=BASE_SERVICE, method="PluginInfo", limit_s=CALL_LIMIT_S)
CONFIG_SCHEMA = CallSpec(service=BASE_SERVICE, method="ConfigSchema", limit_s=CALL_LIMIT_S)
SET_CONFIG = CallSpec(service=BASE_SERVICE, method="SetConfig", limit_s=CALL_LIMIT_S)
SHUTDOWN = CallSpec(service=CONTROLLER_SERVICE, method="Shutdown", limit_s=SHUTDOWN_LIMIT_S)
STDIO = CallSpec(service=STDIO_SERVICE, method="StreamStdio")


OnStart = Callable[[Connection], Awaitable[None]]


class PluginFacts(Value, rename=None):
    """The identity that a plugin reports; `kind` is driver or device."""

    kind: str
    name: str
    version: str
    api_version: str


class BinaryPlugin:
    """One binary of `plugin_dir`."""

    def __init__(
        self,
        spec: PluginSpec,
        env: Env,
        *,
        ping_s: float = PING_S,
        ping_limit_s: float = PING_LIMIT_S,
        backoff_s: float = BACKOFF_FIRST_S,
    ) -> None:
        self.spec = spec
        self.facts = PluginFacts(kind="", name="", version="", api_version="")
        self.background = Background(f"plugin {spec.name}")
        self.failure = ""
        self._env = env
        self._health = HealthCheck(spec.name, pause_s=ping_s, limit_s=ping_limit_s)
        self._on_start: list[OnStart] = []
        self._backoff_first_s = self._backoff_s = backoff_s
        self._serving = asyncio.Event()
        self._changed = asyncio.Event()
        self._process: PluginProcess | None = None
        self._connection: Connection | None = None
        self._started_at = 0.0
        self.closed = asyncio.Event()

    def subscribe(self, on_start: OnStart) -> None:
        """Register a callback that gets the connection to each new process before other callers do."""
        self._on_start.append(on_start)

    @property
    def pid(self) -> int:
        """The pid of the plugin's process, 0 without one."""
        return self._process.reattach.pid if self._process else 0

    @property
    def is_serving(self) -> bool:
        """Whether calls may be made."""
        return self._serving.is_set()

    async def connect(self) -> None:
        """Reattach to the process of an earlier agent or start one, and supervise it; raises the reason for failure."""
        await self._connect()
        self.background.start("watch", self._keep)

    async def ready(self, *, limit_s: float | None = READY_LIMIT_S, after: Connection | None = None) -> Connection:
        """The present connection; waits for a restart while it is still `after`."""
        try:
            async with asyncio.timeout(limit_s):
                while after is not None and self._connection is after and not self.closed.is_set():
                    await self._changed.wait()
                await self._serving.wait()
        except TimeoutError:
            raise RecoverableError(f"plugin {self.spec.name} does not run: {self.failure}") from None
        if self._connection is None:
            raise PluginGone(f"plugin {self.spec.name} is closed")
        return self._connection

    async def _keep(self) -> None:
        """Restart the plugin whenever it ends, with a back-off that resets after a stable run."""
        while True:
            assert self._process is not None and self._connection is not None
            self.failure = await self._health.watch(self._process, self._connection)
            log.warning("plugin %s: pid %d is gone: %s", self.spec.name, self._process.reattach.pid, self.failure)
            self._serving.clear()
            await self._drop()
            if self._env.monotonic() - self._started_at > STEADY_S:
                self._backoff_s = self._backoff_first_s
            while not self._serving.is_set():
                await self._env.sleep(self._backoff_s)
                self._backoff_s = min(self._backoff_s * 2, BACKOFF_MAX_S)
                try:
                    await self._connect()
                except YurtError as error:
                    self.failure = str(error)
                    log.warning("plugin %s cannot be started again: %s", self.spec.name, error)

    async def _connect(self) -> None:
        """Start or reattach a process, connect, configure it and recover its tasks."""
        process = await find_process(self.spec)
        is_found = process is not None
        if process is None:
            process = await start_process(self.spec, self._env)
        connection = Connection(process.target, name=self.spec.name)
        self._process, self._connection = process, connection
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                await self._introduce(connection, is_found=is_found)
        except TimeoutError:
            await self._end()
            text = f"plugin {self.spec.name} did not answer within {CONNECT_LIMIT_S:g} s; it was killed"
            raise RecoverableError(text) from None
        except YurtError:
            await self._end()
            raise
        self._started_at = self._env.monotonic()
        self.failure = ""
        self.background.start("output", lambda: self._follow_output(connection))
        self._serving.set()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
        log.info("plugin %s: %s pid %d", self.spec.name, "found again" if is_found else "started", process.reattach.pid)

    async def _introduce(self, connection: Connection, *, is_found: bool) -> None:
        """Query the plugin's identity; configure a new process."""
        self.facts = facts_of(await connection.call(PLUGIN_INFO), self.spec.path)
        if not is_found:
            spec = (await connection.call(CONFIG_SCHEMA)).spec
            await connection.call(
                SET_CONFIG,
                msgpack_config=plugin_config(spec, self.spec),
                nomad_config=nomad_config(self.spec),
                plugin_api_version=self.facts.api_version,
            )
        for on_start in self._on_start:
            await on_start(connection)

    async def _follow_output(self, connection: Connection) -> None:
        """Read the plugin's standard output, which Go's side sends over gRPC; unread, it would block the plugin."""
        with contextlib.suppress(NotOffered, PluginGone, DriverError):
            async for data in connection.stream(STDIO):
                for line in data.data.splitlines():
                    log_line(self.spec.name, line)

    async def _drop(self) -> None:
        """Close the connection to a process, and kill the process if it still runs."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            await connection.close()
        if process is not None:
            await process.end(patience_s=0)

    async def _end(self) -> None:
        """Stop the process: by its shutdown call, else by a signal."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None and process is not None:
            try:
                await connection.call(SHUTDOWN)
            except YurtError:
                process.watched.send(signal.SIGTERM)
            await connection.close()
            await process.end()

    async def close(self, *, keeps_process: bool) -> None:
        """Detach from the plugin: stop its process, or leave it to the next agent."""
        self.closed.set()
        self._serving.set()
        self._changed.set()
        await self.background.close()
        if not keeps_process:
            await self._end()
            return
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if connection is not None:
            await connection.close()
        if process is not None:
            await process.leave()


def facts_of(answer: Message, path: str) -> PluginFacts:
    """The validated identity of a plugin."""
    kind = TYPES.get(answer.type, "")
    if not kind:
        raise DriverError(f"plugin {path} is of type {answer.type}; supported are drivers (2) and devices (3)")
    shared = [version for version in answer.plugin_api_versions if version in API_VERSIONS]
    if not shared:
        offered = ", ".join(answer.plugin_api_versions) or "none"
        raise DriverError(f"plugin {path} speaks the plugin API in {offered}; Yurt speaks {', '.join(API_VERSIONS)}")
    return PluginFacts(kind=kind, name=answer.name, version=answer.plugin_version, api_version=shared[-1])


def plugin_config(spec: Message, plugin: PluginSpec) -> bytes:
    """The `config` of the agent's plugin block, validated by the plugin's schema."""
    if spec.WhichOneof("block") is None:
        if plugin.config:
            raise Invalid(f"plugin {plugin.name} takes no configuration; remove its config block")
        return b""
    options = struct_of(f"{plugin.name}_options", schema_from_spec(spec))
    try:
        decoded = msgspec.to_builtins(decode_config(options, plugin.config))
    except Invalid as error:
        raise Invalid(f'plugin "{plugin.name}" in the configuration: {error}') from None
    return encode_config(spec, decoded)


def nomad_config(plugin: PluginSpec) -> Message:
    """The host settings that every plugin gets."""
    first, last = plugin.ports
    topology = None if plugin.topology is None else topology_message(plugin.topology)
    return base_message(
        "NomadConfig",
        driver=base_message("NomadDriverConfig", ClientMinPort=first, ClientMaxPort=last, Topology=topology),
    )


def topology_message(topology: ProcessorTopology) -> Message:
    """The processors of the node."""
    values = [distance for row in topology.distances for distance in row]
    cores = [
        base_message(
            "ClientTopologyCore",
            socket_id=core.socket_id,
            node_id=core.node_id,
            core_id=core.id,
            core_grade=0 if core.grade else EFFICIENCY,
            disable=core.disable,
            base_speed=core.base_speed,
            max_speed=core.max_speed,
            guess_speed=core.guess_speed,
        )
        for core in topology.cores
    ]
    return base_message(
        "ClientTopology",
        node_ids=list(topology.nodes),
        distances=base_message("ClientTopologySLIT", dimension=len(topology.distances), values=values),
        cores=cores,
        override_total_compute=topology.override_total_compute,
        override_withold_compute=topology.override_withold_compute,
    )
