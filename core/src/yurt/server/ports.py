"""What a server requires of others: of a client node (files, logs, resource usage, actions on running allocations),
and of the membership (which servers there are)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from yurt.access.calls import CallerKind, allowed
from yurt.structs.exec import ExecFrame, ExecInput, ExecRequest
from yurt.structs.member import Member
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


class OlderNodePort(Protocol):
    """Calls that servers of the version before this one make; the next version drops them."""

    @allowed(CallerKind.SERVER)
    async def is_task_paused(self, alloc_id: str, *, task: str) -> bool:
        """Whether a task is paused; asked by a server of the version before schedules."""
        ...


class UsagePort(Protocol):
    """What a client node and its allocations use."""

    @allowed(CallerKind.SERVER)
    async def alloc_stats(self, alloc_id: str, task: str) -> AllocResourceUsage:
        """Usage of an allocation, or of one task if `task` is not empty."""
        ...

    @allowed(CallerKind.SERVER)
    async def host_stats(self) -> HostStats:
        """Usage of the host."""
        ...

    @allowed(CallerKind.SERVER)
    async def alloc_usage_history(self, alloc_id: str, task: str) -> AllocUsageHistory:
        """Usage in the last minutes of an allocation's tasks, or of one if `task` is not empty."""
        ...

    @allowed(CallerKind.SERVER)
    async def host_usage_history(self) -> HostUsageHistory:
        """Usage of the host in the last minutes."""
        ...


class NodePort(OlderNodePort, UsagePort, Protocol):
    """Calls raise NotFound (unknown allocation, task or file), Invalid (bad argument) or DriverError."""

    @allowed(CallerKind.SERVER)
    async def list_files(self, alloc_id: str, path: str) -> tuple[FileInfo, ...]:
        """A directory in the allocation's directory, sorted by name."""
        ...

    @allowed(CallerKind.SERVER)
    async def stat_file(self, alloc_id: str, path: str) -> FileInfo:
        """A file or directory."""
        ...

    @allowed(CallerKind.SERVER)
    def read_file(self, alloc_id: str, path: str, *, offset: int, limit: int) -> AsyncIterator[bytes]:
        """The bytes from `offset`, at most `limit` (0: all)."""
        ...

    @allowed(CallerKind.SERVER)
    def stream_file(
        self, alloc_id: str, path: str, *, offset: int, origin: str, follow: bool
    ) -> AsyncIterator[StreamFrame]:
        """Frames of a followed file; an empty frame is a heartbeat."""
        ...

    @allowed(CallerKind.SERVER)
    def stream_logs(
        self, alloc_id: str, task: str, *, kind: str, offset: int, origin: str, follow: bool
    ) -> AsyncGenerator[StreamFrame]:
        """Frames of a task's stdout or stderr over all rotated files."""
        ...

    @allowed(CallerKind.SERVER)
    async def alloc_checks(self, alloc_id: str) -> tuple[AllocCheckStatus, ...]:
        """The last results of an allocation's service checks."""
        ...

    @allowed(CallerKind.SERVER)
    async def node_meta(self) -> NodeMeta:
        """The node's metadata."""
        ...

    @allowed(CallerKind.SERVER)
    async def apply_node_meta(self, changes: Mapping[str, str | None]) -> NodeMeta:
        """Change the node's metadata; None removes a value."""
        ...

    @allowed(CallerKind.SERVER)
    async def node_identity(self) -> Mapping[str, Any]:
        """The claims of the node's identity; raises NotFound without one."""
        ...

    @allowed(CallerKind.SERVER)
    async def agent_process(self) -> str:
        """The process of the node's agent, as it identifies itself at registration."""
        ...

    @allowed(CallerKind.SERVER)
    async def renew_node_identity(self) -> None:
        """Renew the node's identity with its next heartbeat."""
        ...

    @allowed(CallerKind.SERVER)
    def monitor(self, *, level: str, as_json: bool, has_location: bool = False) -> AsyncGenerator[str]:
        """The log of the node's agent at a level, as it is written; an empty text is a heartbeat."""
        ...

    @allowed(CallerKind.SERVER)
    def agent_insides(self, *, what: str, options: Mapping[str, str]) -> AsyncGenerator[bytes]:
        """Diagnostics of the node's agent (`yurt.runtime.diagnostics`); an empty piece is a heartbeat."""
        ...

    @allowed(CallerKind.SERVER)
    async def restart_alloc(self, alloc_id: str, *, task: str, all_tasks: bool) -> None:
        """Restart one task, the running ones, or all."""
        ...

    @allowed(CallerKind.SERVER)
    async def signal_alloc(self, alloc_id: str, *, task: str, signal: str) -> None:
        """Send a signal to one task, or to all when `task` is empty."""
        ...

    @allowed(CallerKind.SERVER)
    async def pause_task(self, alloc_id: str, *, task: str, wish: str = "", is_paused: bool | None = None) -> None:
        """Pause a task, let it run, or let its schedule decide (pause, run, scheduled).

        An agent of the version before schedules requires `is_paused` and ignores `wish`; a server of it sends the first
        alone. So callers give both. Raises Conflict where the task has ended for good.
        """
        ...

    @allowed(CallerKind.SERVER)
    async def schedule_state(self, alloc_id: str, *, task: str) -> str:
        """Whether a task may run: pause, scheduled_pause or run."""
        ...

    @allowed(CallerKind.SERVER)
    def exec_task(self, request: ExecRequest, inputs: AsyncIterator[ExecInput]) -> AsyncGenerator[ExecFrame]:
        """Run a command in a task; closing the frames, or the end of the inputs, ends it."""
        ...

    @allowed(CallerKind.SERVER)
    def pack_disk(self, alloc_id: str) -> AsyncGenerator[bytes]:
        """The data of an ended allocation, for its replacement on another node."""
        ...

    @allowed(CallerKind.SERVER)
    async def create_host_volume(self, volume: HostVolume) -> HostVolumeMade:
        """Create a volume with a plugin and offer it; the same id again changes it."""
        ...

    @allowed(CallerKind.SERVER)
    async def register_host_volume(self, volume: HostVolume) -> HostVolumeMade:
        """Offer an existing folder of the node as a volume."""
        ...

    @allowed(CallerKind.SERVER)
    async def delete_host_volume(self, volume: HostVolume) -> None:
        """Stop offering a volume, and remove it with its plugin."""
        ...

    @allowed(CallerKind.SERVER)
    async def collect_garbage(self, alloc_id: str | None) -> None:
        """Remove the directory of one terminal allocation, or of all."""
        ...


FindNode = Callable[[str], NodePort]
"""How to reach a node by its id; raises NotFound, or Unavailable at once or when the port is called."""


class Directory(Protocol):
    """The servers of all regions, including this one."""

    def members(self) -> tuple[Member, ...]:
        """Sorted by name."""
        ...

    def subscribe(self, on_change: Callable[[], None]) -> None:
        """Register a callback for each change."""
        ...


class RulesDirectory(Directory, Protocol):
    """A directory that knows the rules of its region's servers."""

    def published_rules(self) -> Mapping[str, int]:
        """The newest rules of each server of this region that has not left, by name.

        They include servers that were there before this one started and have not been heard since.
        """
        ...
