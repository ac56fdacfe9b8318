"""Which allocations this node should run, as the servers see it.

The list is pulled (a blocking query) and the allocations whose index moved are fetched. A list older than one that
was taken over already is ignored: a server that restores an old state, or a follower that lags, must never make this
client stop a task (invariant E2). So is what comes from a server that knows less than the one that listed it: the
list is pulled again. The newest index is kept on disk, so the rule holds over a restart too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from yurt.client.ports import ServerPort
from yurt.client.waiting import value_unless, wait_or_sleep
from yurt.runtime.env import Env
from yurt.sdk.errors import Unavailable, YurtError
from yurt.sdk.value import Value
from yurt.storage.client_db import ClientDatabase
from yurt.structs.alloc import Allocation
from yurt.structs.rpc import AllocPull

PULL_TIMEOUT_S = 60.0
PULL_RETRY_S = 30.0
NO_SERVER_RETRY_S = 1.0
STALE_RETRY_S = 1.0
FETCH_MAX = 200

log = logging.getLogger(__name__)


class Changes(Value):
    """What a list means for this client: allocations to take over, and ids that are no longer listed."""

    fetched: tuple[Allocation, ...] = ()
    gone: tuple[str, ...] = ()


class AllocWatch:
    """Follows the servers' list of this node's allocations."""

    def __init__(self, server: ServerPort, env: Env, store: ClientDatabase, *, node_id: str, is_dev: bool) -> None:
        self._server = server
        self._env = env
        self._store = store
        self._node_id = node_id
        self._retry_s = NO_SERVER_RETRY_S if is_dev else PULL_RETRY_S
        self._known: dict[str, int] = {}
        self._seen_index = 0
        self._again = asyncio.Event()
        self.fresh = asyncio.Event()
        """A list has been taken over that is as new as the last one that was asked for."""

    def know(self, alloc_ids: Mapping[str, int]) -> None:
        """Allocations that are here from an earlier run, with the index they were stored at."""
        self._known.update(alloc_ids)

    def look_again(self, least_index: int) -> None:
        """Ask at once, whatever is waited for, and take nothing that is older than `least_index`."""
        self._seen_index = max(self._seen_index, least_index)
        self.fresh.clear()
        self._again.set()

    async def run(self, *, least_index: int, apply: Callable[[Changes], Awaitable[None]]) -> None:
        """Follow the list for ever; the first one must not be older than `least_index` (the registration)."""
        stored = await self._store.seen_index()
        self._seen_index = max(self._seen_index, stored, least_index)
        min_index = 0
        while True:
            if self._again.is_set():
                self._again.clear()
                min_index = 0
            try:
                found = await value_unless(self._again, self._ask(min_index))
            except YurtError as error:
                retry_s = NO_SERVER_RETRY_S if isinstance(error, Unavailable) else self._retry_s
                log.warning("fetching allocations failed: %s; trying again in %gs", error, retry_s)
                await wait_or_sleep(self._env, self._again, retry_s)
                continue
            if found is None:
                continue
            pull, changes = found
            if pull.index < self._seen_index:
                log.warning("ignoring a list of allocations at index %d: %d was seen", pull.index, self._seen_index)
                min_index = 0
                await self._env.sleep(STALE_RETRY_S)
                continue
            await apply(changes)
            self._take_over(pull, changes)
            if pull.index >= self._seen_index:
                self._seen_index = pull.index
                self.fresh.set()
            if pull.index != stored:
                await self._store.put_seen_index(pull.index)
                stored = pull.index
            min_index = pull.index

    async def _ask(self, min_index: int) -> tuple[AllocPull, Changes]:
        """The next list, and what it means; of a list that is too old nothing is fetched."""
        pull = await self._server.pull_allocs(self._node_id, min_index=min_index, timeout_s=PULL_TIMEOUT_S)
        return pull, Changes() if pull.index < self._seen_index else await self._changes(pull)

    async def _changes(self, pull: AllocPull) -> Changes:
        moved = [alloc_id for alloc_id, index in pull.allocs.items() if self._known.get(alloc_id, -1) < index]
        fetched: list[Allocation] = []
        for start in range(0, len(moved), FETCH_MAX):
            batch = await self._server.get_allocs(self._node_id, tuple(moved[start : start + FETCH_MAX]))
            fetched += batch.allocs
        if {alloc.id for alloc in fetched if alloc.alloc_modify_index >= pull.allocs[alloc.id]} != set(moved):
            raise Unavailable("the server does not know all that was listed yet")
        gone = tuple(alloc_id for alloc_id in self._known if alloc_id not in pull.allocs)
        return Changes(fetched=tuple(fetched), gone=gone)

    def _take_over(self, pull: AllocPull, changes: Changes) -> None:
        for alloc in changes.fetched:
            self._known[alloc.id] = pull.allocs[alloc.id]
        for alloc_id in changes.gone:
            del self._known[alloc_id]
