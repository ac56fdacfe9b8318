"""A simulated CSI plugin: its gRPC services on each node, and the mounts that they make there.

The plugin is a task of a job, as a real one is, and listens where its environment says. Clients reach it through
`CsiChannel`, in the place of a gRPC channel: the messages are CSI's own. A call that has begun goes on when its caller
is gone, and takes effect while the plugin's task runs; a failed call may have taken effect. Mounts outlive the plugin
and the agent, and end with the node's machine.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import posixpath
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from yurt.client.csi.messages import Message, message_class, methods
from yurt.testing.sim.loop import SimLoop

ENDPOINT: Final = "CSI_ENDPOINT"
PLUGIN: Final = "storage"
"""The id of the plugin."""
CALL_S: Final = (0.001, 0.05)
SLOW_S: Final = (0.5, 12.0)
CHANGES: Final = frozenset({"NodeStageVolume", "NodePublishVolume", "NodeUnpublishVolume", "NodeUnstageVolume"})


class Mount(NamedTuple):
    """A volume that is mounted for an allocation."""

    volume_id: str
    alloc_id: str
    access_mode: str
    is_writer: bool


@dataclass
class CsiFaults:
    """The rates at which a plugin fails or delays calls; a call that fails was carried out in half of all cases."""

    fails: float = 0.0
    slow: float = 0.0


class CsiError(Exception):
    """An answer of the plugin with a status code of gRPC."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code


class _Server(NamedTuple):
    """A task that listens: its view of the node's folders, and whether it runs."""

    folders: Mapping[str, str]
    is_alive: Callable[[], bool]


def _ignore(*_: object) -> None:
    """The default of callbacks without a check."""


@dataclass(frozen=True)
class CsiChecks:
    """The checks of each mount that is made and undone."""

    published: Callable[[CsiNode, Mount], None] = _ignore
    unpublished: Callable[[CsiNode, str], None] = _ignore


@dataclass
class CsiNode:
    """The mounts of a node, and the plugin's tasks there."""

    name: str
    chance: random.Random
    stages: bool
    """Whether the plugin mounts a volume once per node before it mounts it for an allocation."""
    has_controller: bool
    max_volumes: int
    faults: CsiFaults = field(default_factory=CsiFaults)
    mounts: dict[str, Mount] = field(default_factory=dict)
    """By the path on the host."""
    staged: dict[str, str] = field(default_factory=dict)
    """The staged volumes by the path on the host."""
    _servers: dict[str, _Server] = field(default_factory=dict)
    _busy: set[str] = field(default_factory=set)

    def serve(self, endpoint: str, folders: Mapping[str, str], is_alive: Callable[[], bool]) -> None:
        """Let a plugin's task that has started listen; `folders` are those of the host by its paths."""
        server = _Server(folders, is_alive)
        self._servers[_on_host(server, endpoint.removeprefix("unix://"))] = server

    def server(self, socket: str) -> _Server | None:
        """The task that listens at a socket."""
        found = self._servers.get(socket)
        return found if found is not None and found.is_alive() else None

    def power_off(self) -> None:
        """End all mounts, as a power failure does."""
        self.mounts.clear()
        self.staged.clear()
        self._servers.clear()

    def begin(self, name: str, request: Message) -> None:
        """Note that a call has begun; raises CsiError while another one changes the volume."""
        if name in CHANGES:
            if request.volume_id in self._busy:
                raise CsiError("ABORTED", "an operation on the volume is under way")
            self._busy.add(request.volume_id)

    def end(self, name: str, request: Message) -> None:
        """Note that a call has ended."""
        if name in CHANGES:
            self._busy.discard(request.volume_id)


class CsiNodes:
    """The plugin and the mounts of all nodes of a run."""

    def __init__(self, loop: SimLoop, seed: int) -> None:
        chance = random.Random(f"csi {seed}")
        self.checks = CsiChecks()
        self.nodes: list[CsiNode] = []
        self._loop = loop
        self._seed = seed
        self._stages, self.has_controller = chance.random() < 0.5, chance.random() < 0.5
        self._context = contextvars.copy_context()
        """That of no process: what the plugin does is not the agent's."""

    def add(self, name: str) -> CsiNode:
        """The part of a new node."""
        chance = random.Random(f"csi {self._seed} {name}")
        made = CsiNode(name, chance, self._stages, self.has_controller, chance.choice((0, 0, 1, 2)))
        self.nodes.append(made)
        return made

    def channel(self, target: str, **_options: Any) -> CsiChannel:
        """A connection to the plugin at a socket."""
        return CsiChannel(self, target.removeprefix("unix:"))

    def is_mounted(self, path: Path) -> bool:
        """Whether a volume is mounted at a path."""
        return any(str(path) in each.mounts or str(path) in each.staged for each in self.nodes)

    def unmount(self, path: Path, *, is_lazy: bool = False) -> None:
        """Remove the mount at a path, without the plugin."""
        for node in self.nodes:
            if node.mounts.pop(str(path), None) is not None:
                self.checks.unpublished(node, str(path))
            node.staged.pop(str(path), None)

    async def ask(self, socket: str, path: str, request: Message, timeout_s: float) -> Message:
        """Carry out a call, after some time; raises AioRpcError."""
        place, _, name = path.rpartition("/")
        service = place.rpartition(".")[2]
        node = next((each for each in self.nodes if each.server(socket) is not None), None)
        server = node.server(socket) if node is not None else None
        if node is None or server is None:
            await asyncio.sleep(CALL_S[0])
            raise _error("UNAVAILABLE", "connection refused")
        chance, future = node.chance, self._loop.create_future()
        delay_s = chance.uniform(*(SLOW_S if chance.random() < node.faults.slow else CALL_S))
        fails, is_done = chance.random() < node.faults.fails, chance.random() < 0.5
        try:
            node.begin(name, request)
        except CsiError as error:
            await asyncio.sleep(CALL_S[0])
            raise _error(error.code, str(error)) from None

        def answer() -> None:
            node.end(name, request)
            try:
                if not server.is_alive():
                    raise CsiError("UNAVAILABLE", "connection reset")
                if fails and not is_done:
                    raise CsiError("INTERNAL", "the storage does not answer")
                result = self._carry_out(node, server, service, name, request)
                if fails:
                    raise CsiError("UNAVAILABLE", "connection reset")
            except CsiError as error:
                if not future.done():
                    future.set_exception(_error(error.code, str(error)))
            else:
                if not future.done():
                    future.set_result(result)

        self._loop.call_later(delay_s, answer, context=self._context)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            raise _error("DEADLINE_EXCEEDED", "deadline exceeded") from None

    def _carry_out(self, node: CsiNode, server: _Server, service: str, name: str, request: Message) -> Message:
        made = methods(service)[name].response()
        match name:
            case "GetPluginInfo":
                made.name, made.vendor_version = "simulated.csi", "1"
            case "GetPluginCapabilities" if node.has_controller:
                kind = message_class("PluginCapability.Service").Type.Value("CONTROLLER_SERVICE")
                made.capabilities.add().service.type = kind
            case "NodeGetInfo":
                made.node_id, made.max_volumes_per_node = node.name, node.max_volumes
            case "NodeGetCapabilities" if node.stages:
                kind = message_class("NodeServiceCapability.RPC").Type.Value("STAGE_UNSTAGE_VOLUME")
                made.capabilities.add().rpc.type = kind
            case "ControllerGetCapabilities":
                made.capabilities.add().rpc.type = message_class("ControllerServiceCapability.RPC").Type.Value(
                    "LIST_VOLUMES"
                )
            case "NodeStageVolume":
                node.staged[_on_host(server, request.staging_target_path)] = request.volume_id
            case "NodePublishVolume":
                self._publish(node, server, request)
            case "NodeUnpublishVolume":
                self._unpublish(node, _on_host(server, request.target_path))
            case "NodeUnstageVolume":
                _unstage(node, request.volume_id, _on_host(server, request.staging_target_path))
        return made

    def _publish(self, node: CsiNode, server: _Server, request: Message) -> None:
        if node.stages and node.staged.get(_on_host(server, request.staging_target_path)) != request.volume_id:
            raise CsiError("FAILED_PRECONDITION", "the volume is not staged")
        target = _on_host(server, request.target_path)
        try:
            os.makedirs(target, exist_ok=True)
        except OSError as error:
            raise CsiError("INTERNAL", f"no folder: {error.strerror}") from None
        mode = message_class("VolumeCapability.AccessMode").Mode.Name(request.volume_capability.access_mode.mode)
        is_writer = not request.readonly and not mode.endswith("READER_ONLY")
        alloc_id = posixpath.basename(posixpath.dirname(target))
        made = Mount(request.volume_id, alloc_id, mode.lower().replace("_", "-"), is_writer)
        known = node.mounts.setdefault(target, made)
        if known != made:
            raise CsiError("ALREADY_EXISTS", "another volume is mounted there")
        self.checks.published(node, made)

    def _unpublish(self, node: CsiNode, target: str) -> None:
        if node.mounts.pop(target, None) is not None:
            self.checks.unpublished(node, target)
        if os.path.isdir(target):
            os.rmdir(target)


def _unstage(node: CsiNode, volume_id: str, path: str) -> None:
    if any(each.volume_id == volume_id for each in node.mounts.values()):
        raise CsiError("FAILED_PRECONDITION", "the volume is published")
    node.staged.pop(path, None)


class CsiChannel:
    """A connection to a plugin."""

    def __init__(self, nodes: CsiNodes, socket: str) -> None:
        self._nodes = nodes
        self._socket = socket

    def unary_unary(self, path: str, **_options: Any) -> Callable[..., Any]:
        """A call with one answer."""

        async def call(request: Message, *, timeout: float) -> Message:
            return await self._nodes.ask(self._socket, path, request, timeout)

        return call

    async def close(self) -> None:
        """Nothing is held."""


def _on_host(server: _Server, path: str) -> str:
    """The path on the host of one that a plugin's task sees."""
    for task_path, host_path in server.folders.items():
        if path == task_path or path.startswith(f"{task_path}/"):
            return host_path + path.removeprefix(task_path)
    return path


def _error(code: str, details: str) -> grpc.aio.AioRpcError:
    empty = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode[code], empty, empty, details=details)
