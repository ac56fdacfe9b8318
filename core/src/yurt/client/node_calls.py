"""The calls of servers to this node (`yurt.server.ports.NodePort`), each delegated to the part that answers it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from typing import Any

import msgspec

from yurt.client.allocations.alloc_operations import AllocOperations
from yurt.client.allocations.garbage import GarbageCollector
from yurt.client.files.alloc_files import AllocFiles
from yurt.client.gauges import ClientGauges
from yurt.client.host_usage import HostUsage
from yurt.client.node.metadata import Metadata
from yurt.client.servers.node_token import NodeToken
from yurt.client.usage_history import UsageHistory
from yurt.client.volumes.host_volumes import DynamicHostVolumes
from yurt.runtime.diagnostics import agent_diagnostics
from yurt.runtime.log_tap import log_texts
from yurt.structs.exec import ExecFrame, ExecInput, ExecRequest
from yurt.structs.rpc import (
    AllocCheckStatus,
    AllocResourceUsage,
    AllocUsageHistory,
    FileInfo,
    HostStats,
    HostUsageHistory,
    NodeMeta,
    StreamFrame,
)
from yurt.structs.volumes.host import HostVolume, HostVolumeMade


class UsageCalls(msgspec.Struct, frozen=True, kw_only=True):
    """The calls about the usage of the node and its allocations (`yurt.server.ports.UsagePort`)."""

    operations: AllocOperations
    usage: HostUsage
    history: UsageHistory

    async def alloc_stats(self, alloc_id: str, task: str) -> AllocResourceUsage:
        """Resource usage of an allocation, or of one task when `task` is not empty."""
        return await self.operations.alloc_stats(alloc_id, task)

    async def host_stats(self) -> HostStats:
        """Resource usage of the host."""
        return await self.usage.stats()

    async def alloc_usage_history(self, alloc_id: str, task: str) -> AllocUsageHistory:
        """Usage in the last minutes of an allocation's tasks, or of one when `task` is not empty."""
        return await self.history.of_alloc(alloc_id, task)

    async def host_usage_history(self) -> HostUsageHistory:
        """Usage of the host in the last minutes."""
        return self.history.of_host()


class OlderNodeCalls(UsageCalls, frozen=True, kw_only=True):
    """The calls of servers of the previous version that newer servers do not make."""

    async def is_task_paused(self, alloc_id: str, *, task: str) -> bool:
        """Whether a task is paused, by a user or by its schedule; asked by an older server."""
        return await self.operations.schedule_state(alloc_id, task=task) != "run"


class NodeCalls(OlderNodeCalls, frozen=True, kw_only=True):
    """The calls of servers and of the agent's HTTP API to the node."""

    files: AllocFiles
    garbage: GarbageCollector
    figures: ClientGauges
    metadata: Metadata
    token: NodeToken
    host_volumes: DynamicHostVolumes
    is_debug: bool

    async def list_files(self, alloc_id: str, path: str) -> tuple[FileInfo, ...]:
        """A directory inside the allocation's directory, sorted by name."""
        return await self.files.list_files(alloc_id, path)

    async def stat_file(self, alloc_id: str, path: str) -> FileInfo:
        """One file or directory."""
        return await self.files.stat_file(alloc_id, path)

    def read_file(self, alloc_id: str, path: str, *, offset: int, limit: int) -> AsyncGenerator[bytes]:
        """The bytes from `offset`, at most `limit` (0: all)."""
        return self.files.read_file(alloc_id, path, offset=offset, limit=limit)

    def stream_file(
        self, alloc_id: str, path: str, *, offset: int, origin: str, follow: bool
    ) -> AsyncGenerator[StreamFrame]:
        """Frames of a file, following it; an empty frame is a heartbeat."""
        return self.files.stream_file(alloc_id, path, offset=offset, origin=origin, follow=follow)

    def stream_logs(
        self, alloc_id: str, task: str, *, kind: str, offset: int, origin: str, follow: bool
    ) -> AsyncGenerator[StreamFrame]:
        """Frames of a task's stdout or stderr over all rotated files."""
        return self.files.stream_logs(alloc_id, task, kind=kind, offset=offset, origin=origin, follow=follow)

    async def alloc_checks(self, alloc_id: str) -> tuple[AllocCheckStatus, ...]:
        """The last results of the checks of an allocation's services."""
        return await self.operations.alloc_checks(alloc_id)

    async def restart_alloc(self, alloc_id: str, *, task: str, all_tasks: bool) -> None:
        """Restart one task, or the running ones, or all of them."""
        await self.operations.restart_alloc(alloc_id, task=task, all_tasks=all_tasks)

    async def signal_alloc(self, alloc_id: str, *, task: str, signal: str) -> None:
        """Send a signal to one task, or to all when `task` is empty."""
        await self.operations.signal_alloc(alloc_id, task=task, signal=signal)

    async def pause_task(self, alloc_id: str, *, task: str, wish: str = "", is_paused: bool | None = None) -> None:
        """Pause a task, run it, or return it to its schedule; an older server sets only `is_paused`."""
        await self.operations.pause_task(alloc_id, task=task, wish=wish or ("pause" if is_paused else "run"))

    async def schedule_state(self, alloc_id: str, *, task: str) -> str:
        """The state of a task's schedule: pause, scheduled_pause or run."""
        return await self.operations.schedule_state(alloc_id, task=task)

    def exec_task(self, request: ExecRequest, inputs: AsyncIterator[ExecInput]) -> AsyncGenerator[ExecFrame]:
        """Run a command in a task; closing the frames, or the end of the inputs, ends it."""
        return self.operations.exec_task(request, inputs)

    def pack_disk(self, alloc_id: str) -> AsyncGenerator[bytes]:
        """The data of an ended allocation, for its successor on another node."""
        return self.operations.pack_disk(alloc_id)

    async def collect_garbage(self, alloc_id: str | None) -> None:
        """Remove the directory of one terminal allocation, or of all of them."""
        await self.garbage.collect(alloc_id)

    async def node_meta(self) -> NodeMeta:
        """The node's metadata."""
        return self.metadata.value

    async def apply_node_meta(self, changes: Mapping[str, str | None]) -> NodeMeta:
        """Change the node's metadata; None removes a value."""
        return await self.metadata.change(changes)

    async def node_identity(self) -> Mapping[str, Any]:
        """The claims of the node's identity; raises NotFound when it has none."""
        return await self.token.claims()

    async def agent_process(self) -> str:
        """The unique id of this agent process, which it registers with the servers."""
        return self.token.process

    async def renew_node_identity(self) -> None:
        """Have the node's identity replaced with its next heartbeat."""
        self.token.renew()

    def monitor(self, *, level: str, as_json: bool, has_location: bool = False) -> AsyncGenerator[str]:
        """The log of the agent as it is written, at a level; an empty text is a heartbeat."""
        return log_texts(level=level, as_json=as_json, has_location=has_location)

    def agent_insides(self, *, what: str, options: Mapping[str, str]) -> AsyncGenerator[bytes]:
        """Profiles and tables of the agent (`yurt.runtime.diagnostics`); an empty piece is a heartbeat."""
        return agent_diagnostics(what, options, is_debug=self.is_debug)

    async def create_host_volume(self, volume: HostVolume) -> HostVolumeMade:
        """Have a plugin make a volume and offer it; a call with the id of an existing volume changes that."""
        return await self.host_volumes.create(volume)

    async def register_host_volume(self, volume: HostVolume) -> HostVolumeMade:
        """Offer a folder of the node as a volume."""
        return await self.host_volumes.register(volume)

    async def delete_host_volume(self, volume: HostVolume) -> None:
        """Withdraw a volume and have its plugin remove it."""
        await self.host_volumes.delete(volume)
