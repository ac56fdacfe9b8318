"""Access to the files and logs of allocations (`yurt.server.ports.NodePort`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Protocol

from yurt.client.files import browse as files
from yurt.client.files import streams
from yurt.client.files.alloc_dir import alloc_path
from yurt.client.files.link_owners import TaskUser, link_owners
from yurt.client.files.streams import LogSelection, StreamRoot
from yurt.runtime.env import Env
from yurt.sdk.driver import Driver
from yurt.sdk.errors import NotFound
from yurt.structs.rpc import FileInfo, StreamFrame


class FilesOwner(Protocol):
    """The part of an allocation that decides about its files."""

    @property
    def users(self) -> tuple[TaskUser, ...]:
        """Its tasks with the users who may own their files."""
        ...


class AllocLookup(Protocol):
    """The allocations of the client."""

    async def find(self, alloc_id: str) -> FilesOwner:
        """An allocation; raises NotFound, or Unavailable at the start."""
        ...

    def is_task_dead(self, alloc_id: str, task: str) -> bool:
        """Whether the task has ended and will not start again."""
        ...


class AllocFiles:
    """Files and logs of allocations; unknown ones raise NotFound, or Unavailable at the start."""

    def __init__(self, alloc_dir: str, env: Env, *, allocs: AllocLookup, drivers: Mapping[str, Driver]) -> None:
        self._alloc_dir = alloc_dir
        self._env = env
        self._allocs = allocs
        self._drivers = drivers

    async def _source(self, alloc_id: str) -> StreamRoot:
        """The allocation's directory, and the permitted owners of hard-linked files."""
        alloc = await self._allocs.find(alloc_id)
        owners = await asyncio.to_thread(link_owners, alloc.users, self._drivers)
        return StreamRoot(str(alloc_path(self._alloc_dir, alloc_id)), self._env, owners)

    async def list_files(self, alloc_id: str, path: str) -> tuple[FileInfo, ...]:
        """A directory inside the allocation's directory, sorted by name."""
        source = await self._source(alloc_id)
        return await files.list_files(source.root, path, owners=source.owners)

    async def stat_file(self, alloc_id: str, path: str) -> FileInfo:
        """One file or directory."""
        source = await self._source(alloc_id)
        return await files.stat_file(source.root, path, owners=source.owners)

    async def read_file(self, alloc_id: str, path: str, *, offset: int, limit: int) -> AsyncGenerator[bytes]:
        """The bytes from `offset`, at most `limit` (0: all)."""
        source = await self._source(alloc_id)
        async with aclosing(
            files.read_file(source.root, path, offset=offset, limit=limit, owners=source.owners)
        ) as pieces:
            async for piece in pieces:
                yield piece

    async def stream_file(
        self, alloc_id: str, path: str, *, offset: int, origin: str, follow: bool
    ) -> AsyncGenerator[StreamFrame]:
        """Frames of a file, following it; an empty frame is a heartbeat."""
        source = await self._source(alloc_id)
        async with aclosing(streams.stream_file(source, path, offset=offset, origin=origin, follow=follow)) as frames:
            async for frame in frames:
                yield frame

    async def stream_logs(
        self, alloc_id: str, task: str, *, kind: str, offset: int, origin: str, follow: bool
    ) -> AsyncGenerator[StreamFrame]:
        """Frames of a task's stdout or stderr over all rotated files."""
        tasks = {user.name: user for user in (await self._allocs.find(alloc_id)).users}
        if task not in tasks:
            raise NotFound(f'unknown task name "{task}"; allocation {alloc_id} has {", ".join(tasks)}')
        source = await self._source(alloc_id)
        is_over = partial(self._allocs.is_task_dead, alloc_id, task)
        selection = LogSelection(task, kind, is_over, is_collected=tasks[task].has_logs)
        async with aclosing(
            streams.stream_logs(source, selection, offset=offset, origin=origin, follow=follow)
        ) as frames:
            async for frame in frames:
                yield frame
